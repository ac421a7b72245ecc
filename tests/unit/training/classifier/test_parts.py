"""Making examples, without the sources that must be fetched."""

from __future__ import annotations

import gzip
import hashlib
import random
import struct
import zipfile
from pathlib import Path

import pytest

from services.requests.task import CLASSES
from services.router.classifier.conversation import MAX_BACKGROUND
from services.training.classifier import downloads, held_out, readers, sources
from services.training.classifier.context import in_context
from services.training.classifier.disguise import disguised
from services.training.classifier.downloads import Download, fetch
from services.training.classifier.example import prompt_example
from services.training.classifier.phrasebook import fill, phrasebook, word_problem
from services.training.classifier.run import evaluate, train
from services.training.classifier.words import read_words
from services.training.synthesis.evaluation import DataUnavailableError
from services.training.synthesis.sources import GYM_TASKS

PAGE = r"""
.\" a comment
.TH LS 1
.SH BEZEICHNUNG
ls \- Verzeichnisinhalte \fBauflisten\fR
.SH BESCHREIBUNG
Gibt Informationen \(aqmit\(aq \-a über Dateien aus, die im Verzeichnis liegen.
Einträge werden sortiert.
.PP
kurz
"""


def test_every_language_has_phrases_for_every_class_and_all_slots_are_filled() -> None:
    book = phrasebook()
    assert len(book) >= 20
    rng = random.Random(1)
    slots = [f"{{{slot}}}" for slot in ("topic", "thing", "name", "item", "n", "lang", "eq", "expr", "prose", "year")]
    for phrases in book.values():
        for key in (*CLASSES, "statements", "questions"):
            for phrase in phrases[key]:
                filled = fill(phrase, phrases, rng, prose="text")
                assert not any(slot in filled for slot in slots)
        assert word_problem(phrases, rng)


def test_an_unknown_slot_is_named() -> None:
    with pytest.raises(ValueError, match=r"\{colour\}"):
        fill("a {colour} dog", phrasebook()["en"], random.Random(0), prose="")


def test_a_disguise_keeps_numbers_and_signs_alone() -> None:
    text = "Tom has 12 apples, 3.5 pears; how many?"
    for seed in range(50):
        hidden = disguised(text, random.Random(seed))
        assert [c for c in hidden if not c.isalpha() and c != " "] == [c for c in text if not c.isalpha() and c != " "]
        assert "apples" not in hidden
    assert disguised(text, random.Random(3)) == disguised(text, random.Random(3))


def test_context_keeps_the_class_and_is_bounded() -> None:
    examples = {task: [prompt_example(task, "s", f"{task} {'x' * 3000}")] for task in CLASSES}
    rng = random.Random(0)
    placed = [in_context(examples["code"][0], examples, rng) for _ in range(500)]
    assert {e.task_class for e in placed} == {"code"}
    assert max(len(e.conversation.background) for e in placed) <= MAX_BACKGROUND + 10
    assert {e.conversation.num_earlier for e in placed} >= {0, 1, 2, 3}
    assert {e.conversation.has_system for e in placed} == {True, False}


def test_manual_pages_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "usr/share/man/de/man1"
    folder.mkdir(parents=True)
    with gzip.open(folder / "ls.1.gz", "wt", encoding="utf-8") as file:
        file.write(PAGE)
    (page,) = readers.manual_pages(tmp_path, "12")
    assert readers.manual_pages(tmp_path, "3") == []
    assert readers.language_of(page) == "de"
    assert readers.purpose(page) == "Verzeichnisinhalte auflisten"
    assert readers.paragraphs(page) == [
        "Gibt Informationen 'mit' -a über Dateien aus, die im Verzeichnis liegen. Einträge werden sortiert."
    ]


def test_message_catalogues_are_read_without_markup(tmp_path: Path) -> None:
    good = "Ich war lange fort, und nun bin ich wieder zu Hause."
    path = tmp_path / "game.mo"
    path.write_bytes(
        _catalogue({"": "Content-Type: text/plain; charset=UTF-8\n", "a": good, "b": "kurz", "c": f"%s {good}"})
    )
    assert readers.messages(path) == [good]


