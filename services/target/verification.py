"""Which draft tokens stand: those that equal the target's own choice."""

from __future__ import annotations

from collections.abc import Sequence


def count_accepted(chosen: Sequence[int], drafts: Sequence[int]) -> int:
    """Length of the draft's prefix that equals the target's tokens (arXiv 2408.07978).

    chosen[j] is the target's token after drafts[:j], so chosen[:accepted + 1] is what is emitted: the
    accepted drafts and the bonus token.
    """
    accepted = 0
    for token, draft in zip(chosen, drafts, strict=False):
        if token != draft:
            break
        accepted += 1
    return accepted
