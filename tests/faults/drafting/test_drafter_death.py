"""A drafter that dies, hangs or comes back: the desk notices, goes on and returns by itself."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from services.target.drafting.desk import Desk
from services.target.drafting.loop import drafting_loop
from tests.integration.drafting.support import (
    TEXT,
    DrafterProcess,
    connect,
    context,
    desk_to,
    draft,
    first_draft,
    member,
    serving,
    until,
)


def grow(tokens: list[int]) -> None:
    tokens.append(TEXT[len(tokens) % 8])


def remote_draft(desk: Desk, tokens: list[int]) -> bool:
    """One step; whether a drafter replica, not lookup in this process, made the draft."""
    grow(tokens)
    before = desk.counters.drafts
    guess = draft(desk, 1)
    return guess is not None and desk.counters.drafts > before


def test_a_killed_drafter_is_replaced_by_local_lookup_and_drafts_again_when_it_is_back() -> None:
    drafter = DrafterProcess()
    with desk_to(member(drafter.address), local_lookup=True, min_wait_ms=200, max_wait_ms=200) as desk:
        desk.open(1, context(), tokens := list(TEXT))
        until(lambda: remote_draft(desk, tokens), "a draft of the replica")
        drafter.process.send_signal(signal.SIGKILL)
        for _ in range(30):  # it dies in the middle of these
            grow(tokens)
            guess = draft(desk, 1)
            assert guess is None or guess.tokens == tuple(TEXT[(len(tokens) + i) % 8] for i in range(4))
            time.sleep(0.01)
        until(lambda: desk.counters.disconnects == 1, "the loss is noticed")
        grow(tokens)
        assert draft(desk, 1) is not None, "lookup in this process"
        drafter.kill()
        again = DrafterProcess(port=drafter.port)
        try:
            until(lambda: remote_draft(desk, tokens), "a draft of the restarted replica")
            assert desk.counters.connects == 2
            assert desk.counters.lost >= 1
        finally:
            again.kill()


def test_another_replica_takes_over() -> None:
    drafters = [DrafterProcess(), DrafterProcess()]
    try:
        members = [member(d.address, "lookup", str(i)) for i, d in enumerate(drafters)]
        with desk_to(*members, min_wait_ms=200, max_wait_ms=200) as desk:
            texts = {sequence: list(TEXT) for sequence in range(1, 9)}
            for sequence, tokens in texts.items():
                desk.open(sequence, context(), tokens)
            until(lambda: desk.counters.connects == 2, "two connections")
            for sequence in texts:
                first_draft(desk, sequence)
            drafters[0].kill()
            until(lambda: desk.counters.disconnects == 1, "the loss is noticed")
            for sequence, tokens in texts.items():
                grow(tokens)
                assert draft(desk, sequence) is not None, "the survivor was caught up at once"
    finally:
        for drafter in drafters:
            drafter.kill()


def test_a_hanging_drafter_is_not_waited_for_and_used_again_when_it_answers() -> None:
    drafter = DrafterProcess()
    try:
        with desk_to(
            member(drafter.address),
            local_lookup=True,
            min_wait_ms=20,
            max_wait_ms=20,
            quiet_ms=100,
            stall_s=60,
        ) as desk:
            desk.open(1, context(), tokens := list(TEXT))
            until(lambda: remote_draft(desk, tokens), "a draft of the replica")
            drafter.process.send_signal(signal.SIGSTOP)
            local_before = desk.counters.local_drafts
            until(lambda: not remote_draft(desk, tokens) and desk.counters.local_drafts > local_before, "local lookup")
            missed = desk.counters.missed
            for _ in range(50):
                grow(tokens)
                assert draft(desk, 1) is not None
            assert desk.counters.missed == missed, "nobody waits for it"
            drafter.process.send_signal(signal.SIGCONT)
            until(lambda: remote_draft(desk, tokens), "a draft of the woken replica")
            assert desk.counters.disconnects == 0
    finally:
        drafter.kill()


def test_a_drafter_that_hangs_for_long_is_reconnected() -> None:
    drafter = DrafterProcess()
    try:
        with desk_to(
            member(drafter.address), min_wait_ms=20, max_wait_ms=20, quiet_ms=50, stall_s=0.3, connect_timeout_s=0.5
        ) as desk:
            desk.open(1, context(), tokens := list(TEXT))
            until(lambda: remote_draft(desk, tokens), "a draft of the replica")
            drafter.process.send_signal(signal.SIGSTOP)

            def reconnects() -> bool:
                remote_draft(desk, tokens)
                return desk.counters.disconnects > 0

            until(reconnects, "the stream is given up")
            drafter.process.send_signal(signal.SIGCONT)
            until(lambda: remote_draft(desk, tokens), "a draft of the woken replica")
    finally:
        drafter.kill()


def test_a_drafter_that_appears_later_is_found_through_the_fleet_view() -> None:
    view: list[str] = []
    with desk_to(view=lambda: tuple(member(address) for address in view), local_lookup=True) as desk:
        desk.open(1, context(), tokens := list(TEXT))
        assert draft(desk, 1) is not None
        drafter = DrafterProcess()
        try:
            view.append(drafter.address)
            until(lambda: remote_draft(desk, tokens), "a draft of the new replica")
            view.clear()
            until(lambda: not remote_draft(desk, tokens), "a replica that left the view is left")
            assert desk.drafter_of(1) == "lookup"
            view.append(drafter.address)
            connect(desk, [1])
        finally:
            drafter.kill()


def test_stopping_in_the_middle_of_connecting_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        for attempt in range(40):
            with desk_to(member(server.address), member("127.0.0.1:1"), max_backoff_s=0.02) as desk:
                time.sleep(attempt / 1000)
                desk.wake()
        until(lambda: not [t for t in asyncio.all_tasks(drafting_loop().loop) if "drafter 127" in t.get_name()])
        until(lambda: server.num_sessions == 0, "no sessions")
    assert "did not close" not in caplog.text
