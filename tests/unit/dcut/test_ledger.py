"""What the actor makes of counts: exact when looked at, and never a reason to refuse a report."""

from __future__ import annotations

import asyncio

import pytest

from services.dcut.fleet import Fleet
from services.dcut.ledger import Ledger
from services.dcut.link import GOODBYE_LEASE_S
from services.dcut.messages import Budget, Member, Report
from services.metrics.defined import fleet as defined
from services.metrics.defined.target import STEPS
from services.metrics.messages import Snapshot, decode_snapshot
from services.metrics.metric import Metric
from services.metrics.readings import Readings
from services.metrics.reporter import CountReporter

WAIT_S = 60.0


class Replica:
    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = 0
        self.reporter = CountReporter(self.read)

    def read(self) -> Readings:
        readings = Readings()
        readings.put(STEPS, self.steps)
        return readings

    def report(self, ledger: Ledger, lease_s: float = 60.0) -> Report:
        message, sent = self.reporter.message()
        report = Report("target", self.name, "a:1", "", "1", "n", lease_s)
        ledger.add(report, message)
        self.reporter.confirm(sent)
        return report


async def tell(ledger: Ledger, *members: Member, wait_s: float = 0.0) -> Snapshot:
    return decode_snapshot(await ledger.tell(Budget(1, 5.0, members), wait_s=wait_s))


def total(snapshot: Snapshot, metric: Metric, *labels: str) -> float:
    return snapshot.totals.get(metric.series(labels), (0,))[0]


async def test_a_look_waits_for_a_report_that_was_begun_after_it() -> None:
    ledger, replica = Ledger(16), Replica("t1")
    replica.report(ledger)
    looking = asyncio.create_task(tell(ledger, wait_s=WAIT_S))
    await asyncio.sleep(0.05)
    replica.report(ledger)  # may have been on its way when the look began
    await asyncio.sleep(0.05)
    assert not looking.done()
    replica.steps = 7
    replica.report(ledger)
    assert total(await looking, STEPS) == 7


async def test_a_look_waits_for_nobody_who_is_gone_and_never_too_long() -> None:
    ledger, replica = Ledger(16), Replica("t1")
    replica.report(ledger, lease_s=0.05)
    assert total(await tell(ledger, wait_s=WAIT_S), STEPS) == 0  # until its lease has ended
    replica.steps = 3
    replica.report(ledger)
    assert total(await tell(ledger, wait_s=0.01), STEPS) == 3


async def test_the_actors_own_numbers() -> None:
    ledger, fleet = Ledger(16), Fleet()
    first, second = Replica("t1"), Replica("t2")
    for replica in (first, second):
        fleet.register(replica.report(ledger), 0.0)
    members = fleet.budget().members
    snapshot = await tell(ledger, *members)
    assert snapshot.gauges[defined.REPLICAS.series(("target", "none"))] == 2
    assert total(snapshot, defined.REPORTS, "target") == 2
    fleet.register(first.report(ledger, GOODBYE_LEASE_S), 0.0)
    ledger.gone(fleet.expire(1.0))
    ledger.gone(fleet.expire(100.0))
    snapshot = await tell(ledger)
    assert total(snapshot, defined.LEFT, "target", "stopped") == 1
    assert total(snapshot, defined.LEFT, "target", "silent") == 1


@pytest.mark.parametrize("counts", [b"\xc1", b"\x00" * (1 << 20)])
async def test_bad_counts_are_dropped_and_counted(counts: bytes) -> None:
    ledger = Ledger(16)
    ledger.add(Report("target", "t1", "a:1", "", "1", "n", 2.0), counts)
    ledger.refuse()
    snapshot = await tell(ledger)
    assert total(snapshot, defined.REFUSED_REPORTS) == 2
    assert total(snapshot, defined.REPORTS, "target") == 1


async def test_last_words_count() -> None:
    ledger, replica = Ledger(16), Replica("t1")
    replica.report(ledger, GOODBYE_LEASE_S)
    replica.steps = 5
    ledger.count(replica.reporter.message()[0])
    assert total(await tell(ledger, wait_s=WAIT_S), STEPS) == 5


async def test_a_new_actor_is_handed_what_the_old_one_told() -> None:
    old, new, replica = Ledger(16), Ledger(16), Replica("t1")
    replica.steps = 5
    replica.report(old)
    new.restore(await old.tell(Budget(1, 5.0, ()), wait_s=0.0))
    replica.steps = 6
    replica.report(new)
    assert total(await tell(new), STEPS) == 6
    with pytest.raises(ValueError, match="not msgpack"):
        new.restore(b"\xc1")
