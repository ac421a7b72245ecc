"""Paints each token by where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from orchestration.cli.failure import Failure
from protos import generation_pb2 as pb

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STYLES = {
    pb.ORIGIN_UNSPECIFIED: "",
    pb.ORIGIN_PLAIN: "",
    pb.ORIGIN_ACCEPTED: "green",
    pb.ORIGIN_BONUS: "yellow",
}
REJECTED = "red strike"


def legend() -> Text:
    return Text.assemble(
        ("accepted", STYLES[pb.ORIGIN_ACCEPTED]),
        " · ",
        ("bonus", STYLES[pb.ORIGIN_BONUS]),
        " · ",
        ("rejected", REJECTED),
        " · plain",
    )


class Painter:
    """From traced chunks to coloured text, one character at least a time."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        from services.target.text import Detokenizer

        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, ())

    def paint(self, chunk: pb.GenerateChunk) -> Iterator[Text]:
        """Rejected drafts come before the token that took their place."""
        for token, trace in zip(chunk.token_ids, chunk.trace, strict=True):
            if trace.rejected:
                yield Text(str(self._tokenizer.decode(list(trace.rejected))), REJECTED)
            yield Text(self._detokenizer.push(token), STYLES[trace.origin])
        if chunk.finish_reason:
            yield Text(self._detokenizer.flush())


def load_painter(target: str | None, model_name: str) -> Painter:
    """The tokenizer of the served model, from this machine. Raises Failure when it is not here."""
    from orchestration.cli.console import fetch_model
    from services.models import default
    from services.models.tokenizer import load_tokenizer

    if target is None and model_name != default.NAME:
        raise Failure(
            f"--show-drafts needs the tokenizer of {model_name}, which this machine does not know; "
            "name the model with --target as `draftfleet serve` was given it"
        )
    return Painter(load_tokenizer(fetch_model(target or "default", None).path))
