"""Counts of what verification did with drafts, and the figures made of them.

accepted length = tokens emitted in decode rounds / decode rounds. A round emits its accepted draft
tokens and one token of the target's own, the bonus token; the prefill's first token is in neither
count. It is a micro-average: rounds of all answers count alike. acceptance of position k = rounds
whose first k draft tokens were accepted / rounds that offered at least k, so that position 1 is
unconditional and position k includes all before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from services.target.emission import TokenTrace


@dataclass(slots=True)
class Tally:
    answers: int = 0
    looping: int = 0
    rounds: int = 0
    tokens: int = 0
    drafted_rounds: int = 0
    offered: list[int] = field(default_factory=list)  # rounds that offered at least k + 1 drafts
    accepted: list[int] = field(default_factory=list)

    def add_round(self, trace: Sequence[TokenTrace], num_tokens: int) -> None:
        """One emission of a decode round. Drafts behind the end of an answer are not offered."""
        self.rounds += 1
        self.tokens += num_tokens
        accepted = sum(token.origin == "accepted" for token in trace)
        offered = accepted + max((len(token.rejected) for token in trace), default=0)
        if not offered:
            return
        self.drafted_rounds += 1
        while len(self.offered) < offered:
            self.offered.append(0)
            self.accepted.append(0)
        for position in range(offered):
            self.offered[position] += 1
            self.accepted[position] += position < accepted

    def add(self, other: Tally) -> None:
        for name in ("answers", "looping", "rounds", "tokens", "drafted_rounds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        longest = max(len(self.offered), len(other.offered))
        for name in ("offered", "accepted"):
            own, others = getattr(self, name), getattr(other, name)
            padded = [[*counts, *[0] * (longest - len(counts))] for counts in (own, others)]
            setattr(self, name, [a + b for a, b in zip(*padded, strict=True)])

    @property
    def accepted_length(self) -> float:
        return self.tokens / self.rounds if self.rounds else 0.0

    @property
    def acceptance(self) -> list[float]:
        return [a / o for a, o in zip(self.accepted, self.offered, strict=True)]


def total(tallies: Iterable[Tally]) -> Tally:
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    return whole
