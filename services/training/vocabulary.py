"""Which token ids a drafter predicts: those that the target writes most often."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from services.training.capture.shards import CapturedDocuments


def draft_vocabulary(
    documents: CapturedDocuments, chosen: Iterable[int], size: int, always: Iterable[int]
) -> torch.Tensor:
    """d2t [min(size, vocabulary)] int64, ascending: the ids in `always`, then the most frequent ones.

    Supervised tokens and the teacher's likeliest ones count alike. Ids that never occur fill up
    from the lowest, which byte-pair vocabularies give to the most frequent pieces.
    """
    counts_V = torch.zeros(documents.info.vocabulary, dtype=torch.int64)
    for index in chosen:
        document = documents[index]
        rows_S = document.supervised_S
        counts_V += torch.bincount(document.tokens_S[rows_S], minlength=counts_V.numel())
        before_S = torch.cat((rows_S[1:], rows_S.new_zeros(1)))
        counts_V += torch.bincount(document.top_ids_SK[before_S, 0], minlength=counts_V.numel())
    for token in always:
        counts_V[token] = torch.iinfo(torch.int64).max
    # Stable: among equals the lowest id comes first.
    order_V = counts_V.argsort(descending=True, stable=True)
    return order_V[:size].sort().values
