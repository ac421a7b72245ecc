"""Leases, eviction, shedding, health and version negotiation, over real gRPC."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos import drafting_pb2 as pb
from protos.drafting_pb2_grpc import DraftingStub
from services.drafters.config import DrafterConfig
from services.drafters.drafter import Proposal, Question
from services.target.drafting.interface import Guess, Lease
from tests.integration.drafting.support import (
    TEXT,
    TIMEOUT_S,
    VOCABULARY,
    connect,
    context,
    desk_to,
    draft,
    first_draft,
    member,
    server_loop,
    serving,
    until,
)
from tests.unit.drafters.support import HIDDEN, FeatureProbe, feature_rows

REPEATED = Guess((5, 6, 7, 8), (2 / 3, 5 / 7, 3 / 4, 7 / 9))


def config(**sessions: float) -> DrafterConfig:
    return DrafterConfig.model_validate({"sessions": sessions})


def reserve(address: str, sequences: int = 1, protocol: int = 1) -> pb.Lease:
    with grpc.insecure_channel(address) as channel:
        reply: pb.ReserveReply = DraftingStub(channel).Reserve(  # type: ignore[misc]
            pb.ReserveRequest(protocol=protocol, request_id="r", sequences=sequences), timeout=TIMEOUT_S
        )
        return reply.lease


def as_lease(lease: pb.Lease) -> Lease:
    return Lease(lease.address, lease.kind, lease.token)


def same(guess: Guess | None) -> bool:
    return (
        guess is not None
        and guess.tokens == REPEATED.tokens
        and guess.probabilities == pytest.approx(REPEATED.probabilities)
    )


def test_a_lease_is_used_at_once_even_without_a_fleet_view() -> None:
    with serving(config(max_sessions=2)) as server, desk_to() as desk:
        lease = reserve(server.address, sequences=2)
        assert (lease.address, lease.kind, lease.ttl_ms) == (server.address, "lookup", 10000)
        assert server.num_reserved == 2
        for sequence in (1, 2):
            desk.open(sequence, context(), list(TEXT))
            desk.attach(sequence, as_lease(lease))
        assert same(first_draft(desk, 1))
        assert same(first_draft(desk, 2))
        assert (server.num_sessions, server.num_reserved) == (2, 0)
        assert not desk.counters.faults


def test_a_lease_that_comes_before_the_first_ask_decides() -> None:
    with serving() as one, serving() as other, desk_to(member(one.address), member(other.address)) as desk:
        until(lambda: desk.counters.connects == 2, "two connections")
        for sequence in range(1, 9):
            desk.open(sequence, context(), list(TEXT))
            desk.features_wanted(sequence)  # as in the prefill: the desk chooses for itself
            desk.attach(sequence, as_lease(reserve(other.address)))
            assert same(draft(desk, sequence))
        assert (one.num_sessions, other.num_sessions, other.num_reserved) == (0, 8, 0)


def test_a_lease_that_comes_later_does_not_move_a_session() -> None:
    with serving() as one, serving() as other, desk_to(member(one.address)) as desk:
        desk.open(1, context(), list(TEXT))
        first_draft(desk, 1)
        desk.attach(1, as_lease(reserve(other.address)))
        until(lambda: desk.counters.connects == 2, "two connections")
        assert same(draft(desk, 1))
        assert (one.num_sessions, other.num_sessions) == (1, 0)


def test_a_lapsed_lease_costs_a_round_not_the_drafter() -> None:
    with serving(config(lease_ttl_s=0.001)) as server, desk_to(member(server.address)) as desk:
        lease = reserve(server.address)
        time.sleep(0.01)
        desk.open(1, context(), list(TEXT))
        connect(desk, [1])
        desk.attach(1, as_lease(lease))
        assert same(first_draft(desk, 1))
        assert desk.counters.faults["FAULT_CODE_BAD_LEASE"] == 1


def test_an_evicted_sequence_is_caught_up() -> None:
    with serving(config(max_sessions=1, evict_idle_s=0)) as server, desk_to(member(server.address)) as desk:
        for sequence in (1, 2):
            desk.open(sequence, context(), list(TEXT))
            assert same(first_draft(desk, sequence))
        assert server.metrics.evicted == 1
        assert draft(desk, 1) is None, "this is how the desk learns of it"
        assert desk.counters.faults["FAULT_CODE_UNKNOWN_SESSION"] == 1
        assert same(draft(desk, 1))
        assert desk.counters.catch_ups == 3


def test_a_full_drafter_is_left_alone_for_a_while() -> None:
    with serving(config(max_sessions=1, evict_idle_s=60)) as server, desk_to(member(server.address)) as desk:
        desk.open(1, context(), list(TEXT))
        assert same(first_draft(desk, 1))
        desk.open(2, context(), list(TEXT))
        assert draft(desk, 2) is None
        assert desk.counters.faults["FAULT_CODE_FULL"] == 1
        assert desk.drafter_of(2) in ("lookup", "none")
        assert draft(desk, 2) is None
        assert desk.counters.faults["FAULT_CODE_FULL"] == 1, "it is not asked again at once"
        assert same(draft(desk, 1)), "the other one is not disturbed"
        desk.close(1)
        assert same(first_draft(desk, 2)), "and it comes back"


@pytest.mark.parametrize(
    ("sequences", "protocol", "code", "words"),
    [
        (1, 2, grpc.StatusCode.FAILED_PRECONDITION, "the caller speaks versions 2 to 2, this drafter 1 to 1"),
        (0, 1, grpc.StatusCode.INVALID_ARGUMENT, "sequences: 0 is out of range"),
        (65, 1, grpc.StatusCode.INVALID_ARGUMENT, "at most 64"),
        (3, 1, grpc.StatusCode.RESOURCE_EXHAUSTED, "no place is left"),
    ],
)
def test_a_reservation_that_cannot_be(sequences: int, protocol: int, code: grpc.StatusCode, words: str) -> None:
    with serving(config(max_sessions=2)) as server:
        with pytest.raises(grpc.RpcError) as error:
            reserve(server.address, sequences, protocol)
        assert error.value.code() is code
        assert words in error.value.details()


@pytest.mark.parametrize(
    ("hello", "code", "words"),
    [
        ({"protocol": 3, "oldest_protocol": 2}, "FAILED_PRECONDITION", "speaks versions 2 to 3"),
        ({"protocol": 0, "oldest_protocol": 0}, "FAILED_PRECONDITION", "upgrade the older side"),
        ({"vocabulary": 0}, "FAILED_PRECONDITION", "vocabulary: 0 is out of range"),
        ({"hidden_size": 0}, "FAILED_PRECONDITION", "hidden_size: 0 is out of range"),
        (None, "INVALID_ARGUMENT", "the first message must be one"),
    ],
)
def test_a_hello_that_does_not_fit_is_told_why(hello: dict[str, int] | None, code: str, words: str) -> None:
    sound = {"protocol": 1, "oldest_protocol": 1, "vocabulary": VOCABULARY, "hidden_size": HIDDEN}
    first = pb.TargetFrame(round=pb.Round(frame=1))
    if hello is not None:
        first = pb.TargetFrame(hello=pb.TargetHello(replica="t", **(sound | hello)))
    probe = FeatureProbe(DrafterConfig())
    with serving(drafter=probe) as server, grpc.insecure_channel(server.address) as channel:
        replies: Any = DraftingStub(channel).Rounds(iter([first]), timeout=TIMEOUT_S)  # type: ignore[misc]
        with pytest.raises(grpc.RpcError) as error:
            next(replies)
        assert error.value.code().name == code
        assert words in error.value.details()


def test_a_newer_target_is_spoken_to_in_the_common_version() -> None:
    hello = pb.TargetHello(protocol=7, oldest_protocol=1, replica="t", vocabulary=9)
    with serving() as server, grpc.insecure_channel(server.address) as channel:
        replies: Any = DraftingStub(channel).Rounds(iter([pb.TargetFrame(hello=hello)]))  # type: ignore[misc]
        answer = next(replies).hello
        assert (answer.protocol, answer.kind, answer.replica) == (1, "lookup", "drafter-1")


class Slow(FeatureProbe):
    def draft(self, questions: Sequence[Question]) -> Sequence[Proposal]:
        time.sleep(0.05)
        return super().draft(questions)


def test_asks_that_waited_past_their_deadline_are_shed() -> None:
    with (
        serving(drafter=Slow(DrafterConfig())) as server,
        desk_to(member(server.address, "probe"), min_wait_ms=5, max_wait_ms=5, quiet_ms=60000) as desk,
    ):
        desk.open(1, context(), tokens := list(TEXT))
        connect(desk, [1], "probe")
        desk.add_features(1, 0, feature_rows(0, len(TEXT) - 1))

        def one_more() -> bool:
            desk.add_features(1, len(tokens) - 1, feature_rows(len(tokens) - 1, 1))
            tokens.append(1)
            assert draft(desk, 1) is None, "late every time"
            return desk.counters.faults["FAULT_CODE_OVERLOADED"] + desk.counters.stale > 2 and server.metrics.shed > 0

        until(one_more, "shed asks")
        assert desk.counters.missed > 0


def test_an_error_in_the_drafter_is_survived() -> None:
    probe = FeatureProbe(DrafterConfig())
    with serving(drafter=probe) as server, desk_to(member(server.address, "probe")) as desk:
        for sequence in (1, 2):
            desk.open(sequence, context(), list(TEXT))
        connect(desk, [1, 2], "probe")
        for sequence in (1, 2):
            desk.add_features(sequence, 0, feature_rows(0, len(TEXT) - 1))
            assert draft(desk, sequence) is not None
        probe.fail_next = 1
        assert draft(desk, 1) is None
        assert draft(desk, 2) is not None, "it was not in that batch"
        assert draft(desk, 1) is not None, "caught up from the window"
        assert server.metrics.failed_batches == 1
        server.check()
        probe.fail_next = 100

        def fails() -> bool:
            draft(desk, 1)
            return server.metrics.failed_in_a_row == 3

        until(fails, "three failed batches in a row")
        with pytest.raises(RuntimeError, match="failed 3 batches in a row"):
            server.check()


def test_health_says_whether_it_serves() -> None:
    with serving() as server, grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
        for service in ("", "draftfleet.drafting.v1.Drafting"):
            reply = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        server.check()
    with pytest.raises(RuntimeError, match="not running"):
        server.check()


def test_a_stopping_drafter_serves_its_sessions_to_the_end_and_takes_no_new_ones() -> None:
    settings = DrafterConfig(drain_s=TIMEOUT_S)
    with serving(settings) as server, desk_to(member(server.address)) as desk:
        desk.open(1, context(), list(TEXT))
        assert same(first_draft(desk, 1))
        drained = asyncio.run_coroutine_threadsafe(server.drain(), server_loop().loop)
        with grpc.insecure_channel(server.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
            request = health_pb2.HealthCheckRequest(service="")
            serving_status = health_pb2.HealthCheckResponse.SERVING
            until(lambda: stub.Check(request, timeout=TIMEOUT_S).status != serving_status, "not serving")
        with pytest.raises(grpc.RpcError) as error:
            reserve(server.address)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        desk.open(2, context(), list(TEXT))
        assert draft(desk, 2) is None
        assert desk.counters.faults["FAULT_CODE_FULL"] == 1
        assert same(draft(desk, 1))
        assert not drained.done()
        desk.close(1)
        drained.result(TIMEOUT_S)


def test_input_that_a_busy_drafter_cannot_take_is_not_read() -> None:
    limit, sent, message = 1 << 20, 6 << 20, 1 << 18
    gate = threading.Event()

    class Busy(FeatureProbe):
        def draft(self, questions: Sequence[Question]) -> Sequence[Proposal]:
            gate.wait(TIMEOUT_S)
            return super().draft(questions)

    settings = DrafterConfig.model_validate({"wire": {"max_pending_bytes": limit}})
    sizes = {"chunk_bytes": 1 << 16, "feature_window": 1 << 17, "max_message_bytes": message}
    try:
        with (
            serving(settings, Busy(DrafterConfig())) as server,
            desk_to(member(server.address, "probe"), **sizes) as desk,
        ):
            rows = sent // feature_rows(0, 1).nbytes
            desk.open(1, context(), list(TEXT))
            desk.open(2, context(), [1] * (rows + 1))
            connect(desk, [1, 2], "probe")
            desk.add_features(1, 0, feature_rows(0, len(TEXT) - 1))
            desk.ask([(1, 1)])  # keeps the worker busy
            until(lambda: server.metrics.asks == 1, "the ask")
            desk.add_features(2, 0, feature_rows(0, rows))
            until(lambda: server.num_pending_bytes > limit, "a full queue")
            time.sleep(0.3)
            assert server.num_pending_bytes < limit + 2 * message, "one message at most past the bound"
            gate.set()
            assert draft(desk, 2) == Guess((0, (rows - 1) % 100, (rows + 1) % 100), (0.5,) * 3)
    finally:
        gate.set()
