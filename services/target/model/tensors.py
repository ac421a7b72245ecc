"""The tensors of a checkpoint folder, read one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open


class CheckpointTensors(Mapping[str, torch.Tensor]):
    """Reads a tensor when it is asked for: a model larger than what is left of memory can still be packed."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device) -> None:
        """Raises ValueError when the folder has no safetensors files."""
        self._dtype = dtype
        self._device = device
        self._file_of: dict[str, Path] = {}
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ValueError(f"target: {folder} has no safetensors files")
        for file in files:
            with safe_open(file, framework="pt") as tensors:
                self._file_of.update(dict.fromkeys(tensors.keys(), file))

    def __getitem__(self, name: str) -> torch.Tensor:
        with safe_open(self._file_of[name], framework="pt", device=str(self._device)) as tensors:
            # A copy: a view would keep the whole file mapped, and resident.
            tensor: torch.Tensor = tensors.get_tensor(name).to(self._dtype, copy=True)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __len__(self) -> int:
        return len(self._file_of)
