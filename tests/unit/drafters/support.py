"""Builders for the tests of drafters."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from protos import drafting_pb2 as pb
from services.drafters.config import DrafterConfig, SessionLimits
from services.drafters.drafter import Extension, Features, Opening, Proposal, Question, Traits
from services.drafters.intake import Caller, Intake
from services.drafters.metrics import DrafterMetrics
from services.drafters.sessions import SessionTable

HIDDEN = 8
LAYERS = (1, -1)
CALLER = Caller(stream=1, replica="target-1", vocabulary=100, hidden_size=HIDDEN)
PLAIN = Traits("lookup", max_draft=8, max_position=1000)
HUNGRY = Traits("probe", max_draft=8, max_position=1000, feature_layers=LAYERS, window=0)
TORCH_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def intake(traits: Traits = PLAIN, **limits: float) -> Intake:
    table = SessionTable(SessionLimits.model_validate(limits))
    return Intake(traits, table, DrafterMetrics())


def opening(sequence: int = 1, epoch: int = 1, lease: bytes = b"") -> pb.Entry:
    wanted = pb.Open(lease=lease, temperature=0.5, noise_key=3, top_k=4, top_p=0.5)
    return pb.Entry(sequence=sequence, epoch=epoch, open=wanted)


def append(base: int, tokens: Sequence[int], sequence: int = 1, epoch: int = 1) -> pb.Entry:
    return pb.Entry(sequence=sequence, epoch=epoch, base=base, append=pb.Append(tokens=tokens))


def catch_up(base: int, tokens: Sequence[int], sequence: int = 1, epoch: int = 1) -> pb.Entry:
    return pb.Entry(sequence=sequence, epoch=epoch, base=base, catch_up=pb.CatchUp(tokens=tokens))


def ask(base: int, max_draft: int = 4, sequence: int = 1, epoch: int = 1, deadline_us: int = 0) -> pb.Entry:
    return pb.Entry(sequence=sequence, epoch=epoch, base=base, ask=pb.Ask(max_draft=max_draft, deadline_us=deadline_us))


def with_features(entry: pb.Entry, first: int, rows: int, dtype: str = "float32") -> pb.Entry:
    message = entry.append if entry.HasField("append") else entry.catch_up
    item = 4 if dtype == "float32" else 2
    message.first_feature = first
    message.features.CopyFrom(
        pb.Tensor(dtype=dtype, shape=(rows, len(LAYERS), HIDDEN), data=bytes(rows * len(LAYERS) * HIDDEN * item))
    )
    return entry


def frame(*entries: pb.Entry, number: int = 1) -> pb.Round:
    return pb.Round(frame=number, entries=entries)


def feature_rows(first: int, rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[rows, layers, hidden] that tell position, layer and column, exactly in every dtype."""
    position = torch.arange(first, first + rows).view(-1, 1, 1) % 16
    layer = torch.arange(len(LAYERS)).view(1, -1, 1)
    column = torch.arange(HIDDEN).view(1, 1, -1)
    return ((position * len(LAYERS) + layer) * HIDDEN + column).to(dtype)  # below 256: exact in bfloat16


class FeatureProbe:
    """A drafter for tests that takes hidden states, and drafts what proves that it got the right ones.

    Its draft is (position of the oldest hidden state, of the newest, number of tokens held), each modulo 100,
    or no tokens at all where a value is not what `feature_rows` makes of its position.
    """

    def __init__(self, config: DrafterConfig, *, window: int = 0, dtype: str = "float32") -> None:
        self.traits = Traits(
            "probe", config.max_draft, config.sessions.max_positions, feature_layers=LAYERS, window=window
        )
        self._dtype = dtype
        self.held: dict[int, tuple[int, list[int], list[Features]]] = {}  # base, tokens, hidden states
        self.max_chunk_bytes = 0
        self.threads: set[int] = set()
        self.batch_sizes: list[int] = []
        self.fail_next = 0

    def open(self, openings: Sequence[Opening]) -> None:
        for opening in openings:
            self.held[opening.session] = (0, [], [])

    def append(self, extensions: Sequence[Extension]) -> None:
        for extension in extensions:
            base, tokens, features = self.held[extension.session]
            assert extension.base == base + len(tokens)
            tokens.extend(extension.tokens)
            self._take(features, extension)

    def catch_up(self, extensions: Sequence[Extension]) -> None:
        for extension in extensions:
            features: list[Features] = []
            self.held[extension.session] = (extension.base, list(extension.tokens), features)
            self._take(features, extension)

    def draft(self, questions: Sequence[Question]) -> Sequence[Proposal]:
        self.threads.add(threading.get_ident())
        self.batch_sizes.append(len(questions))
        if self.fail_next:
            self.fail_next -= 1
            raise RuntimeError("made to fail")
        return [self._answer(question) for question in questions]

    def close(self, sessions: Sequence[int]) -> None:
        for session in sessions:
            self.held.pop(session, None)

    def _take(self, features: list[Features], extension: Extension) -> None:
        for chunk in extension.features:
            self.max_chunk_bytes = max(self.max_chunk_bytes, len(chunk.data))
        features.extend(extension.features)

    def _answer(self, question: Question) -> Proposal:
        base, tokens, chunks = self.held[question.session]
        assert question.base == base + len(tokens)
        position = chunks[0].first
        for chunk in chunks:
            assert chunk.dtype == self._dtype
            values = torch.frombuffer(bytearray(chunk.data), dtype=TORCH_DTYPES[chunk.dtype]).view(chunk.shape)
            expected = feature_rows(chunk.first, chunk.shape[0], TORCH_DTYPES[chunk.dtype])
            if chunk.first != position or not torch.equal(values, expected):
                return Proposal()
            position = chunk.end
        draft = (chunks[0].first % 100, (position - 1) % 100, len(tokens) % 100)[: question.max_draft]
        return Proposal(draft, (0.5,) * len(draft))
