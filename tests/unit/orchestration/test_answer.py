"""What the commands print of a stream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from orchestration.cli.answer import collect, print_stats
from orchestration.cli.drafts import REJECTED, STYLES, Painter
from orchestration.cli.failure import Failure
from orchestration.cli.options import load_config
from orchestration.cli.requests import Controls, chat_request, text_request
from orchestration.demo import PROMPTS, Comparison
from protos import generation_pb2 as pb


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte."""
    letters = {letter: index for index, letter in enumerate(bytes_to_unicode().values())}
    backend = Tokenizer(models.BPE(vocab=letters, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def chunks(tokenizer: PreTrainedTokenizerFast) -> Iterator[pb.GenerateChunk]:
    """'aé!' in three steps: plain, two drafts of which one fails, and the rest."""
    a, e1, e2, bang, x = tokenizer("aé!x")["input_ids"]
    yield pb.GenerateChunk(token_ids=[a], text="a", trace=[pb.TokenTrace(origin=pb.ORIGIN_PLAIN)])
    yield pb.GenerateChunk(
        token_ids=[e1, e2],
        text="é",
        trace=[
            pb.TokenTrace(origin=pb.ORIGIN_ACCEPTED),
            pb.TokenTrace(origin=pb.ORIGIN_BONUS, rejected=[x, x]),
        ],
    )
    yield pb.GenerateChunk(
        token_ids=[bang],
        text="!",
        trace=[pb.TokenTrace(origin=pb.ORIGIN_PLAIN)],
        finish_reason=pb.FINISH_REASON_LENGTH,
        usage=pb.Usage(completion_tokens=4),
        speculation=pb.SpeculationStats(
            drafter="lookup", num_drafts=1, num_draft_tokens=3, num_accepted_tokens=1, accepted_length=4 / 3
        ),
    )


def test_tokens_are_painted_by_origin(tokenizer: PreTrainedTokenizerFast) -> None:
    painter = Painter(tokenizer)
    pieces = [(text.plain, str(text.style)) for chunk in chunks(tokenizer) for text in painter.paint(chunk)]
    assert [piece for piece in pieces if piece[0]] == [
        ("a", ""),
        ("xx", REJECTED),
        ("é", STYLES[pb.ORIGIN_BONUS]),  # complete only with its second byte
        ("!", ""),
    ]


def test_an_answer_is_collected_and_shown(
    tokenizer: PreTrainedTokenizerFast, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = collect(chunks(tokenizer), show=True)
    assert (answer.text, len(answer.token_ids)) == ("aé!", 4)
    assert answer.usage.completion_tokens == 4
    assert capsys.readouterr().out == "aé!\n"
    print_stats(answer)
    said = capsys.readouterr().err
    assert "lookup: accepted length 1.33, 1 of 3 drafts accepted" in " ".join(said.split())
    collect(chunks(tokenizer), show=False)
    assert capsys.readouterr().out == ""


def test_text_that_looks_like_markup_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    collect(iter([pb.GenerateChunk(text="[bold]x[/] [red]")]), show=True)
    assert capsys.readouterr().out == "[bold]x[/] [red]\n"


def test_requests_carry_only_what_was_asked() -> None:
    request = text_request("hi", Controls(max_tokens=3))
    assert request.text == "hi"
    assert request.sampling.max_tokens == 3
    assert not request.sampling.HasField("seed")
    assert not request.speculation.HasField("max_draft_tokens")
    chat = chat_request([("user", "hi")], Controls(seed=0, drafter="none", max_draft_tokens=0, trace=True))
    assert [(m.role, m.content) for m in chat.chat.messages] == [("user", "hi")]
    assert (chat.sampling.seed, chat.sampling.HasField("seed")) == (0, True)
    assert (chat.speculation.drafter, chat.speculation.trace) == ("none", True)
    assert chat.speculation.HasField("max_draft_tokens")


def test_the_demo_sees_any_difference(tokenizer: PreTrainedTokenizerFast) -> None:
    same, other = collect(chunks(tokenizer), show=False), collect(chunks(tokenizer), show=False)
    assert Comparison(PROMPTS[0], same, other, 3.0, 2.0).is_identical
    assert Comparison(PROMPTS[0], same, other, 3.0, 2.0).speedup == 1.5
    other.token_ids[-1] += 1
    assert not Comparison(PROMPTS[0], same, other, 3.0, 2.0).is_identical


def test_wrong_settings_end_a_command_with_a_message() -> None:
    with pytest.raises(Failure, match=r"did you mean engine\.threads"):
        load_config(None, ["engine.thread=3"], {})
    assert load_config(None, None, {"serve.http_port": None, "gateway.grpc_port": 9001}).gateway.grpc_port == 9001
