"""How long a draft is worth asking for, by kind and class, over all targets. Pure."""

from __future__ import annotations

from services.dcut.cluster.messages import Use
from services.requests.speculation import MAX_DRAFT_TOKENS

_PRIOR_WEIGHT = 4.0  # rounds that the position before is worth as a guess of this one
_TRUSTED = 64.0  # rounds before which nothing is limited
_ENTER, _LEAVE = 0.04, 0.02  # probability that a draft stands up to a position, above and below which it is worth it
_LEAST = 2  # so that it can be seen when drafts get better


def conditional(use: Use) -> tuple[float, ...]:
    """Probability that the draft at a position stands, given those before it; empty where nothing is known.

    A position that was hardly reached is taken to be like the one before.
    """
    rates: list[float] = []
    for verified, accepted in zip(use.verified, use.accepted, strict=False):
        if not rates and not verified:
            return ()
        prior, weight = (rates[-1], _PRIOR_WEIGHT) if rates else (0.0, 0.0)
        rates.append(min((accepted + weight * prior) / (verified + weight), 1.0))
    return tuple(rates)


def worthwhile(use: Use, before: int) -> int:
    """Draft tokens to ask for at most. `before` is what was said last: a position comes and goes at different odds.

    So that no limit flickers, and none comes from a few unlucky rounds.
    """
    rates = conditional(use)
    if not rates or use.verified[0] < _TRUSTED:
        return MAX_DRAFT_TOKENS
    survival, length = 1.0, 0
    for position in range(MAX_DRAFT_TOKENS):
        survival *= rates[min(position, len(rates) - 1)]
        if survival < (_LEAVE if position < before else _ENTER):
            break
        length = position + 1
    return max(length, _LEAST)
