"""From a model folder to a forward pass whose numerics are known."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, PretrainedConfig

from services.target.kernels.build import Kernels, KernelsUnavailable, load_kernels
from services.target.model.agreement import check_agreement
from services.target.model.attention import Attention, NativeAttention, TorchAttention
from services.target.model.forward import Forward
from services.target.model.lean import LEAN_FAMILIES, LeanDecoder
from services.target.model.precision import Precision
from services.target.model.row_plan import RowPlan
from services.target.model.selfcheck import Verdict, check_exactness
from services.target.model.spec import ModelSpec
from services.target.model.tensors import CheckpointTensors

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    forward: Forward
    spec: ModelSpec
    dtype: torch.dtype
    device: torch.device
    verdict: Verdict
    kernels: Kernels | None  # C kernels for this processor, where there are any

    @property
    def precision(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def load_target(
    folder: Path,
    eos_ids: Iterable[int],
    precision: Precision,
    device: torch.device,
    max_rows: int,
    cache_dir: Path,
) -> LoadedTarget:
    """Loads, proves what it can of row invariance, and picks the precision.

    'auto' on a CPU is bf16 where that is proved bitwise, else fp32; on CUDA it is the checkpoint's own.
    Raises ValueError for a model that cannot be a target.
    """
    config = AutoConfig.from_pretrained(folder)
    spec = ModelSpec.from_config(config, tuple(sorted(eos_ids)))
    for dtype in _dtypes(precision, config, device):
        forward = _build(folder, config, spec, dtype, device, cache_dir)
        verdict = check_exactness(forward, dtype, device, max_rows)
        if verdict.exactness == "bitwise" or precision != "auto" or device.type != "cpu" or dtype == torch.float32:
            break
        log.warning("%s is not bitwise row-invariant here (%s); trying fp32", dtype, verdict.reason)
    _return_free_memory()
    log.info("target: %s, %s (%s)", dtype, verdict.exactness, verdict.reason)
    return LoadedTarget(forward, spec, dtype, device, verdict, _kernels(device, cache_dir))


def _dtypes(precision: Precision, config: PretrainedConfig, device: torch.device) -> tuple[torch.dtype, ...]:
    own = getattr(config, "dtype", None) or torch.float32
    match precision:
        case "bf16":
            return (torch.bfloat16,)
        case "fp32":
            return (torch.float32,)
        case "checkpoint":
            return (own,)
        case _:
            return (torch.bfloat16, torch.float32) if device.type == "cpu" else (own,)


def _build(
    folder: Path, config: PretrainedConfig, spec: ModelSpec, dtype: torch.dtype, device: torch.device, cache_dir: Path
) -> Forward:
    attention = _attention(spec, dtype, device, cache_dir)
    if config.model_type in LEAN_FAMILIES:
        weights = CheckpointTensors(folder, dtype, device)
        return LeanDecoder(config, spec, weights, attention, RowPlan(), _kernels(device, cache_dir))
    return _build_generic(folder, config.model_type, spec, dtype, device, cache_dir, attention)


def _build_generic(
    folder: Path,
    family: str,
    spec: ModelSpec,
    dtype: torch.dtype,
    device: torch.device,
    cache_dir: Path,
    attention: Attention,
) -> Forward:
    # transformers' model classes take 120 MB; the families of the lean decoder do without.
    from transformers import AutoModelForCausalLM

    from services.target.model.generic import ATTENTION_NAME, GenericDecoder

    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=ATTENTION_NAME)
    except KeyError as error:  # of families that look the name up among their own
        raise ValueError(f"target: {family} does not let its attention be replaced ({error})") from error
    nn.Module.to(model, device)
    decoder = GenericDecoder(model, spec, attention, RowPlan(), _kernels(device, cache_dir))
    check_agreement(decoder, dtype, device)
    return decoder


def _attention(spec: ModelSpec, dtype: torch.dtype, device: torch.device, cache_dir: Path) -> Attention:
    if NativeAttention.supports(spec, dtype, device) and _kernels(device, cache_dir) is not None:
        return NativeAttention(spec, dtype, cache_dir)
    return TorchAttention(spec)


def _kernels(device: torch.device, cache_dir: Path) -> Kernels | None:
    if device.type != "cpu":
        return None
    try:
        return load_kernels(cache_dir)
    except KernelsUnavailable as error:
        log.warning("plain torch operations in use, slower and not bitwise: %s", error)
        return None


def _return_free_memory() -> None:
    """Loading and packing leave holes that glibc would keep."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
