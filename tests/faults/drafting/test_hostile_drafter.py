"""Whatever a drafter answers, the target counts it, drops it and goes on."""

from __future__ import annotations

import math
import random

import pytest

from protos import drafting_pb2 as pb
from services.target.drafting.counters import DraftingCounters
from services.target.drafting.desk import Desk
from services.target.drafting.interface import Lease
from tests.faults.drafting.hostile import HELLO, Script, hostile_drafter
from tests.integration.drafting.support import (
    TEXT,
    VOCABULARY,
    connect,
    context,
    desk_to,
    draft,
    first_draft,
    member,
    serving,
    until,
)


def the_ask(frame: pb.Round) -> pb.Entry | None:
    return next((entry for entry in frame.entries if entry.HasField("ask")), None)


def answer(frame: pb.Round, **changes: object) -> list[bytes]:
    """A reply to the frame's ask, sound but for the changes."""
    ask = the_ask(frame)
    if ask is None:
        return []
    tokens = changes.pop("tokens", (5, 6))
    probabilities = changes.pop("probabilities", (0.5,) * len(tokens))  # type: ignore[arg-type]
    entry = pb.ReplyEntry(sequence=ask.sequence, epoch=ask.epoch, base=ask.base)
    if "fault" in changes:
        entry.fault.CopyFrom(pb.Fault(code=changes.pop("fault"), detail="x" * 1000))  # type: ignore[arg-type]
    elif changes.pop("outcome", True):
        entry.draft.CopyFrom(pb.Draft(tokens=tokens, probabilities=probabilities))  # type: ignore[arg-type]
    for name, change in changes.items():
        setattr(entry, name, change(getattr(entry, name)))  # type: ignore[operator]
    return [pb.DrafterFrame(reply=pb.RoundReply(frame=frame.frame, entries=[entry])).SerializeToString()]