def _catalogue(messages: dict[str, str]) -> bytes:
    """A GNU .mo file."""
    keys, values = zip(*sorted(messages.items()), strict=True)
    blobs = [text.encode() for text in (*keys, *values)]
    offset = 28 + 8 * len(blobs)
    table = b""
    for blob in blobs:
        table += struct.pack("<II", len(blob), offset)
        offset += len(blob) + 1
    head = struct.pack("<7I", 0x950412DE, 0, len(keys), 28, 28 + 8 * len(keys), 0, 0)
    return head + table + b"".join(blob + b"\0" for blob in blobs)


def test_pieces_of_code_are_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("\n".join(f"line_{i} = {i}" for i in range(200)))
    (tmp_path / "a.min.py").write_text("x = 1\n" * 200)
    (tmp_path / "small.py").write_text("x = 1\n")
    (path,) = readers.code_files(tmp_path, [".py"])
    piece = readers.piece_of_code(path, random.Random(0)).splitlines()
    assert 6 <= len(piece) <= 60
    assert all(line in path.read_text().splitlines() for line in piece)


def test_a_source_that_is_missing_is_named_with_the_command(tmp_path: Path) -> None:
    source = Download("pypi", "some-data", "1.0", "MIT")
    with pytest.raises(DataUnavailableError, match=r"pypi:some-data==1.0 is not in .*classifier fetch --folder"):
        source.folder(tmp_path / "sources")


def test_archives_are_unpacked_once_and_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def archive(download: Download, folder: Path) -> Path:
        asked.append(download)
        with zipfile.ZipFile(folder / "d-1.0.whl", "w") as packed:
            packed.writestr("d/data.json", "[]")
        return folder / "d-1.0.whl"

    monkeypatch.setattr(downloads, "_archive", archive)
    source = Download("pypi", "d", "1.0", "MIT")
    for _ in range(2):
        fetch([source], tmp_path, lambda text: None)
    assert asked == [source]
    assert (source.folder(tmp_path) / "d/data.json").read_text() == "[]"
    assert len(source.hash(tmp_path)) == hashlib.sha256().digest_size * 2


def test_a_client_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailableError, match=r"pypi:no/such: .* could not fetch it"):
        fetch([Download("pypi", "no/such", "", "MIT")], tmp_path, lambda text: None)


def test_training_names_a_missing_source_before_it_computes(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(DataUnavailableError, match=f"{sources.SOURCES[0]} is not in"):
        train(tmp_path, None, told.append)
    assert told == []


def test_evaluation_names_a_missing_source(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailableError, match=f"{held_out.SOURCES[0]} is not in"):
        evaluate(tmp_path, None, "test")


def test_no_source_is_both_learnt_from_and_judged_by() -> None:
    """reasoning-gym is in both by name: its GSM-Symbolic generator judges, 20 others teach."""
    names = {source.name for source in sources.SOURCES} | set(sources.INSTALLED)
    assert names & ({source.name for source in held_out.SOURCES} | set(held_out.INSTALLED)) == {"reasoning-gym"}
    assert "gsm_symbolic" not in GYM_TASKS


def test_words_are_read_from_a_dictionary(tmp_path: Path) -> None:
    folder = tmp_path / "usr/share/wordnet"
    folder.mkdir(parents=True)
    entry = (
        '00001740 03 n 02 red_fox 0 vixen 0 001 @ 02083346 n 0000 | a fox with red fur; "the red fox ran away quickly"'
    )
    (folder / "data.noun").write_text(f"  1 a licence\n{entry}\n")
    for part in ("verb", "adj"):
        (folder / f"data.{part}").write_text("")
    words = read_words(tmp_path)
    assert words.nouns == ["red fox"]
    assert words.definitions == ["a fox with red fur"]
    assert words.sentences == ["the red fox ran away quickly"]
