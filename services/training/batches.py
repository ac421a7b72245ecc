"""Packs captured documents into rows, in an order that a seed and a counter decide."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from services.training.capture.shards import CapturedDocuments

PADDING = -2  # document number of rows' ends
_AHEAD = 3  # batches read before they are needed


@dataclass(frozen=True, slots=True)
class Batch:
    """B rows of S tokens; the teacher's tokens as draft ids, -1 where they cannot be drafted.

    `labels_BS` are the tokens as draft ids. Documents are numbered within the batch.
    """

    tokens_BS: torch.Tensor
    labels_BS: torch.Tensor
    documents_BS: torch.Tensor
    positions_BS: torch.Tensor
    supervised_BS: torch.Tensor
    hidden_BSD: torch.Tensor
    features_BSTD: torch.Tensor | None
    top_ids_BSK: torch.Tensor
    top_logprobs_BSK: torch.Tensor
    num_tokens: int

    def to(self, device: torch.device) -> Batch:
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=True)
            for name in self.__slots__
            if isinstance(value := getattr(self, name), torch.Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where reading stands: the next document of an epoch's order."""

    epoch: int = 0
    next: int = 0


class Packer:
    """Batches of `rows` rows; with several workers each takes its own share of the documents."""

    def __init__(
        self,
        documents: CapturedDocuments,
        chosen: Sequence[int],
        d2t: torch.Tensor,
        rows: int,
        row_tokens: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        shares: Sequence[float] = (),
    ) -> None:
        """`shares`: how much of each group of documents an epoch has, by group; absent: all of all.

        Raises ValueError when nothing would be read.
        """
        self._documents = documents
        self._shares = shares
        self._chosen = [index for index in list(chosen)[rank::world] if self._share(index) > 0]
        self._rows, self._row_tokens, self._seed = rows, row_tokens, seed
        self._t2d = torch.full((documents.info.vocabulary,), -1)
        self._t2d[d2t] = torch.arange(d2t.numel())
        if not self._chosen:
            raise ValueError("captured documents: none for this worker; capture more, or read more classes")
        self._orders: dict[int, list[int]] = {}

    def take(self, cursor: Cursor) -> tuple[Batch, Cursor]:
        """The batch at a cursor, and the cursor after it."""
        # Another worker's cursor, after a resume, may lie past the end of a share that is one shorter.
        cursor = Cursor(cursor.epoch, min(cursor.next, len(self._order(cursor.epoch)) - 1))
        rows = _Rows(self._rows, self._row_tokens)
        while rows.add(document := self._order(cursor.epoch)[cursor.next], self._documents.lengths[document]):
            at = cursor.next + 1
            is_over = at == len(self._order(cursor.epoch))
            cursor = Cursor(cursor.epoch + 1, 0) if is_over else Cursor(cursor.epoch, at)
        return self._pack(rows.members), cursor

    def once(self) -> Iterator[Batch]:
        """The same documents each time, unshuffled; for evaluation."""
        rows = _Rows(self._rows, self._row_tokens)
        for document in sorted(self._order(0)):
            if not rows.add(document, self._documents.lengths[document]):
                yield self._pack(rows.members)
                rows = _Rows(self._rows, self._row_tokens)
                rows.add(document, self._documents.lengths[document])
        yield self._pack(rows.members)

    def _order(self, epoch: int) -> list[int]:
        if epoch not in self._orders:
            rng = random.Random(f"{self._seed}/{epoch}")
            order = list(self._chosen)
            rng.shuffle(order)
            order = [index for index in order if rng.random() < self._share(index)] or order
            self._orders = {epoch: order}
        return self._orders[epoch]

    def _share(self, index: int) -> float:
        return self._shares[self._documents.groups[index]] if self._shares else 1.0

    def _pack(self, chosen: list[list[int]]) -> Batch:
        rows = [[self._documents[document] for document in row] for row in chosen]
        size, info = self._row_tokens, self._documents.info
        shape = (len(rows), size)
        tokens, documents = torch.zeros(shape, dtype=torch.int64), torch.full(shape, PADDING)
        positions, supervised = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
        hidden = torch.zeros(*shape, info.hidden_size, dtype=torch.bfloat16)
        with_features = self._documents.with_features
        features = (
            torch.zeros(*shape, len(info.layers), info.hidden_size, dtype=torch.bfloat16) if with_features else None
        )
        top_ids = torch.zeros(*shape, info.top_tokens, dtype=torch.int64)
        top_logprobs = torch.full((*shape, info.top_tokens), -torch.inf)
        number = 0
        for row, members in enumerate(rows):
            start = 0
            for member in members:
                count = min(len(member), size)
                at, own = (row, slice(start, start + count)), slice(0, count)
                tokens[at], documents[at] = member.tokens_S[own], number
                positions[at] = torch.arange(count)
                supervised[at] = member.supervised_S[own]
                hidden[at] = member.hidden_SD[own]
                if features is not None and member.features_STD is not None:
                    features[at] = member.features_STD[own]
                top_ids[at], top_logprobs[at] = member.top_ids_SK[own], member.top_logprobs_SK[own]
                start, number = start + count, number + 1
        num_tokens = int((documents != PADDING).sum())
        return Batch(
            tokens, self._t2d[tokens], documents, positions, supervised, hidden, features, self._t2d[top_ids],
            top_logprobs, num_tokens,
        )  # fmt: skip


class _Rows:
    """Documents in rows, each where it leaves the least room."""

    def __init__(self, rows: int, row_tokens: int) -> None:
        self.members: list[list[int]] = [[] for _ in range(rows)]
        self._free = [row_tokens] * rows
        self._row_tokens = row_tokens

    def add(self, document: int, length: int) -> bool:
        """False where no row has room. A document longer than a row is cut, and takes one alone."""
        length = min(length, self._row_tokens)
        fitting = [row for row, free in enumerate(self._free) if free >= length]
        if not fitting:
            return False
        row = min(fitting, key=self._free.__getitem__)
        self.members[row].append(document)
        self._free[row] -= length
        return True


class Prefetcher:
    """Reads a few batches ahead in a thread of its own."""

    def __init__(self, packer: Packer, cursor: Cursor) -> None:
        self._packer = packer
        self._ready: queue.Queue[tuple[Batch, Cursor] | Exception] = queue.Queue(_AHEAD)
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cursor,), name="batches", daemon=True)
        self._thread.start()

    def next(self) -> tuple[Batch, Cursor]:
        item = self._ready.get()
        if isinstance(item, Exception):
            raise item
        return item

    def stop(self) -> None:
        self._is_stopping.set()
        while self._thread.is_alive():
            with_room = not self._ready.empty()
            if with_room:
                self._ready.get_nowait()
            self._thread.join(0.01)

    def _run(self, cursor: Cursor) -> None:
        try:
            while not self._is_stopping.is_set():
                batch, cursor = self._packer.take(cursor)
                self._ready.put((batch, cursor))
        except Exception as error:  # raised where the batch is wanted
            self._ready.put(error)
