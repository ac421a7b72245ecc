from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.dcut.local.probing import Idle, Probing


def run(probing: Probing, idle: list[Idle], steps: int, cost: float, fixed: float = 0.0) -> tuple[float, int]:
    """What probes cost, and the longest pause of a sequence."""
    spent, longest = 0.0, 0
    since = [0] * len(idle)
    for _ in range(steps):
        due = probing.due(idle, len(idle), lambda count: fixed + cost * count)
        spent += fixed + cost * sum(due) if any(due) else 0.0
        for at, is_due in enumerate(due):
            since[at] = 0 if is_due else since[at] + 1
            longest = max(longest, since[at])
    return spent, longest


@given(
    st.integers(1, 12),
    st.floats(0, 20),
    st.floats(0, 20),
    st.sampled_from([0.001, 0.01, 0.1]),
    st.integers(1, 8),
    st.integers(8, 64),
)
def test_nobody_waits_longer_than_the_longest_pause(
    sequences: int, cost: float, fixed: float, share: float, first: int, last: int
) -> None:
    idle = [Idle(first) for _ in range(sequences)]
    assert run(Probing(share, first, last), idle, 4 * last, cost, fixed)[1] < last


@given(st.integers(1, 12), st.floats(0.01, 2), st.floats(0, 2), st.sampled_from([0.005, 0.02, 0.1]))
def test_probes_cost_no_more_than_their_share(sequences: int, cost: float, fixed: float, share: float) -> None:
    """Apart from those of sequences that would otherwise wait for too long; here none does."""
    steps = 500
    idle = [Idle(2) for _ in range(sequences)]
    spent, _ = run(Probing(share, 2, 10 * steps), idle, steps, cost, fixed)
    assert spent <= share * sequences * steps + 1e-6


def test_the_pause_doubles_with_every_probe_in_vain() -> None:
    probing, entry = Probing(0.5, 2, 1000), Idle(2)
    assert [step for step in range(1, 63) if probing.due([entry], 1, lambda count: 0.0)[0]] == [2, 6, 14, 30, 62]


def test_the_longest_idle_come_first_when_there_is_little_to_spend() -> None:
    idle = [Idle(1, 5), Idle(1, 9), Idle(1, 7)]
    assert Probing(1 / 3 + 1e-9, 1, 1000).due(idle, 3, lambda count: float(count)) == [False, True, False]
