"""What the target tells a drafter is what the drafter's own checks admit, and it is complete."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from protos import drafting_pb2 as pb
from services.drafters.drafter import Features, Traits
from services.requests.speculation import Speculation
from services.target.drafting.features import FeatureWindow
from services.target.drafting.fill import fill_features, fill_tokens
from services.target.drafting.frames import FramePacker
from services.target.drafting.interface import DraftingContext
from services.target.drafting.state import DraftState
from tests.unit.drafters.support import CALLER, LAYERS, feature_rows, intake

CONTEXT = DraftingContext(1.0, 0, 1.0, 2**64 - 1, Speculation())
ROW_BYTES = feature_rows(0, 1).nbytes


class Held:
    """A session rebuilt from the batches that an intake makes."""

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.desk = intake(traits)
        self.base = 0
        self.tokens: list[int] = []
        self.features: list[Features] = []
        self.max_frame_bytes = 0

    def receive(self, packer: FramePacker) -> None:
        for data in packer.frames():
            self.max_frame_bytes = max(self.max_frame_bytes, len(data))
            message = pb.TargetFrame.FromString(data)
            assert self.desk.admit(CALLER, message.round, 0.0) == []
            batch = self.desk.pending.take(0.0, 0.0)
            for opened in batch.opens:
                assert opened.noise_key == 2**64 - 1
                self.base, self.tokens, self.features = 0, [], []
            for extension in batch.catch_ups:
                self.base, self.tokens, self.features = extension.base, list(extension.tokens), [*extension.features]
            for extension in batch.appends:
                self.tokens += extension.tokens
                self.features += extension.features


steps = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from(["tell", "tell", "skip", "lose", "gap"])), min_size=1, max_size=12
)


@settings(max_examples=150, deadline=None)
@given(steps, st.sampled_from([0, 1, 5, 30]), st.sampled_from([1 << 16, 1 << 20]))
def test_tokens_arrive_whole(steps: list[tuple[int, str]], window: int, limit: int) -> None:
    held = Held(Traits("lookup", 8, 1000, window=window))
    state, tokens = DraftState(), [0]
    for rows, what in steps:
        tokens += [(len(tokens) + i) % 100 for i in range(rows)]
        if what == "lose":
            state.lose()
        if what in ("skip", "gap"):
            continue
        packer = FramePacker(limit, 1)
        if state.held is None:
            packer.open(1, state.restart(), CONTEXT, b"")
        fill_tokens(packer, 1, state, tokens, window)
        packer.ask(1, state.epoch, len(tokens), 4, 0)
        held.receive(packer)
        assert held.tokens == tokens[held.base :]
        assert len(held.tokens) >= min(window or len(tokens), len(tokens))


@settings(max_examples=150, deadline=None)
@given(steps, st.sampled_from([0, 1, 5, 30]), st.integers(1, 40), st.integers(1, 9))
def test_hidden_states_arrive_whole(steps: list[tuple[int, str]], window: int, keep: int, rows_per_chunk: int) -> None:
    traits = Traits("probe", 8, 1000, feature_layers=LAYERS, window=window)
    held, state, features, tokens = Held(traits), DraftState(), FeatureWindow(), [0]
    for rows, what in steps:
        first = len(tokens) - 1
        tokens += [(len(tokens) + i) % 100 for i in range(rows)]
        if what != "gap":
            features.add(first, feature_rows(first, rows), keep)
        if what == "lose":
            state.lose()
        if what in ("skip", "gap"):
            continue
        packer = FramePacker(1 << 16, 1)
        if state.held is None:
            packer.open(1, state.restart(), CONTEXT, b"")
        fill_features(packer, 1, state, tokens, features, traits, rows_per_chunk * ROW_BYTES)
        packer.ask(1, state.epoch, len(tokens), 4, 0)
        held.receive(packer)  # the ask is admitted: hidden states reach the newest token but one
        assert held.tokens == tokens[held.base :]
        position = held.features[0].first
        assert position == held.base
        for chunk in held.features:
            assert chunk.first == position
            assert chunk.shape[0] <= rows_per_chunk
            assert chunk.data == feature_rows(chunk.first, chunk.shape[0]).numpy().tobytes()
            position = chunk.end
        assert position == len(tokens) - 1
        assert position - held.base >= min(window or keep, keep, len(features))


def test_no_frame_passes_the_limit() -> None:
    traits = Traits("probe", 8, 0, feature_layers=LAYERS)
    held, state, features = Held(traits), DraftState(), FeatureWindow()
    rows = (1 << 20) // ROW_BYTES
    features.add(0, feature_rows(0, rows), rows)
    tokens = [1] * (rows + 1)
    packer = FramePacker(1 << 16, 1)
    packer.open(1, state.restart(), CONTEXT, b"")
    fill_features(packer, 1, state, tokens, features, traits, 1 << 15)
    packer.ask(1, state.epoch, len(tokens), 4, 0)
    held.receive(packer)
    assert held.max_frame_bytes <= 1 << 16
    assert held.features[-1].end == rows


def test_no_frame_has_more_entries_than_every_drafter_takes() -> None:
    packer = FramePacker(4 << 20, 7)
    carriers = [packer.ask(sequence, 1, 5, 4, 0) for sequence in range(1200)]
    frames = [pb.TargetFrame.FromString(data).round for data in packer.frames()]
    assert [len(frame.entries) for frame in frames] == [512, 512, 176]
    assert [frame.frame for frame in frames] == [7, 8, 9]
    assert [entry.sequence for frame in frames for entry in frame.entries] == list(range(1200))
    assert (carriers[0], carriers[511], carriers[512], carriers[1199]) == (7, 7, 8, 9)


def test_missing_hidden_states_are_not_made_up() -> None:
    state, features = DraftState(), FeatureWindow()
    state.restart()
    packer = FramePacker(1 << 20, 1)
    traits = Traits("probe", 8, 0, feature_layers=LAYERS)
    assert not fill_features(packer, 1, state, [1, 2, 3], features, traits, 1 << 20)
    assert not packer.frames()
    assert state.held == 0
