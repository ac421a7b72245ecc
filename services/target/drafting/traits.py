"""What a drafter said of itself at hello, checked."""

from __future__ import annotations

from protos import drafting_pb2 as pb
from services.drafters.drafter import Traits
from services.requests.speculation import MAX_DRAFT_TOKENS
from services.target.drafting.interface import FeatureRequest

NEWEST_PROTOCOL = 1
OLDEST_PROTOCOL = 1
_MAX_KIND_LENGTH = 32
_MAX_LAYERS = 64


def request_of(traits: Traits) -> FeatureRequest | None:
    """The hidden states that such a drafter wants, if any."""
    if not traits.feature_layers:
        return None
    return FeatureRequest(traits.feature_layers, traits.features_postnorm, traits.window)


def checked_traits(hello: pb.DrafterHello) -> Traits:
    """Raises ValueError for a hello that this target cannot work with."""
    if not OLDEST_PROTOCOL <= hello.protocol <= NEWEST_PROTOCOL:
        raise ValueError(
            f"protocol: the drafter chose version {hello.protocol}; this target speaks {OLDEST_PROTOCOL} to "
            f"{NEWEST_PROTOCOL}"
        )
    if not 0 < len(hello.kind) <= _MAX_KIND_LENGTH:
        raise ValueError(f"kind: {len(hello.kind)} characters are not allowed; give 1 to {_MAX_KIND_LENGTH}")
    if hello.max_draft < 1:
        raise ValueError("max_draft: 0 is out of range; it must be at least 1")
    layers = tuple(hello.feature_layers)
    if len(layers) > _MAX_LAYERS or any(layer < -1 for layer in layers):
        raise ValueError(f"feature_layers: there must be at most {_MAX_LAYERS}, each at least -1")
    return Traits(
        kind=hello.kind,
        max_draft=min(hello.max_draft, MAX_DRAFT_TOKENS),
        max_position=hello.max_position,
        feature_layers=layers,
        features_postnorm=hello.features_postnorm,
        window=hello.window,
    )
