"""One way to draw a request for each source and form."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from services.requests.task import TaskClass
from services.training.classifier import mathematics, readers, sources
from services.training.classifier.example import Example, prompt_example
from services.training.classifier.phrasebook import Phrases, fill, phrasebook, word_problem
from services.training.classifier.words import Words, read_words
from services.training.synthesis.sources import conversations, documented_functions, gym_question

Draw = Callable[[random.Random], Example]

_CHARACTERS_OF_CODE = 1000
_OWN_SUBJECTS = 0.3  # share of requests in English with the subjects of the phrases themselves
_CALLS = ("man1", "man2", "man3")  # sections of commands and calls
_PER_MODULE = 60  # questions of each module of mathematics-dataset
_STATED, _ASKED_MATHS = 0.55, 0.85  # shares of word problems, and of these and questions in the language's own words


class Drawers:
    """Over sources unpacked in `root`; reads each when it is first drawn from.

    Drawing raises DataUnavailableError for a source that is not there.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._book = phrasebook()
        self._others = sorted(set(self._book) - {"en"})

    def table(self) -> dict[str, tuple[int, Draw]]:
        """How many of each."""
        return {
            "chitchat": (5000, self._chitchat),
            "chat-phrases-en": (6500, lambda rng: self._phrase("chat", "en", rng)),
            "chat-phrases": (5000, lambda rng: self._phrase("chat", rng.choice(self._others), rng)),
            "stories": (7000, self._story),
            "stories-about": (2500, self._about_story),
            "sentences": (2000, self._sentence),
            "stdlib": (2500, self._documented),
            "code-files": (4000, self._code),
            "code-phrases-en": (4000, lambda rng: self._phrase("code", "en", rng)),
            "code-phrases": (5000, lambda rng: self._phrase("code", rng.choice(self._others), rng)),
            "manual-purposes": (2000, self._purpose),
            "manual-prose": (1500, self._manual_prose),
            "reasoning-gym": (2000, self._gym),
            "mathematics": (3500, self._mathematics),
            "maths-phrases-en": (4000, lambda rng: self._maths("en", rng)),
            "maths-phrases": (6000, lambda rng: self._maths(rng.choice(self._others), rng)),
        }

    # Chat.

    def _chitchat(self, rng: random.Random) -> Example:
        return prompt_example("chat", "chitchat", rng.choice(rng.choice(conversations())), "en")

    def _story(self, rng: random.Random) -> Example:
        language = rng.choice(self._story_languages)
        return prompt_example("chat", "stories", rng.choice(self._stories[language]), language)

    def _about_story(self, rng: random.Random) -> Example:
        language = rng.choice(sorted(self._stories))
        story = " ".join(rng.choice(self._stories[language]) for _ in range(rng.randint(1, 4)))
        request = fill(rng.choice(_ABOUT_STORIES), self._book["en"], rng, prose=story)
        return prompt_example("chat", "stories", request, language)

    # Code.

    def _documented(self, rng: random.Random) -> Example:
        return prompt_example("code", "stdlib", self._about_code(rng.choice(documented_functions()), rng), "en")

    def _code(self, rng: random.Random) -> Example:
        piece = ""
        while not piece:
            piece = readers.piece_of_code(rng.choice(rng.choice(self._code_files)), rng)
        return prompt_example("code", "code-files", self._about_code(piece[:_CHARACTERS_OF_CODE], rng))

    def _purpose(self, rng: random.Random) -> Example:
        """A request for what a manual page's first line promises."""
        language = rng.choice(sorted(self._purposes))
        phrases = {**self._book[language], "things": self._purposes[language]}
        phrase = rng.choice([p for p in phrases["code"] if "{thing}" in p])
        return prompt_example("code", "manual-purposes", fill(phrase, phrases, rng, prose=""), language)

    def _manual_prose(self, rng: random.Random) -> Example:
        """How calls and commands are described; readers of it write programs."""
        language = rng.choice(sorted(self._prose))
        prose = "\n\n".join(rng.choice(self._prose[language]) for _ in range(rng.randint(1, 4)))
        return prompt_example("code", "manual-prose", prose, language)

    def _about_code(self, code: str, rng: random.Random) -> str:
        """Bare, to be gone on with; or after a request in some language."""
        if rng.random() < 0.3:
            return code
        phrases = self._book[rng.choice((*self._others, *["en"] * len(self._others)))]
        asks = [p for p in phrases["code"] if p.endswith((":", "："))] or ["Fix this:"]
        request = rng.choice((*asks, *_ABOUT_CODE))
        fence = rng.choice(("```", "```", "```python", "```js", ""))
        return f"{request}\n\n{fence}\n{code}\n{fence[:3]}" if fence else f"{request}\n\n{code}"

    # Maths.

    def _gym(self, rng: random.Random) -> Example:
        task, question = gym_question(rng)
        return prompt_example("maths", f"reasoning-gym/{task}", question, "en")

    def _mathematics(self, rng: random.Random) -> Example:
        return prompt_example("maths", "mathematics", rng.choice(self._questions), "en")

    def _maths(self, language: str, rng: random.Random) -> Example:
        phrases = self._phrases(language, rng)
        kind = rng.random()
        if kind < _STATED:
            text = word_problem(phrases, rng)
        else:
            text = fill(rng.choice(phrases["maths"]), phrases, rng, prose="")
        if language == "en" and kind > _ASKED_MATHS:
            text += rng.choice(("\n\nThink step by step.", "\n\nShow your work.", " Give a reason."))
        return prompt_example("maths", "phrases", text, language)

    def _phrase(self, task: TaskClass, language: str, rng: random.Random) -> Example:
        phrases = self._phrases(language, rng)
        text = fill(rng.choice(phrases[task]), phrases, rng, prose=self._any_prose(rng))
        return prompt_example(task, "phrases", text, language)

    def _phrases(self, language: str, rng: random.Random) -> Phrases:
        """In English now and then with subjects from the dictionary."""
        phrases = self._book[language]
        if language != "en" or rng.random() < _OWN_SUBJECTS:
            return phrases
        words = self._words
        subjects = [*rng.choices(words.nouns, k=2), rng.choice(words.definitions)]
        return {**phrases, "topics": subjects, "items": rng.choices(words.nouns, k=3)}

    def _any_prose(self, rng: random.Random) -> str:
        return " ".join(rng.choices(self._words.sentences, k=rng.randint(1, 5)))

    def _sentence(self, rng: random.Random) -> Example:
        """What is said without any request."""
        return prompt_example("chat", "wordnet", self._any_prose(rng), "en")

    # What the sources hold.

    @cached_property
    def _stories(self) -> dict[str, list[str]]:
        found: dict[str, set[str]] = {}
        for download in sources.STORIES:
            for path in sorted(download.folder(self._root).rglob("*.mo")):
                found.setdefault(path.parent.parent.name.split("_")[0], set()).update(readers.messages(path))
        return {language: sorted(texts) for language, texts in found.items() if len(texts) > 50}

    @cached_property
    def _words(self) -> Words:
        return read_words(sources.WORDS.folder(self._root))

    @cached_property
    def _story_languages(self) -> list[str]:
        """Those that other classes have texts in count twice."""
        return sorted([*self._stories, *(language for language in self._others if language in self._stories)])

    @cached_property
    def _pages(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for download in sources.MANUALS:
            for path in readers.manual_pages(download.folder(self._root), "1238"):
                found.setdefault(readers.language_of(path), []).append(path)
        return found

    @cached_property
    def _prose(self) -> dict[str, list[str]]:
        found = {
            language: [text for page in pages if page.parent.name in _CALLS for text in readers.paragraphs(page)]
            for language, pages in self._pages.items()
        }
        return {language: texts for language, texts in found.items() if texts}

    @cached_property
    def _purposes(self) -> dict[str, list[str]]:
        """By language; those without phrases of their own are left out."""
        found = {lang: [readers.purpose(page) for page in pages] for lang, pages in self._pages.items()}
        return {
            lang: texts for lang, told in found.items() if lang in self._book and (texts := list(filter(None, told)))
        }

    @cached_property
    def _code_files(self) -> list[list[Path]]:
        """Those of a source together, so that no large source outweighs the others."""
        return [readers.code_files(d.folder(self._root), suffixes) for d, suffixes in sources.CODE.items()]

    @cached_property
    def _questions(self) -> list[str]:
        packages = (sources.MATHEMATICS, *sources.MATHEMATICS_NEEDS)
        return mathematics.questions([package.folder(self._root) for package in packages], _PER_MODULE)


_ABOUT_STORIES = (
    "Summarize: {prose}", "{prose}\n\nWhat is this text about?", "Translate into English:\n\n{prose}",
    "Rewrite this for a child:\n\n{prose}", "{prose}", "{prose}",
)  # fmt: skip
_ABOUT_CODE = ("Fix the bug:", "What does this do?", "Complete this code:", "Add comments.", "Translate to Python:", "")
