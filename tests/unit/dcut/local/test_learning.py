"""What is learned from verified drafts: calibration and acceptance."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dcut.local.acceptance import Acceptance
from services.dcut.local.calibration import Calibration, CalibrationError
from services.dcut.local.history import NUM_SCENARIOS, DraftHistory
from services.requests.speculation import MAX_DRAFT_TOKENS


def observe(calibration: Calibration, confidence: float, position: int, accepted: float) -> None:
    calibration.observe(("mtp", True), np.array([confidence]), np.array([position]), np.array([accepted]))


def feed(calibration: Calibration, *drafts: tuple[float, float], position: int = 0, count: int = 2000) -> None:
    """Drafts of a stated confidence and a true probability of being accepted, in turns."""
    random_ = random.Random(5)
    for _ in range(count):
        for confidence, truth in drafts:
            accepted = float(random_.random() < truth)
            observe(calibration, confidence, position, accepted)


def see(acceptance: Acceptance, kind: str, task_class: str, kept: int, accepted: int) -> None:
    acceptance.observe(kind, task_class, np.array([kept]), np.array([accepted]))


def of(calibration: Calibration, confidence: float, position: int = 0, is_greedy: bool = True) -> float:
    return float(calibration.apply([("mtp", is_greedy)], np.full((1, position + 1), confidence))[0, position])


def test_before_anything_is_seen_the_drafter_is_believed() -> None:
    for confidence in (0.0, 0.37, 1.0):
        assert of(Calibration(), confidence) == pytest.approx(confidence, abs=0.002)


def test_an_overconfident_drafter_is_corrected_and_the_error_shrinks() -> None:
    calibration = Calibration()
    drafts = ((0.9, 0.6), (0.5, 0.3), (0.1, 0.05))
    feed(calibration, *drafts)
    for confidence, truth in drafts:
        assert of(calibration, confidence) == pytest.approx(truth, abs=0.06)
    stated, corrected = calibration.errors()["mtp", True]
    assert stated > 0.15
    assert corrected < 0.5 * stated


def test_positions_and_sampling_are_learned_apart() -> None:
    calibration = Calibration()
    feed(calibration, (0.7, 0.9), position=0)
    feed(calibration, (0.7, 0.2), position=3)
    assert of(calibration, 0.7, 0) == pytest.approx(0.9, abs=0.06)
    assert of(calibration, 0.7, 3) == pytest.approx(0.2, abs=0.06)
    # A position that was never verified goes with the others.
    assert 0.3 < of(calibration, 0.7, 1) < 0.8
    assert of(calibration, 0.7, 0, is_greedy=False) == pytest.approx(0.7, abs=0.002)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 15), st.booleans()), max_size=60),
    st.integers(0, 15),
)
def test_more_confidence_never_means_less(observed: list[tuple[float, int, bool]], position: int) -> None:
    calibration = Calibration()
    for confidence, at, accepted in observed:
        observe(calibration, confidence, at, float(accepted))
    grid = np.linspace(0, 1, 101)
    stated = np.repeat(grid[:, None], position + 1, axis=1)
    values = calibration.apply([("mtp", True)] * len(grid), stated)[:, position]
    assert ((values >= 0) & (values <= 1)).all()
    assert (np.diff(values) >= -1e-12).all()


def test_calibration_error_by_its_definition() -> None:
    error = CalibrationError()
    assert error.value == 0.0
    error.add(np.array([0.85, 0.85, 0.15, 0.15]), np.array([1.0, 0.0, 0.0, 0.0]))
    # Half of them in a bin that is off by .35, half in one that is off by .15.
    assert error.value == pytest.approx(0.25, rel=0.01)


def test_acceptance_counts_only_what_was_decided() -> None:
    acceptance = Acceptance()
    for _ in range(400):
        see(acceptance, "dfly", "code", kept=4, accepted=2)  # the third fell, the fourth was not reached
    found = acceptance.conditional("dfly", "code")
    assert found[:2] == pytest.approx([1.0, 1.0], abs=0.02)
    assert found[2] == pytest.approx(0.0, abs=0.02)


def test_what_was_never_reached_is_like_the_position_before() -> None:
    acceptance = Acceptance()
    for round_ in range(1000):
        see(acceptance, "mtp", "chat", kept=1, accepted=int(round_ % 10 < 3))
    found = acceptance.conditional("mtp", "chat")
    assert found == pytest.approx(np.full(MAX_DRAFT_TOKENS, 0.3), abs=0.1)


def test_a_new_class_starts_from_its_kind_and_a_new_kind_from_hope() -> None:
    acceptance = Acceptance()
    assert (acceptance.conditional("mtp", "chat") > 0.5).all()
    for _ in range(300):
        see(acceptance, "mtp", "chat", kept=2, accepted=0)
    assert acceptance.conditional("mtp", "code")[0] < 0.1
    assert (acceptance.conditional("dfly", "code") > 0.5).all()
    for _ in range(300):
        see(acceptance, "mtp", "code", kept=2, accepted=2)
    assert acceptance.conditional("mtp", "code")[0] > 0.9
    assert acceptance.conditional("mtp", "chat")[0] < 0.1


def test_acceptance_follows_a_change() -> None:
    acceptance = Acceptance()
    for accepted in (2, 0):
        for _ in range(500):
            see(acceptance, "mtp", "", kept=2, accepted=accepted)
    assert acceptance.conditional("mtp", "")[0] < 0.05


def test_history_keeps_the_latest_and_hands_them_to_new_sequences() -> None:
    history, group = DraftHistory(), ("mtp", "code")
    first = history.open()
    history.restart(first, group)
    assert np.isnan(history.scenarios([first], 3)).all()
    for number in range(NUM_SCENARIOS + 2):
        history.add([first], [group], np.full((1, MAX_DRAFT_TOKENS), float(number)))
    held = history.scenarios([first], 3)
    assert held.shape == (1, NUM_SCENARIOS, 3)
    assert sorted(held[0, :, 0]) == list(range(2, NUM_SCENARIOS + 2))
    second = history.open()
    history.restart(second, group)
    assert sorted(history.scenarios([second], 1)[0, :, 0]) == sorted(held[0, :, 0])
    history.restart(second, ("mtp", "chat"))
    assert np.isnan(history.scenarios([second], 1)).all()
    assert sorted(history.scenarios([first], 1)[0, :, 0]) == sorted(held[0, :, 0])


def test_history_grows_and_uses_places_again() -> None:
    history = DraftHistory()
    slots = [history.open() for _ in range(100)]
    assert len(set(slots)) == 100
    for slot in slots:
        history.close(slot)
    assert {history.open() for _ in range(100)} == set(slots)
