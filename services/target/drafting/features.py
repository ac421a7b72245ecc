"""The newest hidden states of a sequence, kept to seed a drafter that lost them."""

from __future__ import annotations

from collections import deque

import torch

DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}


class FeatureWindow:
    """Rows of consecutive positions [first, end), at most so many, on the CPU."""

    def __init__(self) -> None:
        self.first = 0
        self.end = 0
        self._chunks: deque[tuple[int, torch.Tensor]] = deque()  # position of the first row, [rows, layers, hidden]

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def num_bytes(self) -> int:
        return sum(chunk.nbytes for _, chunk in self._chunks)

    def add(self, first: int, features_RTD: torch.Tensor, limit: int) -> None:
        """Appends rows from position `first` on and keeps the newest `limit`.

        Rows that overlap replace what was there; after a gap only the new rows are
        kept. Raises ValueError for a dtype or shape that no drafter takes.
        """
        if features_RTD.dim() != 3 or features_RTD.dtype not in DTYPES:
            raise ValueError(
                f"features: {tuple(features_RTD.shape)} of {features_RTD.dtype} cannot be sent; they must be "
                f"[rows, layers, hidden] of {', '.join(DTYPES.values())}"
            )
        rows = features_RTD.shape[0]
        if rows == 0:
            return
        if len(self) and (features_RTD.shape[1:] != self._chunks[0][1].shape[1:] or first > self.end):
            self.clear()
        self.truncate(first)
        # A copy: the rows are often a view of a large or reused buffer.
        kept = features_RTD[-limit:].detach().to(device="cpu", copy=True).contiguous()
        kept_first = first + rows - kept.shape[0]
        if kept_first > self.end or not len(self):
            self.clear()
            self.first = kept_first
        self._chunks.append((kept_first, kept))
        self.end = first + rows
        self._trim(limit)

    def truncate(self, end: int) -> None:
        """Forgets positions from `end` on."""
        if end >= self.end:
            return
        if end <= self.first:
            self.clear()
            return
        while self._chunks[-1][0] >= end:
            self._chunks.pop()
        first, chunk = self._chunks[-1]
        if first + chunk.shape[0] > end:
            self._chunks[-1] = (first, chunk[: end - first])
        self.end = end

    def clear(self) -> None:
        self._chunks.clear()
        self.first = self.end = 0

    def rows(self, first: int, end: int) -> torch.Tensor:
        """Positions [first, end), which must be held: [rows, layers, hidden]."""
        assert self.first <= first < end <= self.end, "rows outside the window"
        parts = []
        for start, chunk in self._chunks:
            low, high = max(first - start, 0), min(end - start, chunk.shape[0])
            if low < high:
                parts.append(chunk[low:high])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _trim(self, limit: int) -> None:
        self.first = max(self.first, self.end - limit)
        while self._chunks[0][0] + self._chunks[0][1].shape[0] <= self.first:
            self._chunks.popleft()


def row_bytes(features_RTD: torch.Tensor) -> int:
    return features_RTD[0].numel() * features_RTD.element_size()


def to_bytes(features_RTD: torch.Tensor) -> bytes:
    """Little endian, C order."""
    return features_RTD.contiguous().view(torch.uint8).numpy().tobytes()
