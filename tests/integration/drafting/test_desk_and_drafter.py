"""The target's desk and a real drafter server over real gRPC, in one process."""

from __future__ import annotations

import contextlib
import random
import threading

import pytest
import torch

from services.drafters.config import DrafterConfig
from services.drafters.lookup.config import LookupConfig
from services.drafters.lookup.index import SuffixIndex
from services.target.drafting.interface import FeatureRequest, Guess
from tests.integration.drafting.support import (
    TEXT,
    connect,
    context,
    desk_to,
    draft,
    first_draft,
    member,
    serving,
    until,
)
from tests.unit.drafters.support import LAYERS, FeatureProbe, feature_rows


def expected(tokens: list[int], count: int = 4) -> Guess | None:
    index = SuffixIndex(LookupConfig())
    index.extend(tokens)
    draft_tokens, probabilities = index.propose(count)
    return Guess(draft_tokens, tuple(pytest.approx(p, abs=1e-6) for p in probabilities)) if draft_tokens else None


def test_lookup_over_grpc_drafts_what_local_lookup_would() -> None:
    source = random.Random(1)
    with serving() as server, desk_to(member(server.address)) as desk:
        texts = {sequence: [source.randrange(3) for _ in range(30)] for sequence in range(1, 9)}
        for sequence, tokens in texts.items():
            desk.open(sequence, context(), tokens)
        connect(desk, list(texts))
        for _ in range(30):
            desk.ask([(sequence, 4) for sequence in texts])
            for sequence, tokens in texts.items():
                while desk.is_pending(sequence):
                    desk.wait(0.05)
                assert desk.take(sequence) == expected(tokens)
                tokens += [source.randrange(3) for _ in range(source.randrange(1, 6))]
        assert desk.counters.catch_ups == desk.counters.opens == len(texts)
        assert desk.counters.drafts == desk.counters.asks == 30 * len(texts)
        assert not server.metrics.faults
        for sequence in texts:
            desk.close(sequence)
        until(lambda: server.num_sessions == 0, "closed sessions at the drafter")


def test_without_a_drafter_lookup_runs_here_or_not_at_all() -> None:
    with desk_to(local_lookup=True) as desk:
        desk.open(1, context(), tokens := list(TEXT))
        assert draft(desk, 1) == expected(tokens)
        assert desk.drafter_of(1) == "lookup"
        tokens += [5, 6]
        assert draft(desk, 1) == expected(tokens)
        desk.open(2, context("none"), list(TEXT))
        assert draft(desk, 2) is None
        assert desk.drafter_of(2) == "none"
        desk.open(3, context(max_draft_tokens=2), list(TEXT))
        assert draft(desk, 3) == expected(list(TEXT), 2)
    with desk_to() as desk:
        desk.open(1, context(), list(TEXT))
        assert draft(desk, 1) is None
        assert desk.drafter_of(1) == "none"
        assert desk.counters.skipped == 1


def test_rounds_of_length_zero_send_nothing_and_then_one_message_catches_up() -> None:
    with serving() as server, desk_to(member(server.address)) as desk:
        desk.open(1, context(), tokens := list(TEXT))
        first_draft(desk, 1)
        entries = server.metrics.entries
        for token in (5, 6, 7):
            tokens.append(token)
            assert draft(desk, 1, count=0) is None
        assert server.metrics.entries == entries
        assert draft(desk, 1) == expected(tokens)
        assert server.metrics.entries == entries + 2  # the three tokens, and the ask


def test_one_drafter_batches_over_sequences_and_targets_off_its_event_loop() -> None:
    probe = FeatureProbe(DrafterConfig())
    with serving(DrafterConfig(batch_window_ms=20), probe) as server, contextlib.ExitStack() as stack:
        desks = [stack.enter_context(desk_to(member(server.address, "probe"), replica=f"target-{i}")) for i in range(2)]
        for desk in desks:
            for sequence in (1, 2, 3):
                desk.open(sequence, context(), list(TEXT))
            connect(desk, [1, 2, 3], "probe")
            for sequence in (1, 2, 3):
                desk.add_features(sequence, 0, feature_rows(0, len(TEXT) - 1))
        for desk in desks:
            desk.ask([(1, 4), (2, 4), (3, 4)])
        for desk in desks:
            for sequence in (1, 2, 3):
                while desk.is_pending(sequence):
                    desk.wait(0.05)
                assert desk.take(sequence) == Guess((0, len(TEXT) - 2, len(TEXT)), (0.5,) * 3)
        assert max(probe.batch_sizes) > 3, "sequences of both targets in one batch"
        assert len(probe.threads) == 1
        assert threading.get_ident() not in probe.threads


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_hidden_states_travel_in_chunks_below_the_message_limit(dtype: str) -> None:
    probe = FeatureProbe(DrafterConfig(), dtype=dtype)
    torch_dtype = getattr(torch, dtype)
    config = DrafterConfig.model_validate({"wire": {"max_message_bytes": 1 << 16}})
    limits = {"max_message_bytes": 1 << 16, "chunk_bytes": 1 << 12, "feature_window": 4096}
    with serving(config, probe) as server, desk_to(member(server.address, "probe"), **limits) as desk:
        tokens = [i % 50 for i in range(3001)]
        desk.open(1, context(), tokens)
        connect(desk, [1], "probe")
        assert desk.features_wanted(1) == FeatureRequest(LAYERS, False, 0)
        for first in range(0, 3000, 500):  # as a chunked prefill does
            desk.add_features(1, first, feature_rows(first, 500, torch_dtype))
        until(lambda: server.metrics.entries > 20, "the prompt's hidden states arrive while it is being computed")
        assert draft(desk, 1) == Guess((0, 2999 % 100, 3001 % 100), (0.5,) * 3)
        tokens += [7, 8, 9]
        desk.add_features(1, 3000, feature_rows(3000, 3, torch_dtype))
        assert draft(desk, 1) == Guess((0, 3002 % 100, 3004 % 100), (0.5,) * 3)
        assert 0 < probe.max_chunk_bytes <= 1 << 12
        assert desk.counters.catch_ups == 1
        assert not server.metrics.faults


def test_without_hidden_states_a_drafter_that_wants_them_is_not_asked() -> None:
    with serving(drafter=FeatureProbe(DrafterConfig())) as server, desk_to(member(server.address, "probe")) as desk:
        desk.open(1, context(), tokens := list(TEXT))
        connect(desk, [1], "probe")
        desk.add_features(1, 0, feature_rows(0, len(TEXT) - 1))
        assert draft(desk, 1) is not None
        tokens += [5, 6]  # a step whose hidden states never came
        assert draft(desk, 1) is None
        assert desk.counters.skipped == 1
        desk.add_features(1, len(tokens), feature_rows(len(tokens), 3))
        tokens += [7, 8, 1, 2]
        assert draft(desk, 1) == Guess((14, 16, 4), (0.5,) * 3), "a gap: caught up from the rows after it"
        assert not server.metrics.faults


def test_a_small_window_is_all_that_a_drafter_is_sent() -> None:
    probe = FeatureProbe(DrafterConfig(), window=16)
    with serving(drafter=probe) as server, desk_to(member(server.address, "probe"), chunk_bytes=1024) as desk:
        desk.open(1, context(), [1] * 501)
        connect(desk, [1], "probe")
        for first in range(0, 500, 100):
            desk.add_features(1, first, feature_rows(first, 100))
        assert draft(desk, 1) == Guess((484 % 100, 499 % 100, 17), (0.5,) * 3)
        assert server.metrics.entries < 6, "old rows are not sent"
