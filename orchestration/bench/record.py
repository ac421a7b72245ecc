"""What was seen of one request, and the latencies that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the server told of one answer."""

    drafter: str
    num_rounds: int  # decode steps, with or without draft rows
    num_round_tokens: float  # tokens emitted in them
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are seconds of one monotonic clock, the same for all requests of a load."""

    prompt: str  # its name; the text stays out of results
    due: float  # when the arrival process wanted it sent
    sent: float
    ended: float
    token_times: tuple[float, ...] = ()  # arrival of each token; those of one burst share it
    burst_times: tuple[float, ...] = ()  # arrival of each message that brought tokens
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    are_tokens_told: bool = True  # False: the server tells no counts, and one message counts as one token
    delays: tuple[float, ...] = ()  # of each token, from the server's time stamp to its arrival, where it stamps
    speculation: Speculation | None = None
    text_hash: str = ""
    finish: str = ""
    error: str = ""  # its kind; empty for an answer that came to its end
    error_text: str = ""

    @property
    def is_ok(self) -> bool:
        return not self.error

    @property
    def num_tokens(self) -> int:
        return len(self.token_times)

    @property
    def ttft(self) -> float | None:
        """Time to first token. From when the request was due, so that a late load generator hides no queue."""
        return self.token_times[0] - self.due if self.token_times else None

    @property
    def e2el(self) -> float:
        """End-to-end latency."""
        return self.ended - self.due

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first: bursts cannot distort it."""
        count = self.num_tokens
        return (self.token_times[-1] - self.token_times[0]) / (count - 1) if count > 1 else None

    @property
    def itl(self) -> list[float]:
        """Inter-token latencies; 0 inside a burst."""
        return [after - before for before, after in pairwise(self.token_times)]

    @property
    def icl(self) -> list[float]:
        """Inter-chunk latencies: between bursts, whatever the number of tokens they bring."""
        return [after - before for before, after in pairwise(self.burst_times)]


def spread(burst_times: Sequence[float], num_tokens: int) -> tuple[float, ...]:
    """Arrival of each token where only bursts and the number of all tokens are known.

    Each burst brought at least one token, and which one brought the rest does not change how often each
    inter-token latency occurs: here they are spread evenly. Fewer tokens than bursts occur where a server cuts a
    token's text in two: then bursts in between are left out. Raises ValueError for tokens without a burst.
    """
    if num_tokens and not burst_times:
        raise ValueError(f"num_tokens: {num_tokens} is out of range; without a burst it must be 0")
    gaps, last = max(1, num_tokens - 1), len(burst_times) - 1
    return tuple(burst_times[(index * last + gaps // 2) // gaps] for index in range(num_tokens))
