"""Runs one batch on a drafter, in the worker thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from services.drafters.drafter import Drafter, Extension, Proposal
from services.drafters.rounds import Ask, Batch, Drafted

_log = logging.getLogger(__name__)


def run_batch(drafter: Drafter, batch: Batch) -> Drafted:
    """An error in a drafter costs the sessions that it may have left half-changed, nothing else."""
    started = time.perf_counter()
    lost: set[int] = set()

    def kept(extensions: list[Extension]) -> list[Extension]:
        return [extension for extension in extensions if extension.session not in lost]

    failed = not _try(lambda: drafter.close(batch.closes), "close", len(batch.closes))
    for what, step, sessions in (
        ("open", lambda: drafter.open(batch.opens), [item.session for item in batch.opens]),
        ("catch up", lambda: drafter.catch_up(kept(batch.catch_ups)), [item.session for item in batch.catch_ups]),
        ("append to", lambda: drafter.append(kept(batch.appends)), [item.session for item in batch.appends]),
    ):
        if not _try(step, what, len(sessions)):
            failed = True
            lost.update(sessions)
    asks = [ask for ask in batch.asks if ask.question.session not in lost]
    draft_started = time.perf_counter()
    proposals, unanswered = _draft(drafter, asks)
    finished = time.perf_counter()
    lost.update(unanswered)
    _try(lambda: drafter.close(sorted(lost)), "close", len(lost))
    return Drafted(proposals, sorted(lost), failed or bool(unanswered), finished - started, finished - draft_started)


def _try(step: Callable[[], None], what: str, count: int) -> bool:
    """Whether it went well; nothing is called for no sequences."""
    if not count:
        return True
    try:
        step()
    except Exception:
        _log.exception("the drafter failed to %s %d sequences", what, count)
        return False
    return True


def _draft(drafter: Drafter, asks: list[Ask]) -> tuple[list[tuple[Ask, Proposal]], list[int]]:
    done = [(ask, Proposal()) for ask in asks if ask.question.max_draft == 0]
    wanted = [ask for ask in asks if ask.question.max_draft > 0]
    if not wanted:
        return done, []
    try:
        proposals = drafter.draft([ask.question for ask in wanted])
        if len(proposals) != len(wanted):
            raise RuntimeError(f"{len(proposals)} proposals for {len(wanted)} questions")
    except Exception:
        _log.exception("the drafter failed to draft for %d sequences", len(wanted))
        return done, [ask.question.session for ask in wanted]
    unfit: list[int] = []
    for ask, proposal in zip(wanted, proposals, strict=True):
        if len(proposal.tokens) > ask.question.max_draft or len(proposal.tokens) != len(proposal.probabilities):
            _log.error("the drafter proposed %d tokens where %d fit", len(proposal.tokens), ask.question.max_draft)
            unfit.append(ask.question.session)
        else:
            done.append((ask, proposal))
    return done, unfit