CASES: dict[str, tuple[Script, str]] = {
    "too many tokens": (lambda f: answer(f, tokens=(1,) * 9), "malformed"),
    "a token past the vocabulary": (lambda f: answer(f, tokens=(VOCABULARY,)), "malformed"),
    "too few probabilities": (lambda f: answer(f, probabilities=(0.5,)), "malformed"),
    "a probability above 1": (lambda f: answer(f, probabilities=(0.5, 1.5)), "malformed"),
    "a probability that is no number": (lambda f: answer(f, probabilities=(0.5, math.nan)), "malformed"),
    "no outcome": (lambda f: answer(f, outcome=False), "malformed"),
    "an unknown fault": (lambda f: answer(f, fault=99), "malformed"),
    "no fault code": (lambda f: answer(f, fault=0), "malformed"),
    "an older epoch": (lambda f: answer(f, epoch=lambda e: e - 1), "stale"),
    "a newer epoch": (lambda f: answer(f, epoch=lambda e: e + 1), "stale"),
    "a shorter base": (lambda f: answer(f, base=lambda b: b - 1), "stale"),
    "a longer base": (lambda f: answer(f, base=lambda b: b + 1), "stale"),
    "an old fault": (lambda f: answer(f, fault=1, epoch=lambda e: e - 1), "stale"),
    "an unknown sequence": (lambda f: answer(f, sequence=lambda s: s + 1000), "unknown"),
    "no frame at all": (lambda f: [b"\xff\xfe\xfd"], "unreadable_frames"),
    "a second hello": (lambda f: [pb.DrafterFrame(hello=HELLO).SerializeToString()], "unreadable_frames"),
    "an empty frame": (lambda f: [b""], "unreadable_frames"),
    "too many entries": (
        lambda f: [pb.DrafterFrame(reply=pb.RoundReply(entries=[pb.ReplyEntry()] * 5000)).SerializeToString()],
        "unreadable_frames",
    ),
    "the same answer twice": (lambda f: answer(f) * 2, "stale"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_answers_are_counted_and_dropped(case: str) -> None:
    script, counter = CASES[case]
    with hostile_drafter(script) as address, serving() as good:
        with desk_to(member(address), min_wait_ms=30, max_wait_ms=30, quiet_ms=60000) as desk:
            desk.open(1, context(), list(TEXT))
            connect(desk, [1])

            def counted() -> bool:
                guess = draft(desk, 1)
                assert guess is None or (case == "the same answer twice" and guess.tokens == (5, 6))
                return getattr(desk.counters, counter) > 0

            until(counted, f"{counter}; {desk.counters}")
            assert desk.counters.disconnects == 0, "the stream goes on"
        with desk_to(member(good.address), member(address, "mtp"), kinds=("lookup",)) as desk:
            desk.open(1, context(), list(TEXT))
            assert first_draft(desk, 1).tokens == (5, 6, 7, 8)


def test_a_bad_drafter_does_not_disturb_sequences_of_a_good_one() -> None:
    noise = random.Random(3)

    def garbage(frame: pb.Round) -> list[bytes]:
        sound = answer(frame) or [b""]
        bent = bytearray(sound[0])
        for _ in range(noise.randrange(4)):
            if bent:
                bent[noise.randrange(len(bent))] = noise.randrange(256)
        return [bytes(bent), noise.randbytes(noise.randrange(30))]

    with hostile_drafter(garbage) as address, serving() as good, desk_to() as desk:
        texts = {sequence: list(TEXT) for sequence in range(1, 17)}
        well_served = range(1, 9)
        for sequence, tokens in texts.items():
            desk.open(sequence, context(), tokens)
            desk.attach(sequence, Lease(good.address if sequence in well_served else address, "lookup", b""))
        until(lambda: desk.counters.connects == 2, "two connections")
        for sequence in texts:
            desk.features_wanted(sequence)
        for step in range(30):
            desk.ask([(sequence, 4) for sequence in texts])
            for sequence in well_served:
                while desk.is_pending(sequence):
                    desk.wait(0.05)
                guess = desk.take(sequence)
                assert guess is not None
                assert guess.tokens == tuple(TEXT[(step + 4 + i) % 8] for i in range(4))
            for sequence, tokens in texts.items():
                guess = desk.take(sequence)
                if guess is not None:
                    assert all(0 <= token < VOCABULARY for token in guess.tokens)
                    assert len(guess.tokens) == len(guess.probabilities) <= 4
                tokens.append(TEXT[len(tokens) % 8])
        assert good.metrics.asks == 30 * len(well_served)
        assert not good.metrics.faults
        assert desk.counters.unreadable_frames + desk.counters.malformed + desk.counters.unknown > 0


@pytest.mark.parametrize(
    "hello",
    [
        b"\xff\xff",
        b"",
        pb.DrafterFrame(reply=pb.RoundReply(frame=1)).SerializeToString(),
        pb.DrafterFrame(hello=pb.DrafterHello(protocol=2, kind="lookup", max_draft=4)).SerializeToString(),
        pb.DrafterFrame(hello=pb.DrafterHello(protocol=1, kind="", max_draft=4)).SerializeToString(),
        pb.DrafterFrame(hello=pb.DrafterHello(protocol=1, kind="lookup")).SerializeToString(),
        pb.DrafterFrame(
            hello=pb.DrafterHello(protocol=1, kind="lookup", max_draft=4, feature_layers=[-7])
        ).SerializeToString(),
        pb.DrafterFrame(
            hello=pb.DrafterHello(protocol=1, kind="lookup", max_draft=4, feature_layers=[1] * 65)
        ).SerializeToString(),
    ],
)
def test_a_drafter_with_a_bad_hello_is_never_used(hello: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with hostile_drafter(answer, hello) as address, desk_to(member(address), local_lookup=True) as desk:
        desk.open(1, context(), list(TEXT))
        until(lambda: "trying again" in caplog.text, "a complaint in the log")
        guess = draft(desk, 1)
        assert guess is not None
        assert desk.counters.connects == desk.counters.asks == 0
        assert caplog.text.count("trying again") == 1, "said once, not at every attempt"


def test_oversize_answers_end_only_that_connection() -> None:
    big = pb.DrafterFrame(
        reply=pb.RoundReply(entries=[pb.ReplyEntry(fault=pb.Fault(detail="x" * (5 << 20)))])
    ).SerializeToString()
    with hostile_drafter(lambda f: [big]) as address, desk_to(member(address), local_lookup=True) as desk:
        desk.open(1, context(), list(TEXT))
        connect(desk, [1])

        def lost() -> bool:
            draft(desk, 1)
            return desk.counters.disconnects > 0 and desk.counters.lost > 0

        until(lost, str(desk.counters))
        until(lambda: draft(desk, 1) is not None, "lookup in this process steps in")


def _ended(counters: DraftingCounters) -> int:
    return counters.drafts + counters.missed + counters.faults.total() + counters.malformed


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6])
def test_faults_without_end_never_become_a_storm(code: int) -> None:
    asked = 0

    def refuse(frame: pb.Round) -> list[bytes]:
        nonlocal asked
        asked += the_ask(frame) is not None
        return answer(frame, fault=code)

    with (
        hostile_drafter(refuse) as address,
        desk_to(member(address), local_lookup=True, min_backoff_s=0.5, max_backoff_s=30) as desk,
    ):
        desk.open(1, context(), list(TEXT))
        connect(desk, [1])
        _many_rounds(desk, 200)
        if code == pb.FAULT_CODE_OVERLOADED:
            assert asked == 200, "a draft that was shed says nothing of the next"
        elif code == pb.FAULT_CODE_BAD_LEASE:
            assert desk.counters.faults.total() == asked
        else:
            assert asked <= 3
        assert _ended(desk.counters) == asked


def _many_rounds(desk: Desk, count: int) -> None:
    for _ in range(count):
        draft(desk, 1)
