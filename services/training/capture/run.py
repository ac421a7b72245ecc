"""Prefill passes of the target over documents, their hidden states written to shards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from services.target.kv.pool import KVPool
from services.target.model.layout import lay_out
from services.target.model.loader import LoadedTarget
from services.target.model.spec import BLOCK
from services.target.model.step import Segment
from services.training.capture.config import CaptureConfig
from services.training.capture.documents import Document, in_groups
from services.training.capture.shards import CaptureInfo, write_info, write_shard

log = logging.getLogger(__name__)

_FINAL = -1


@dataclass(frozen=True, slots=True)
class CaptureProgress:
    """Tokens on disk, shards of before the start included."""

    num_tokens: int
    num_documents: int


class Capture:
    def __init__(
        self, target: LoadedTarget, name: str, layers: tuple[int, ...], config: CaptureConfig, folder: Path
    ) -> None:
        """`layers` are outputs beside the final one, `name` what the target is called."""
        self._target, self._config, self._folder, self._layers = target, config, folder, layers
        spec = target.spec
        folder.mkdir(parents=True, exist_ok=True)
        write_info(folder, CaptureInfo(name, layers, spec.hidden, spec.vocabulary, config.top_tokens))
        # As many blocks as rows always suffice; memory is taken only for those that are used.
        self._pool = KVPool(spec, max(config.pass_rows, config.max_document), target.dtype, target.device)
        self._group = spec.heads // spec.kv_heads

    def run(
        self,
        shards: Iterable[tuple[str, list[Document]]],
        on_progress: Callable[[CaptureProgress], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        """Captures named groups of documents, each into a shard, except those that are there.

        Stops at `max_disk_mb`, and before the next shard once `is_stopped`.
        """
        num_tokens = num_documents = 0
        for name, documents in shards:
            path = self._folder / f"captured-{name}.safetensors"
            if not path.exists():
                if is_stopped():
                    return
                if self._num_bytes() >= self._config.max_disk_mb << 20:
                    log.warning("capture stops: %s has reached max_disk_mb %d", self._folder, self._config.max_disk_mb)
                    return
                write_shard(path, self._capture(documents))
            num_tokens += sum(len(d.tokens) for d in documents)
            num_documents += len(documents)
            on_progress(CaptureProgress(num_tokens, num_documents))

    def _num_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("captured-*.safetensors"))

    @torch.inference_mode()
    def _capture(self, documents: list[Document]) -> dict[str, torch.Tensor]:
        parts: list[dict[str, torch.Tensor]] = []
        for group in in_groups(documents, self._config.pass_rows):
            parts.append(self._pass(group))
        tensors = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        lengths = torch.tensor([0, *(len(d.tokens) for d in documents)])
        tensors["starts"] = lengths.cumsum(0)
        tensors["groups"] = torch.tensor([d.group for d in documents])
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    def _pass(self, documents: list[Document]) -> dict[str, torch.Tensor]:
        segments: list[Segment] = []
        next_block = 0
        wanted: list[int] = []
        supervised: list[bool] = []
        for document in documents:
            count = len(document.tokens)
            blocks = range(next_block, next_block + -(-count // BLOCK))
            next_block = blocks.stop
            # The distribution of a supervised token is found one position before it.
            rows = range(max(document.first_supervised - 1, 0), count - 1)
            wanted.extend(len(supervised) + row for row in rows)
            supervised.extend(i >= max(document.first_supervised, 1) for i in range(count))
            segments.append(Segment(document.tokens, 0, blocks, rows))
        step = lay_out(segments, self._group, self._target.device, (*self._layers, _FINAL))
        result = self._target.forward.forward(step, self._pool)
        assert result.features_NTD is not None
        top_logprobs, top_ids = self._top(result.logits_QV)
        num_rows, top = step.tokens_N.shape[0], self._config.top_tokens
        all_ids = torch.zeros(num_rows, top, dtype=torch.int32)
        all_logprobs = torch.full((num_rows, top), -torch.inf)
        all_ids[wanted], all_logprobs[wanted] = top_ids.cpu().int(), top_logprobs.cpu()
        features = result.features_NTD.to("cpu", torch.bfloat16)
        tensors = {
            "tokens": step.tokens_N.cpu().int(),
            "supervised": torch.tensor(supervised),
            "hidden": features[:, -1],
            "top_ids": all_ids,
            "top_logprobs": all_logprobs,
        }
        return {**tensors, "features": features[:, :-1]} if self._layers else tensors

    def _top(self, logits_QV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, ids = logits_QV.topk(self._config.top_tokens)
        return values - logits_QV.logsumexp(-1, keepdim=True), ids
