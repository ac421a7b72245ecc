"""A target replica's D-cut as a whole, with drafters and machines that are told what to be."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.dcut.costs.drafts import DraftWait
from services.dcut.costs.steps import StepCosts, StepSample
from services.dcut.local.config import LocalDcutConfig, Mode
from services.dcut.local.dcut import LocalDcut
from services.dcut.local.messages import Candidate, Offer, StepLoad, Verified, decode_snapshot, encode_snapshot

LIMIT = 5


def table(fixed_s: float, row_s: float) -> StepCosts:
    return StepCosts(StepSample(rows, 64, 0, fixed_s + row_s * rows) for rows in (1, 8, 64, 512))


CHEAP_ROWS = table(0.010, 0.0002)
DEAR_ROWS = table(0.001, 0.0010)


def load(batch: int, spare: int = 1000) -> StepLoad:
    return StepLoad(batch, 100.0, 0, spare)


class World:
    """Sequences whose drafts stand with a set probability, said truthfully."""

    def __init__(self, dcut: LocalDcut, acceptance: Callable[[int], float], batch: int, kind: str = "mtp") -> None:
        self.dcut = dcut
        self.acceptance = acceptance
        self.kind = kind
        self.batch = batch
        self.random = random.Random(3)
        self.wait_s = 0.002
        for sequence in range(batch):
            dcut.open(sequence, "chat", is_greedy=True)

    def step(self) -> tuple[dict[int, int], dict[int, int]]:
        """One round: what was asked and what was kept, by sequence."""
        candidates = [Candidate(sequence, self.kind, False, LIMIT) for sequence in range(self.batch)]
        asked = dict(self.dcut.ask(candidates, load(self.batch)))
        if asked:
            self.dcut.observe_wait(DraftWait(self.kind, len(asked), max(asked.values()), self.wait_s, self.wait_s))
            self.dcut.observe_pauses(self.wait_s, 0.0)
        offers = [Offer(s, (self.acceptance(s),) * asked.get(s, 0)) for s in range(self.batch)]
        kept = dict(enumerate(self.dcut.keep(offers, load(self.batch))))
        verified = []
        for sequence, count in kept.items():
            accepted = next((i for i in range(count) if self.random.random() >= self.acceptance(sequence)), count)
            if count:
                verified.append(Verified(sequence, count, accepted))
        self.dcut.observe_verified(verified)
        return asked, kept


def exact(steps: StepCosts, **settings: float | str) -> LocalDcut:
    return LocalDcut(LocalDcutConfig.model_validate(settings), steps)


def test_a_good_drafter_goes_on_being_asked() -> None:
    world = World(exact(CHEAP_ROWS), lambda sequence: 0.9, batch=2)
    for _ in range(50):
        asked, kept = world.step()
    assert asked.keys() == {0, 1}
    assert all(count > 1 for count in kept.values())


def test_a_useless_drafter_is_soon_not_asked_and_probed_ever_more_rarely() -> None:
    dcut = exact(CHEAP_ROWS, first_probe=4, last_probe=64)
    world = World(dcut, lambda sequence: 0.02, batch=1)
    asked_at = [step for step in range(600) if world.step()[0]]
    assert len(asked_at) < 60
    late = [b - a for a, b in itertools.pairwise(asked_at) if a > 200]
    assert late
    assert set(late) == {64}
    assert dcut.counters.skipped > 500
    assert dcut.counters.probes >= len(late)


def test_asking_comes_back_when_the_text_becomes_predictable() -> None:
    quality = 0.02
    world = World(exact(CHEAP_ROWS, first_probe=4, last_probe=64), lambda sequence: quality, batch=1)
    for _ in range(300):
        world.step()
    quality = 0.95
    asked = [bool(world.step()[0]) for _ in range(200)]
    assert all(asked[-50:])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(1, 40), st.integers(0, 100))
def test_no_sequence_starves(acceptances: list[float], last_probe: int, seed: int) -> None:
    """However bad it was: no stretch without an ask is longer than the longest pause between probes."""
    dcut = exact(DEAR_ROWS, first_probe=1, last_probe=last_probe)
    world = World(dcut, lambda sequence: acceptances[sequence], batch=len(acceptances))
    world.random.seed(seed)
    since = [0] * len(acceptances)
    for _ in range(4 * last_probe):
        asked, _ = world.step()
        for sequence in range(len(since)):
            since[sequence] = 0 if sequence in asked else since[sequence] + 1
            assert since[sequence] <= last_probe


def test_what_a_probe_brings_is_verified_even_where_it_does_not_pay() -> None:
    dcut = exact(DEAR_ROWS, first_probe=2, last_probe=8)
    world = World(dcut, lambda sequence: 0.05, batch=4)
    for _ in range(40):
        world.step()
    dcut.counters.probes = 0
    kept = sum(sum(world.step()[1].values()) for _ in range(80))
    assert dcut.counters.probes > 0
    assert kept >= dcut.counters.probes


def test_sequences_differ() -> None:
    dcut = exact(table(0.010, 0.0005), probe_share=0.001, objective="tokens")
    world = World(dcut, lambda sequence: 0.95 if sequence == 0 else 0.05, batch=6)
    for _ in range(60):
        world.step()
    counts = [0] * 6
    for _ in range(50):
        for sequence in world.step()[0]:
            counts[sequence] += 1
    assert counts[0] > 45
    assert max(counts[1:]) < 8


def test_what_is_cut_is_counted() -> None:
    dcut = exact(DEAR_ROWS)
    for sequence in range(2):
        dcut.open(sequence, "", is_greedy=True)
    dcut.ask([Candidate(0, "mtp", True, 3), Candidate(1, "mtp", True, 3)], load(2))
    assert dcut.keep([Offer(0, (0.99, 0.99, 0.99)), Offer(1, (0.1, 0.1))], load(2)) == [3, 0]
    counters = dcut.counters
    assert (counters.asked, counters.asked_tokens) == (2, 6)
    assert (counters.offered, counters.offered_tokens, counters.kept_tokens, counters.wholly_cut) == (2, 5, 3, 1)


@pytest.mark.parametrize("mode", ["off", "quarters", "exact"])
def test_no_mode_keeps_more_than_there_is_room_for(mode: Mode) -> None:
    dcut = LocalDcut(LocalDcutConfig(mode=mode), CHEAP_ROWS)
    offers = []
    for sequence in range(4):
        dcut.open(sequence, "", is_greedy=True)
        offers.append(Offer(sequence, (0.9,) * 5))
    for spare in (0, 1, 7):
        dcut.ask([Candidate(sequence, "mtp", False, 5) for sequence in range(4)], load(4))
        assert sum(dcut.keep(offers, load(4, spare))) <= spare


def test_off_asks_everybody_and_keeps_everything() -> None:
    world = World(LocalDcut(LocalDcutConfig(mode="off"), DEAR_ROWS), lambda sequence: 0.01, batch=3)
    for _ in range(20):
        asked, kept = world.step()
        assert asked == kept == {0: LIMIT, 1: LIMIT, 2: LIMIT}


def test_drafts_of_this_process_are_always_asked() -> None:
    dcut = exact(DEAR_ROWS)
    dcut.open(1, "", is_greedy=True)
    for _ in range(20):
        assert dcut.ask([Candidate(1, "lookup", True, 4)], load(1)) == [(1, 4)]
        dcut.keep([Offer(1, ())], load(1))


def test_lookup_in_between_does_not_make_a_drafter_forgotten() -> None:
    dcut = exact(CHEAP_ROWS, probe_share=0.0001)
    world = World(dcut, lambda sequence: 0.02, batch=1)
    for _ in range(40):
        world.step()
    for _ in range(5):
        dcut.ask([Candidate(0, "lookup", True, 4)], load(1))
        assert sum(dcut.keep([Offer(0, (0.9, 0.9, 0.9, 0.9))], load(1))) > 0
        dcut.observe_verified([Verified(0, 4, 4)])
        assert not world.step()[0]


def test_another_drafter_starts_with_what_is_known_of_its_kind() -> None:
    dcut = exact(CHEAP_ROWS)
    world = World(dcut, lambda sequence: 0.02, batch=1)
    for _ in range(40):
        world.step()
    assert not world.step()[0]
    world.kind = "dfly"  # never seen: worth a try
    assert world.step()[0]
    world.kind = "mtp"
    assert not world.step()[0]


def test_waits_for_drafts_while_that_is_cheaper_than_two_steps() -> None:
    dcut = exact(CHEAP_ROWS)
    for sequence in range(4):
        dcut.open(sequence, "", is_greedy=True)
    for _ in range(50):
        dcut.observe_wait(DraftWait("mtp", 4, 3, 0.004, 0.004))
    assert dcut.ask([Candidate(sequence, "mtp", False, 3) for sequence in range(4)], load(4))
    assert 0.004 < dcut.patience_s(3, 1, load(4)) < 0.010
    dcut.ask([], load(4))
    assert dcut.patience_s(3, 1, load(4)) == 0.0  # nobody was asked


def test_a_snapshot_survives_the_wire() -> None:
    world = World(exact(CHEAP_ROWS), lambda sequence: 0.8, batch=2)
    for _ in range(10):
        world.step()
    snapshot = world.dcut.snapshot()
    found = decode_snapshot(encode_snapshot(snapshot))
    assert found["mode"] == "exact"
    assert found["counters"] == snapshot.counters
    assert found["lines"][0]["rows"] == [1, 8, 64, 512]
    assert found["acceptance"][0]["kind"] == "mtp"
    assert found.keys() == {field.name for field in dataclasses.fields(snapshot)}
    for data in (b"", b"\xc1", b"\x01", b"x" * (2 << 20)):
        with pytest.raises(ValueError, match="snapshot"):
            decode_snapshot(data)


def test_what_is_forced_is_asked_and_kept_whatever_it_is_worth() -> None:
    dcut = exact(DEAR_ROWS)
    for sequence in range(2):
        dcut.open(sequence, "chat", is_greedy=True)
    for _ in range(40):
        asked = dict(dcut.ask([Candidate(s, "mtp", False, 4, is_forced=s == 1) for s in range(2)], load(2)))
        kept = dcut.keep([Offer(s, (0.01,) * asked.get(s, 0)) for s in range(2)], load(2))
        assert asked[1] == kept[1] == 4
        dcut.observe_verified([Verified(s, count, 0) for s, count in enumerate(kept) if count])
    assert kept[0] == 0
    dcut.ask([Candidate(1, "mtp", False, 4, is_forced=True)], load(1))
    assert dcut.keep([Offer(1, (0.01,) * 4)], load(1, spare=2))[0] <= 2  # there is no room for more
