"""The actor short of Ray."""

from __future__ import annotations

import time

import pytest

from services.dcut.cluster.control import Control
from services.dcut.config import DcutConfig
from services.dcut.messages import Budget, Report, decode_budget, encode


def report(replica: str, role: str = "target", lease_s: float = 2.0, batch: int = 0) -> bytes:
    return encode(
        Report(
            role=role,  # type: ignore[arg-type]
            replica=replica,
            address="a:1",
            kind="mtp" if role == "drafter" else "",
            version="1",
            node="n",
            lease_s=lease_s,
            batch=batch,
        )
    )


def told(data: bytes) -> Budget:
    return decode_budget(data)


def test_who_comes_and_goes_is_told_at_once_and_loads_once_a_tick() -> None:
    control = Control(DcutConfig(settle_s=1.0), now=0.0)
    first = told(control.report(report("a"), 0.0))
    assert [member.replica for member in first.members] == ["a"]
    assert not first.settled
    second = told(control.report(report("b"), 0.01))
    assert [member.replica for member in second.members] == ["a", "b"]
    same = control.report(report("a", batch=7), 0.02)
    assert told(same) == second
    later = told(control.report(report("a", batch=7), 0.2))
    assert [member.batch for member in later.members] == [7, 0]
    assert later.version > second.version > first.version
    gone = told(control.report(report("b", lease_s=0.001), 0.21))
    assert [member.replica for member in told(control.view(0.22)).members] == ["a"]
    assert gone.settled is False
    assert told(control.view(1.5)).settled


def test_a_version_stands_for_one_content() -> None:
    control = Control(DcutConfig(), now=0.0)
    versions: dict[int, tuple[object, ...]] = {}
    for step in range(200):
        now = step * 0.03
        budget = told(control.report(report(f"d{step % 3}", "drafter", batch=step % 5), now))
        content = (budget.members, budget.kinds, budget.guidance)
        assert versions.setdefault(budget.version, content) == content


def test_a_thousand_replicas_report_within_their_period() -> None:
    """Replies are put together once a tick, so that a round of reports costs O(replicas)."""
    control = Control(DcutConfig(), now=0.0)
    for number in range(1200):
        control.report(report(f"t{number}", lease_s=60), number * 1e-3)
    encoded = report("t7", lease_s=60)
    started = time.perf_counter()
    for number in range(1200):
        reply = control.report(encoded, 2.0 + number * 1e-4)
    took_s = time.perf_counter() - started
    print(f"1,200 reports in {took_s:.3f} s")
    budget = told(reply)
    assert len(budget.members) == 1200
    assert budget.pace == pytest.approx(1.2)


def test_a_malformed_report_is_refused_and_changes_nothing() -> None:
    control = Control(DcutConfig(), now=0.0)
    with pytest.raises(ValueError, match="version"):
        control.report(b"\x80", 0.0)
    assert told(control.view(0.1)).members == ()
