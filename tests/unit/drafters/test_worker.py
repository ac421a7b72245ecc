"""A drafter's errors cost its sessions, not the replica."""

from __future__ import annotations

from collections.abc import Sequence

from services.drafters.config import DrafterConfig
from services.drafters.drafter import Proposal, Question
from services.drafters.registry import kind_of
from services.drafters.rounds import Batch
from services.drafters.worker import run_batch
from tests.unit.drafters.support import CALLER, FeatureProbe, append, ask, frame, intake, opening


def batch_of(*sequences: int, max_draft: int = 4) -> Batch:
    desk = intake()
    for sequence in sequences:
        desk.admit(CALLER, frame(opening(sequence), append(0, [1, 2, 1, 2], sequence)), 0.0)
        desk.admit(CALLER, frame(ask(4, max_draft, sequence)), 0.0)
    return desk.pending.take(0.0, 0.0)


def test_lookup_drafts_for_a_whole_batch() -> None:
    config = DrafterConfig()
    drafted = run_batch(kind_of(config).build(config), batch_of(1, 2, max_draft=3))
    assert [proposal.tokens for _, proposal in drafted.proposals] == [(1, 2, 1), (1, 2, 1)]
    assert (drafted.lost, drafted.failed) == ([], False)


class Unfit(FeatureProbe):
    """Proposes too much for the second question."""

    def draft(self, questions: Sequence[Question]) -> Sequence[Proposal]:
        sizes = [1] + [question.max_draft + 1 for question in questions[1:]]
        return [Proposal((1,) * size, (0.5,) * size) for size in sizes]


def test_an_unfit_proposal_costs_only_its_session() -> None:
    drafted = run_batch(Unfit(DrafterConfig()), batch_of(1, 2))
    assert [ask.reply_to.sequence for ask, _ in drafted.proposals] == [1]
    assert (drafted.lost, drafted.failed) == ([1], True)


def test_a_failure_to_draft_loses_the_sessions_asked_for() -> None:
    drafter = FeatureProbe(DrafterConfig())
    drafter.fail_next = 1
    drafted = run_batch(drafter, batch_of(1, 2))
    assert (drafted.proposals, drafted.lost, drafted.failed) == ([], [0, 1], True)
    assert drafter.held == {}


class Forgetful(FeatureProbe):
    def append(self, extensions: Sequence[object]) -> None:  # type: ignore[override]
        raise MemoryError("made to fail")


def test_a_failure_to_append_leaves_nothing_half_changed() -> None:
    drafter = Forgetful(DrafterConfig())
    drafted = run_batch(drafter, batch_of(1, 2))
    assert (drafted.proposals, drafted.lost, drafted.failed) == ([], [0, 1], True)
    assert drafter.batch_sizes == []


def test_a_draft_of_length_zero_asks_nobody() -> None:
    batch = batch_of(1)
    asked = batch.asks[0]
    batch.asks[0] = type(asked)(Question(asked.question.session, 4, 0), asked.reply_to, asked.deadline)
    drafter = Forgetful(DrafterConfig())
    batch.appends.clear()
    drafted = run_batch(drafter, batch)
    assert [proposal for _, proposal in drafted.proposals] == [Proposal()]
