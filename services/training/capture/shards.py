"""Captured documents on disk.

A shard is a safetensors file over N rows, one a token, documents one after another:
    starts [documents + 1] int64, groups [documents] int64
    tokens [N] int32, supervised [N] bool: the token is one to predict
    hidden [N, D]      the target's final hidden state before its final norm
    features [N, T, D] outputs of the captured layers; absent when T is 0
    top_ids [N, K] int32, top_logprobs [N, K] fp32: the teacher's likeliest next tokens, exact
                       log-probabilities over the whole vocabulary; the mass that they lack is
                       1 - sum exp; -inf in rows after which no token is supervised
"""

from __future__ import annotations

import bisect
import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

INFO_FILE = "captured.json"


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """Of a folder of shards: the target, and which outputs were captured."""

    target: str
    layers: tuple[int, ...]
    hidden_size: int
    vocabulary: int
    top_tokens: int


@dataclass(frozen=True, slots=True)
class Captured:
    """One document; rows as in a shard."""

    tokens_S: torch.Tensor
    supervised_S: torch.Tensor
    hidden_SD: torch.Tensor
    features_STD: torch.Tensor | None
    top_ids_SK: torch.Tensor
    top_logprobs_SK: torch.Tensor
    group: int

    def __len__(self) -> int:
        return self.tokens_S.shape[0]


def write_info(folder: Path, info: CaptureInfo) -> None:
    """Raises ValueError when the folder holds captures of another target or other layers."""
    path = folder / INFO_FILE
    if path.exists():
        known = read_info(folder)
        if known != info:
            raise ValueError(f"{folder}: it holds captures made as {known}, now wanted as {info}; take another folder")
        return
    path.write_text(json.dumps(asdict(info), indent=2) + "\n")


def read_info(folder: Path) -> CaptureInfo:
    """Raises ValueError when there is none."""
    path = folder / INFO_FILE
    if not path.is_file():
        raise ValueError(f"{folder}: nothing has been captured there; run `draftfleet train capture` first")
    fields = json.loads(path.read_text())
    return CaptureInfo(**{**fields, "layers": tuple(fields["layers"])})


def write_shard(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """The file appears whole or not at all."""
    scratch = path.with_suffix(".partial")
    save_file(tensors, scratch)
    scratch.replace(path)


class CapturedDocuments:
    """All documents of a folder by index, read from disk when they are asked for."""

    def __init__(self, folder: Path, *, with_features: bool) -> None:
        """Raises ValueError when there are none, or none with features though they are wanted."""
        self.info = read_info(folder)
        self.with_features = with_features
        if with_features and not self.info.layers:
            raise ValueError(f"{folder}: it was captured without feature_layers; DFly needs them")
        self.paths = sorted(folder.glob("captured-*.safetensors"))
        if not self.paths:
            raise ValueError(f"{folder}: it has no captured shards")
        self._starts: list[list[int]] = []
        self.groups: list[int] = []
        for path in self.paths:
            with safe_open(path, framework="pt") as file:
                self._starts.append(file.get_tensor("starts").tolist())
                self.groups.extend(file.get_tensor("groups").tolist())
        self._firsts = [0, *itertools.accumulate(len(starts) - 1 for starts in self._starts)]
        self.lengths = [b - a for starts in self._starts for a, b in itertools.pairwise(starts)]

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, index: int) -> Captured:
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard = bisect.bisect_right(self._firsts, index) - 1
        local = index - self._firsts[shard]
        start, end = self._starts[shard][local : local + 2]
        with safe_open(self.paths[shard], framework="pt") as file:
            read = {name: file.get_slice(name)[start:end] for name in self._names()}
        return Captured(
            read["tokens"].long(),
            read["supervised"],
            read["hidden"],
            read.get("features"),
            read["top_ids"].long(),
            read["top_logprobs"],
            self.groups[index],
        )

    def _names(self) -> list[str]:
        names = ["tokens", "supervised", "hidden", "top_ids", "top_logprobs"]
        return [*names, "features"] if self.with_features else names
