"""The drafter kinds. A new kind is a folder and a line here."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from services.drafters.config import DrafterConfig
from services.drafters.drafter import Drafter
from services.drafters.neural.shipped import shipped_weights

if TYPE_CHECKING:
    from services.drafters.neural.frozen import TargetFolder
    from services.drafters.neural.packed import Machine

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """The target that drafts are for."""

    folder: Path
    name: str
    cache_dir: Path  # where compiled kernels are kept


class Build(Protocol):
    def __call__(self, config: DrafterConfig, target: Target | None = None) -> Drafter:
        """Raises ValueError for settings or weights that do not fit; kinds with weights need the target."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a drafter kind is built. `build` imports what it needs itself, so that a light
    kind never pays for torch."""

    build: Build
    has_weights: bool


def _lookup(config: DrafterConfig, target: Target | None = None) -> Drafter:
    from services.drafters.lookup.runtime import LookupDrafter

    return LookupDrafter(config.lookup, max_draft=config.max_draft, max_position=config.sessions.max_positions)


def _mtp(config: DrafterConfig, target: Target | None = None) -> Drafter:
    from services.drafters.mtp.checkpoint import load_mtp
    from services.drafters.mtp.runtime import MtpDrafter

    weights, folder, machine = _prepare("mtp", config, target)
    model = load_mtp(weights, folder, machine.dtype)
    return MtpDrafter(
        model, machine, config.neural, max_draft=config.max_draft, max_sessions=config.sessions.max_sessions
    )


def _dfly(config: DrafterConfig, target: Target | None = None) -> Drafter:
    from services.drafters.dfly.checkpoint import load_dfly
    from services.drafters.dfly.runtime import DflyDrafter

    weights, folder, machine = _prepare("dfly", config, target)
    model = load_dfly(weights, folder, machine.dtype)
    return DflyDrafter(
        model, machine, config.neural, max_draft=config.max_draft, max_sessions=config.sessions.max_sessions
    )


def _prepare(kind: str, config: DrafterConfig, target: Target | None) -> tuple[Path, TargetFolder, Machine]:
    from services.drafters.neural.frozen import TargetFolder
    from services.drafters.neural.packed import Machine

    if target is None:
        raise ValueError(f"kind: {kind} needs a target")
    weights = config.neural.weights or shipped_weights(kind, target.name, target.folder)
    if weights is None:
        raise ValueError(f"weights: none are shipped for {target.name}; name a checkpoint folder of kind {kind}")
    _log.info("%s drafts for %s with the weights in %s", kind, target.name, weights)
    return weights, TargetFolder(target.folder), Machine.choose(config.neural, target.cache_dir)


KINDS: dict[str, Kind] = {
    "lookup": Kind(_lookup, has_weights=False),
    "mtp": Kind(_mtp, has_weights=True),
    "dfly": Kind(_dfly, has_weights=True),
}


def kind_of(config: DrafterConfig) -> Kind:
    """Raises ValueError for a kind that is not here."""
    kind = KINDS.get(config.kind)
    if kind is None:
        raise ValueError(f"kind: {config.kind!r} is not known; it must be one of {', '.join(KINDS)}")
    return kind
