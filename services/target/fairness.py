"""Whose turn it is: the target's work shared between tenants. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator

from services.target.sequence import Sequence

_MAX_REMEMBERED = 4096


class FairShare:
    """Counts the positions computed for each tenant; who has had least is served next.

    What an answer will cost is not known beforehand, so each step is charged as it is computed. A tenant that
    comes back is lifted to the least of those who are here: time away earns no credit, and a debt is kept.
    """

    def __init__(self) -> None:
        self._served: OrderedDict[str, int] = OrderedDict()  # longest unseen first
        self._present: Counter[str] = Counter()  # sequences, waiting or running

    def enter(self, tenant: str) -> None:
        """One more sequence of it is here."""
        if not self._present[tenant]:
            least = min((self._served[other] for other in self._present if other != tenant), default=0)
            self._served[tenant] = max(self._served.pop(tenant, 0), least)
        self._present[tenant] += 1
        while len(self._served) > max(_MAX_REMEMBERED, len(self._present)):
            oldest = next(t for t in self._served if t not in self._present)
            del self._served[oldest]

    def leave(self, tenant: str) -> None:
        self._present[tenant] -= 1
        if self._present[tenant] <= 0:
            del self._present[tenant]

    def charge(self, tenant: str, positions: int) -> None:
        self._served[tenant] += positions

    def served(self, tenant: str) -> int:
        """Positions, on a scale that only comparisons have a use for."""
        return self._served[tenant]


class WaitingLine:
    """Sequences that wait for admission: each tenant's in order, and between tenants by their shares."""

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self._lines: dict[str, deque[Sequence]] = {}
        self._length = 0

    def __len__(self) -> int:
        """From any thread."""
        return self._length

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for line in self._lines.values() for sequence in line)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._lines.get(sequence.tenant, ())

    @property
    def head(self) -> Sequence:
        """Who is to be admitted next; somebody must wait."""
        first = min(self._lines, key=self._share.served)  # of equals, who has waited longest
        return self._lines[first][0]

    def append(self, sequence: Sequence) -> None:
        self._lines.setdefault(sequence.tenant, deque()).append(sequence)
        self._length += 1

    def put_back(self, sequence: Sequence) -> None:
        """It had been admitted: so it is the next of its tenant."""
        self._lines.setdefault(sequence.tenant, deque()).appendleft(sequence)
        self._length += 1

    def remove(self, sequence: Sequence) -> None:
        line = self._lines[sequence.tenant]
        line.remove(sequence)
        self._length -= 1
        if not line:
            del self._lines[sequence.tenant]
