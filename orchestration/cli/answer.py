"""Shows an answer while it comes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.text import Text

from orchestration.cli.console import err, out
from orchestration.cli.drafts import Painter
from protos import generation_pb2 as pb


@dataclass(slots=True)
class Answer:
    """What a finished generation was."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    seconds: float = 0.0  # from the request to the last token
    first_token_s: float = 0.0
    usage: pb.Usage = field(default_factory=pb.Usage)
    speculation: pb.SpeculationStats = field(default_factory=pb.SpeculationStats)

    @property
    def tokens_per_second(self) -> float:
        return len(self.token_ids) / self.seconds if self.seconds else 0.0


def collect(chunks: Iterable[pb.GenerateChunk], *, show: bool, painter: Painter | None = None) -> Answer:
    """Reads to the end; prints as it goes when `show`, coloured with a painter."""
    answer = Answer()
    started = time.perf_counter()
    for chunk in chunks:
        now = time.perf_counter() - started
        if chunk.token_ids:
            answer.first_token_s = answer.first_token_s or now
            answer.seconds = now
        answer.text += chunk.text
        answer.token_ids.extend(chunk.token_ids)
        if chunk.finish_reason:
            answer.usage.CopyFrom(chunk.usage)
            answer.speculation.CopyFrom(chunk.speculation)
        if show and painter is not None:
            for piece in painter.paint(chunk):
                out.print(piece, end="")
        elif show and chunk.text:
            out.print(Text(chunk.text), end="")
    if show:
        out.print()
    return answer


def print_stats(answer: Answer) -> None:
    stats = answer.speculation
    drafted = (
        f"{stats.drafter}: accepted length {stats.accepted_length:.2f}, "
        f"{stats.num_accepted_tokens} of {stats.num_draft_tokens} drafts accepted"
        if stats.num_drafts
        else "no drafts"
    )
    err.print(
        f"{len(answer.token_ids)} tokens, {answer.tokens_per_second:.1f} tokens/s, "
        f"first after {answer.first_token_s * 1e3:.0f} ms · {drafted} · {stats.exactness}",
        style="dim",
    )
