"""Packing: what is in a row, and that every document comes once an epoch."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch

from services.target.model.loader import LoadedTarget
from services.training.batches import PADDING, Batch, Cursor, Packer, Prefetcher
from services.training.capture.config import CaptureConfig
from services.training.capture.documents import Document
from services.training.capture.run import Capture
from services.training.capture.shards import CapturedDocuments
from services.training.objectives import draw_anchors
from services.training.vocabulary import draft_vocabulary
from tests.engines import VOCABULARY, load_tiny, make_tiny_model

ROWS, SIZE = 3, 64


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> CapturedDocuments:
    folder = tmp_path_factory.mktemp("batches")
    target: LoadedTarget = load_tiny(make_tiny_model("llama", folder / "tiny"), "fp32")
    rng = random.Random(3)
    texts = [
        Document((index, *(rng.randrange(40, VOCABULARY) for _ in range(rng.randrange(8, 50)))), 4, index % 2)
        for index in range(30)
    ]
    config = CaptureConfig(max_document=64, top_tokens=4, pass_rows=64)
    Capture(target, "tiny", (0,), config, folder / "captured").run([("a", texts)], lambda _: None, lambda: False)
    return CapturedDocuments(folder / "captured", with_features=True)


def _packer(documents: CapturedDocuments, **settings: Any) -> Packer:
    return Packer(documents, range(len(documents)), torch.arange(0, VOCABULARY, 2), ROWS, SIZE, seed=1, **settings)


def _members(batch: Batch) -> list[int]:
    return batch.tokens_BS[(batch.positions_BS == 0) & (batch.documents_BS != PADDING)].tolist()


def test_a_row_holds_whole_documents_as_they_were_captured(documents: CapturedDocuments) -> None:
    batch, _ = _packer(documents).take(Cursor())
    assert batch.features_BSTD is not None
    for row in range(ROWS):
        for number in set(batch.documents_BS[row].tolist()) - {PADDING}:
            at = batch.documents_BS[row] == number
            document = documents[int(batch.tokens_BS[row][at][0])]
            assert document.features_STD is not None
            assert torch.equal(batch.tokens_BS[row][at], document.tokens_S)
            assert torch.equal(batch.positions_BS[row][at], torch.arange(len(document)))
            assert torch.equal(batch.hidden_BSD[row][at], document.hidden_SD)
            assert torch.equal(batch.features_BSTD[row][at], document.features_STD)
            assert torch.equal(batch.supervised_BS[row][at], document.supervised_S)
            even = document.tokens_S % 2 == 0
            assert torch.equal(batch.labels_BS[row][at], torch.where(even, document.tokens_S // 2, -1))
    assert batch.num_tokens == sum(documents.lengths[index] for index in _members(batch))


def test_an_epoch_has_every_document_once_and_epochs_differ(documents: CapturedDocuments) -> None:
    packer, cursor = _packer(documents), Cursor()
    seen: list[int] = []
    while cursor.epoch < 2:
        batch, cursor = packer.take(cursor)
        seen.extend(_members(batch))
    first, second = seen[:30], seen[30:60]
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second


def test_an_epoch_has_its_share_of_each_group(documents: CapturedDocuments) -> None:
    packer, cursor = _packer(documents, shares=(1.0, 0.3)), Cursor()
    seen: Counter[int] = Counter()
    while cursor.epoch < 20:
        batch, cursor = packer.take(cursor)
        seen.update(_members(batch))
    assert all(seen[index] >= 20 for index in range(0, 30, 2))
    rare = [seen[index] for index in range(1, 30, 2)]
    assert all(rare)
    assert 0.2 < sum(rare) / (15 * 20) < 0.4
    first, again = (list(map(_members, _packer(documents, shares=(1.0, 0.3)).once())) for _ in range(2))
    assert first == again
    assert 15 < sum(map(len, first)) < 30


def test_a_group_that_nobody_reads_is_left_out(documents: CapturedDocuments) -> None:
    batches = list(_packer(documents, shares=(0.0, 1.0)).once())
    assert sorted(index for batch in batches for index in _members(batch)) == list(range(1, 30, 2))
    with pytest.raises(ValueError, match="read more classes"):
        _packer(documents, shares=(0.0, 0.0))


def test_batches_depend_on_the_cursor_alone(documents: CapturedDocuments) -> None:
    reader = Prefetcher(_packer(documents), Cursor())
    read = [reader.next() for _ in range(6)]
    reader.stop()
    again, _ = _packer(documents).take(read[2][1])
    assert torch.equal(again.tokens_BS, read[3][0].tokens_BS)


def test_workers_share_the_documents(documents: CapturedDocuments) -> None:
    counts: Counter[int] = Counter()
    for rank in range(2):
        for batch in _packer(documents, rank=rank, world=2).once():
            counts.update(_members(batch))
    assert counts == Counter(range(30))


def test_anchors_stand_before_supervised_tokens_of_their_document(documents: CapturedDocuments) -> None:
    batch, _ = _packer(documents).take(Cursor())
    anchors, is_real = draw_anchors(batch, 20, torch.Generator().manual_seed(0))
    assert bool(is_real.all())
    rows = torch.arange(ROWS)[:, None].expand_as(anchors)
    assert bool(batch.supervised_BS[rows, anchors + 1].all())
    assert torch.equal(batch.documents_BS[rows, anchors], batch.documents_BS[rows, anchors + 1])
    assert bool((batch.positions_BS[rows, anchors] > 0).all())


def test_the_draft_vocabulary_is_the_most_frequent_one(documents: CapturedDocuments) -> None:
    always = (VOCABULARY - 1,)
    d2t = draft_vocabulary(documents, range(len(documents)), 20, always)
    assert d2t.tolist() == sorted(set(d2t.tolist()))
    assert VOCABULARY - 1 in d2t.tolist()
    counts: Counter[int] = Counter()
    for index in range(len(documents)):
        document = documents[index]
        counts.update(document.tokens_S[document.supervised_S].tolist())
        counts.update(document.top_ids_SK[torch.isfinite(document.top_logprobs_SK).all(-1), 0].tolist())
    chosen = set(d2t.tolist()) - set(always)
    assert min(counts[token] for token in chosen) >= max(counts[t] for t in counts if t not in chosen | set(always))
    everything = draft_vocabulary(documents, range(len(documents)), 10**6, always)
    assert everything.tolist() == list(range(VOCABULARY))
