"""Whatever a target sends, the drafter counts it, drops it and goes on serving the others."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import grpc
import pytest

from protos import drafting_pb2 as pb
from services.drafters.config import DrafterConfig
from services.drafters.server import SERVICE
from tests.faults.drafting.hostile import HostileTarget
from tests.integration.drafting.support import (
    TEXT,
    TIMEOUT_S,
    context,
    desk_to,
    draft,
    first_draft,
    member,
    serving,
    until,
)
from tests.unit.drafters.support import append, ask, frame, opening


def message(*entries: pb.Entry, number: int = 1) -> bytes:
    return pb.TargetFrame(round=frame(*entries, number=number)).SerializeToString()


SOUND = [opening(), append(0, [1, 2, 3, 1, 2]), ask(5)]


def test_garbage_between_sound_frames_is_skipped() -> None:
    with serving() as server:
        target = HostileTarget(server.address)
        replies = target.talk([b"\xff\xff", b"", b"\x12\x07garbage", message(*SOUND, number=9)])
        assert next(replies).hello.kind == "lookup"
        reply = next(replies).reply
        assert (reply.frame, list(reply.entries[0].draft.tokens)) == (9, [3, 1, 2, 3])
        assert server.metrics.unreadable_frames == 3
        target.close()


def test_a_frame_of_too_many_entries_is_dropped_as_a_whole() -> None:
    with serving(DrafterConfig.model_validate({"wire": {"max_entries": 512}})) as server:
        target = HostileTarget(server.address)
        replies = target.talk([message(*[opening(n) for n in range(513)]), message(*SOUND, number=2)])
        next(replies)
        assert next(replies).reply.frame == 2
        assert (server.metrics.unreadable_frames, server.metrics.opened) == (1, 1)
        target.close()


def test_an_oversize_message_ends_only_its_own_stream() -> None:
    with serving() as server, desk_to(member(server.address)) as desk:
        desk.open(1, context(), list(TEXT))
        first_draft(desk, 1)
        target = HostileTarget(server.address)
        with pytest.raises(grpc.RpcError) as error:
            list(target.talk([b"x" * (5 << 20)]))
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        target.close()
        assert draft(desk, 1) is not None
        assert desk.counters.disconnects == 0


def test_a_stream_without_a_hello_is_ended() -> None:
    config = DrafterConfig.model_validate({"wire": {"hello_timeout_s": 0.1}})
    with serving(config) as server, grpc.insecure_channel(server.address) as channel:
        is_over = threading.Event()

        def say_nothing() -> Iterator[bytes]:
            is_over.wait(TIMEOUT_S)
            yield from ()

        replies = channel.stream_stream(f"/{SERVICE}/Rounds")(say_nothing(), timeout=TIMEOUT_S)
        with pytest.raises(grpc.RpcError) as error:
            next(iter(replies))
        is_over.set()
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "none came in time" in error.value.details()


def test_more_targets_than_allowed_are_refused() -> None:
    config = DrafterConfig.model_validate({"wire": {"max_streams": 1}})
    with serving(config) as server, desk_to(member(server.address)) as desk:
        desk.open(1, context(), list(TEXT))
        first_draft(desk, 1)
        target = HostileTarget(server.address)
        with pytest.raises(grpc.RpcError) as error:
            list(target.talk([]))
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        target.close()
        assert draft(desk, 1) is not None


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_streams_disturb_nobody(seed: int) -> None:
    noise = random.Random(seed)

    def bent(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(noise.randrange(6)):
            changed[noise.randrange(len(changed))] = noise.randrange(256)
        return bytes(changed[: noise.randrange(1, len(changed) + 1)] if noise.random() < 0.3 else changed)

    with serving() as server, desk_to(member(server.address)) as desk:
        desk.open(1, context(), tokens := list(TEXT))
        first_draft(desk, 1)
        for _ in range(5):
            messages = [
                bent(message(opening(n % 5, n % 3), append(n % 7, [1, 2, 1], n % 5, n % 3), ask(3, 4, n % 5, n % 3)))
                for n in range(60)
            ]
            target = HostileTarget(server.address)
            for reply in target.talk(messages, hold=False):
                for entry in reply.reply.entries:
                    assert entry.WhichOneof("outcome")
            target.close()
            tokens.append(TEXT[len(tokens) % 8])
            assert draft(desk, 1) is not None
        assert server.metrics.faults
        assert server.metrics.failed_batches == 0
        assert desk.counters.faults.total() == desk.counters.stale == desk.counters.disconnects == 0
        until(lambda: server.num_sessions == 1, "sessions end with their stream")
        server.check()


def test_a_target_that_never_reads_loses_its_own_replies_only() -> None:
    config = DrafterConfig.model_validate({"wire": {"max_unread_replies": 2}})
    with serving(config) as server, desk_to(member(server.address)) as desk:
        desk.open(1, context(), list(TEXT))
        first_draft(desk, 1)
        target = HostileTarget(server.address)
        bad = pb.Entry(sequence=1, epoch=1, base=1, ask=pb.Ask(max_draft=1))
        flood = [message(*[bad] * 900, number=n) for n in range(200)]
        replies = target.talk(flood)
        next(replies)
        until(lambda: server.metrics.dropped_replies > 0, "dropped replies")
        assert draft(desk, 1) is not None
        target.close()
