"""Logistic regression over hashed features: Adagrad, features left out at random, averaged weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.requests.task import CLASSES
from services.router.classifier.model import NUM_ROWS, Floats, LinearModel, encode
from services.training.classifier.example import Example

# What is left out when the temperature is found: it must hold for sources that were not learnt from.
CALIBRATION_SOURCES = ("chitchat", "code-files", "reasoning-gym")


@dataclass(frozen=True, slots=True)
class FitConfig:
    """Found on examples of the training sources."""

    epochs: int = 3
    batch: int = 128
    rate: float = 0.5
    dropped: float = 0.4  # share of features left out of each example
    decay: float = 2e-5  # L2
    averaged: float = 0.5  # last share of the steps whose weights are averaged
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Encoded:
    """Sparse rows one after another: row i holds the entries starts_N[i] .. starts_N[i + 1]."""

    starts_N: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    values: npt.NDArray[np.float16]
    labels_N: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels_N)

    def rows(self, chosen: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
        """Row, id and value of every entry of these rows; rows are counted from 0."""
        lengths = self.starts_N[chosen + 1] - self.starts_N[chosen]
        firsts = np.repeat(self.starts_N[chosen] - (np.cumsum(lengths) - lengths), lengths)
        entries = firsts + np.arange(lengths.sum())
        row_of = np.repeat(np.arange(len(chosen)), lengths)
        return row_of, self.ids[entries].astype(np.int64), self.values[entries].astype(np.float32)


def encoded(examples: Sequence[Example]) -> Encoded:
    """As the classifier sees them."""
    features = [encode(example.conversation) for example in examples]
    lengths = np.array([0, *(len(f.ids_F) for f in features)])
    return Encoded(
        np.cumsum(lengths),
        np.concatenate([f.ids_F.astype(np.int32) for f in features]),
        np.concatenate([f.values_F.astype(np.float16) for f in features]),
        np.array([CLASSES.index(example.task_class) for example in examples]),
    )


def fit(examples: Sequence[Example], config: FitConfig, tell: Callable[[str], None]) -> LinearModel:
    """Weights from all examples, temperature from a fit that left out CALIBRATION_SOURCES.

    Raises ValueError where there is nothing to learn from without them, or nothing of them.
    """
    data = encoded(examples)
    tell(f"{len(data)} examples with {len(data.ids)} features")
    is_left_out_N = np.array([example.source.split("/")[0] in CALIBRATION_SOURCES for example in examples])
    left_out, rest = np.flatnonzero(is_left_out_N), np.flatnonzero(~is_left_out_N)
    if not len(left_out) or not len(rest):
        raise ValueError(f"examples: some must be from {', '.join(CALIBRATION_SOURCES)}, and some from other sources")
    tell(f"temperature: learning from {len(rest)}, judged by {len(left_out)}")
    temperature = _temperature(_weights(data, rest, config, tell), data, left_out)
    tell(f"temperature {temperature:.3f}; learning from all")
    return LinearModel(_weights(data, np.arange(len(data)), config, tell), temperature)


def _weights(data: Encoded, used: npt.NDArray[np.int64], config: FitConfig, tell: Callable[[str], None]) -> Floats:
    rng = np.random.default_rng(config.seed)
    num_classes = len(CLASSES)
    weights_BK = np.zeros((NUM_ROWS, num_classes), dtype=np.float32)
    squares_BK = np.full_like(weights_BK, 1e-4)
    sum_BK, num_summed = np.zeros_like(weights_BK), 0
    # A class counts the same however many examples it has.
    class_weights_K = len(used) / (num_classes * np.bincount(data.labels_N[used], minlength=num_classes))
    num_steps = config.epochs * -(-len(used) // config.batch)
    step = 0
    for epoch in range(config.epochs):
        losses = []
        order = rng.permutation(used)
        for first in range(0, len(used), config.batch):
            chosen = order[first : first + config.batch]
            rows, ids, values = data.rows(chosen)
            kept = (rng.random(len(ids)) >= config.dropped) | (ids >= NUM_ROWS - 3)
            rows, ids, values = rows[kept], ids[kept], values[kept] / np.float32(1 - config.dropped)
            labels_N = data.labels_N[chosen]
            errors_NK = _softmax(_scores(weights_BK, rows, ids, values, len(chosen)))
            losses.append(_loss(errors_NK, labels_N))
            errors_NK[np.arange(len(chosen)), labels_N] -= 1
            errors_NK *= (class_weights_K[labels_N] / len(chosen)).astype(np.float32)[:, None]
            gradient_BK = np.stack(
                [np.bincount(ids, values * errors_NK[rows, k], NUM_ROWS) for k in range(num_classes)], axis=1
            ).astype(np.float32)
            gradient_BK += np.float32(config.decay) * weights_BK
            squares_BK += gradient_BK * gradient_BK
            weights_BK -= np.float32(config.rate * (1 - step / num_steps)) * gradient_BK / np.sqrt(squares_BK)
            step += 1
            if step > num_steps * (1 - config.averaged) and step % 10 == 0:
                sum_BK += weights_BK
                num_summed += 1
        tell(f"epoch {epoch + 1} of {config.epochs}: loss {np.mean(losses):.4f}")
    return sum_BK / np.float32(num_summed) if num_summed else weights_BK


def _scores(
    weights_BK: Floats, rows: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], values: Floats, count: int
) -> npt.NDArray[np.float64]:
    return np.stack([np.bincount(rows, values * weights_BK[ids, k], count) for k in range(weights_BK.shape[1])], axis=1)


def _softmax(scores_NK: npt.NDArray[np.float64]) -> Floats:
    powers_NK = np.exp(scores_NK - scores_NK.max(axis=1, keepdims=True))
    shares_NK: Floats = (powers_NK / powers_NK.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares_NK


def _loss(shares_NK: Floats, labels_N: npt.NDArray[np.int64]) -> float:
    return float(-np.log(np.maximum(shares_NK[np.arange(len(labels_N)), labels_N], 1e-9)).mean())


def _temperature(weights_BK: Floats, data: Encoded, used: npt.NDArray[np.int64]) -> float:
    """The one with the least loss among 1/8 .. 8."""
    scores_NK = _scores(weights_BK, *data.rows(used), len(used))
    candidates = np.geomspace(0.125, 8, 61)
    return float(min(candidates, key=lambda temperature: _loss(_softmax(scores_NK / temperature), data.labels_N[used])))
