"""The linear model: sums of weights, then a softmax."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from services.requests.task import CLASSES
from services.router.classifier.conversation import Conversation
from services.router.classifier.features import NUM_BUCKETS, Features, features_of

FORMAT = 1  # rises with any change of features
BACKGROUND = np.float32(0.35)  # weight of what came before the last turn
_MAX_EARLIER = 4  # turns; more count as so many

Floats = npt.NDArray[np.float32]

# Rows of the weights after the hashed ones.
_BIAS, _HAS_SYSTEM, _EARLIER = NUM_BUCKETS, NUM_BUCKETS + 1, NUM_BUCKETS + 2
NUM_ROWS = NUM_BUCKETS + 3


class WeightsError(ValueError):
    """The weights file is missing, damaged or for other features."""


def encode(conversation: Conversation) -> Features:
    """One sparse vector, ids below NUM_ROWS."""
    last = features_of(conversation.last)
    ids, values = [last.ids_F], [last.values_F]
    if conversation.background:
        background = features_of(conversation.background)
        ids.append(background.ids_F)
        values.append(background.values_F * BACKGROUND)
    ids.append(np.array([_BIAS, _HAS_SYSTEM, _EARLIER]))
    earlier = min(conversation.num_earlier, _MAX_EARLIER) / _MAX_EARLIER
    values.append(np.array([1.0, conversation.has_system, earlier], dtype=np.float32))
    return Features(np.concatenate(ids), np.concatenate(values))


@dataclass(frozen=True, slots=True)
class LinearModel:
    """`weights_BK`: [NUM_ROWS, classes]; `temperature` makes the softmax a probability that can be relied on."""

    weights_BK: Floats
    temperature: float

    def probabilities_K(self, features: Features) -> Floats:
        """In the order of CLASSES."""
        scores_K = features.values_F @ self.weights_BK[features.ids_F] / np.float32(self.temperature)
        powers_K = np.exp(scores_K - scores_K.max())
        shares_K: Floats = powers_K / powers_K.sum()
        return shares_K


def save(model: LinearModel, path: Path, provenance: dict[str, object]) -> None:
    """fp16, with what it was trained on."""
    metadata = {
        "format": str(FORMAT),
        "classes": ",".join(CLASSES),
        "temperature": repr(model.temperature),
        "provenance": json.dumps(provenance, sort_keys=True),
    }
    save_file({"weights": model.weights_BK.astype(np.float16)}, path, metadata)
    path.chmod(0o644)  # it is written for its owner alone, and a package is read by others


def load(path: Path) -> LinearModel:
    """Raises WeightsError."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata, weights_BK = file.metadata() or {}, file.get_tensor("weights")
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: the classifier's weights cannot be read ({error})") from error
    known = (metadata.get("format"), metadata.get("classes"), weights_BK.shape)
    wanted = (str(FORMAT), ",".join(CLASSES), (NUM_ROWS, len(CLASSES)))
    if known != wanted:
        raise WeightsError(f"{path}: format, classes and shape are {known}; they must be {wanted}")
    temperature = float(metadata["temperature"])
    if not temperature > 0 or not np.isfinite(weights_BK).all():
        raise WeightsError(f"{path}: weights must be finite, and the temperature ({temperature}) above 0")
    return LinearModel(weights_BK.astype(np.float32), temperature)
