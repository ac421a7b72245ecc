"""A target replica's own D-cut: what to ask, what to keep, and what to learn from both. Pure.

The caller passes durations; nothing here reads a clock, and nothing it decides can reach a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from services.dcut.cluster.messages import RoundCost
from services.dcut.costs.corrected import CorrectedCosts
from services.dcut.costs.drafts import DraftCosts, DraftWait
from services.dcut.costs.steps import Floats, StepCosts
from services.dcut.local.ask import choose_lengths
from services.dcut.local.config import LocalDcutConfig
from services.dcut.local.guide import NO_GUIDE, Guide
from services.dcut.local.history import NUM_SCENARIOS, DraftHistory
from services.dcut.local.lessons import Lessons, Verdict
from services.dcut.local.messages import (
    Candidate,
    DcutCounters,
    DcutSnapshot,
    Offer,
    StepLoad,
    Verified,
)
from services.dcut.local.patience import patience_s
from services.dcut.local.probing import Idle, Probing
from services.dcut.local.rechoice import better_kind
from services.dcut.local.round_costs import RoundCosts
from services.dcut.local.selection import Counts, keep_all, keep_exact, keep_proportional, keep_quarters, survival
from services.dcut.local.snapshot import snapshot_of
from services.dcut.local.tally import Run
from services.requests.speculation import MAX_DRAFT_TOKENS

_PROBE_LENGTH = 2
_PROBE_WEIGHT = NUM_SCENARIOS // 2  # what a probe brings is worth more than what was long ago
_SMOOTHING = 0.1
_GROUP_WEIGHT = 4.0  # draft tokens that a group's acceptance is worth to a sequence
_PLAN_ROUNDS = 8  # that an answer to whom to ask holds, as long as they are the same

_Plan = tuple[tuple[tuple[int, str], ...], tuple[int, ...]]  # sequences with their drafters' kinds; lengths


@dataclass(slots=True)
class _Sequence:
    slot: int  # in the history
    task_class: str
    is_greedy: bool
    idle: Idle
    kind: str = ""  # whose draft was asked last
    is_local: bool = False
    remote_kind: str = ""  # whose drafts the history holds: those of this process need no decision
    asked: int = 0  # draft tokens of the newest ask, until it is answered or given up
    is_probe: bool = False
    is_forced: bool = False
    stated: tuple[float, ...] = ()  # confidences of the draft that is being verified
    run: Run = field(default_factory=Run)
    run_kind: str = ""  # that the rounds of the run were with
    is_counted: bool = False  # the round under way belongs to the run

    @property
    def group(self) -> tuple[str, str]:
        return self.kind, self.task_class


class LocalDcut:
    """Belongs to the engine's thread. Without a table of step times it starts from an assumed shape."""

    def __init__(self, config: LocalDcutConfig, table: StepCosts | None = None) -> None:
        self.config = config
        self.steps = CorrectedCosts(table)
        self.drafts = DraftCosts()
        self.lessons = Lessons()
        self.counters = DcutCounters()
        self.round_costs: tuple[RoundCost, ...] = ()  # as they are now
        self._guide = NO_GUIDE
        self._rounds = RoundCosts()
        self._load = StepLoad(1, 0.0, 0, 0)  # of the newest ask
        self._history = DraftHistory()
        self._probing = Probing(config.probe_share, config.first_probe, config.last_probe)
        self._sequences: dict[int, _Sequence] = {}
        self._plan: _Plan = ((), ())
        self._plan_age = 0
        self._expected_wait_s = 0.0  # of the newest asks
        self._stall_s = 0.0  # smoothed time that steps waited for drafts
        self._hidden_s = 0.0  # smoothed time from ask to the end of other work
        self._decision_s = 0.0  # smoothed time that keeping takes

    def open(self, sequence: int, task_class: str, *, is_greedy: bool) -> None:
        """`task_class`: chat, code or maths; empty where nobody knows."""
        idle = Idle(self._probing.first)
        self._sequences[sequence] = _Sequence(self._history.open(), task_class, is_greedy, idle)

    def close(self, sequence: int) -> None:
        record = self._sequences.pop(sequence, None)
        if record is not None:
            self.lessons.tally.count(record.run, record.run_kind, record.task_class)
            self._history.close(record.slot)

    def follow(self, guide: Guide) -> None:
        """What the fleet says from now on."""
        if guide is not self._guide:
            self._guide = guide
            self.lessons.acceptance.follow(guide.acceptance)

    # Deciding.

    def ask(self, candidates: Sequence[Candidate], load: StepLoad) -> list[tuple[int, int]]:
        """Whom to ask, and for how many tokens at most; those that are not worth a draft are left out."""
        for candidate in candidates:
            self._begin_round(self._sequences[candidate.sequence], candidate)
        candidates = [candidate for candidate in candidates if candidate.limit > 0]
        records = [self._sequences[candidate.sequence] for candidate in candidates]
        for candidate, record in zip(candidates, records, strict=True):
            record.kind, record.is_local = candidate.kind, candidate.is_local
            record.is_forced = candidate.is_forced
            if not candidate.is_local and record.remote_kind != candidate.kind:
                record.remote_kind = candidate.kind
                record.idle.reset(self._probing.first)
                self._history.restart(record.slot, record.group)
        lengths = self._lengths(candidates, records, load)
        self._load = load
        asked: dict[str, tuple[int, int]] = {}  # kind -> sequences, longest
        for candidate, record, length in zip(candidates, records, lengths, strict=True):
            record.asked = length
            if length and not candidate.is_local:
                count, longest = asked.get(candidate.kind, (0, 0))
                asked[candidate.kind] = count + 1, max(longest, length)
        for kind, number in Counter(candidate.kind for candidate in candidates if not candidate.is_local).items():
            self._rounds.asked(kind, number, *asked.get(kind, (0, 0)))
        self._expected_wait_s = max((float(self.drafts.seconds(k, *of)) for k, of in asked.items()), default=0.0)
        self.counters.asked += sum(length > 0 for length in lengths)
        self.counters.asked_tokens += sum(lengths)
        self.counters.skipped += sum(length == 0 for length in lengths)
        return [(c.sequence, length) for c, length in zip(candidates, lengths, strict=True) if length]

    def keep(self, offers: Sequence[Offer], load: StepLoad) -> list[int]:
        """How many of the offered drafts of each sequence to verify in this step."""
        lengths_N = np.array([len(offer.probabilities) for offer in offers], np.int64)
        records = [self._sequences[offer.sequence] for offer in offers]
        num_offered = int(lengths_N.sum())
        if not num_offered and not any(record.asked for record in records):
            return [0] * len(offers)
        stated_NJ = np.zeros((len(offers), max(int(lengths_N.max()), 1)))
        offered_NJ = np.arange(stated_NJ.shape[1]) < lengths_N[:, None]
        stated_NJ[offered_NJ] = np.fromiter(chain.from_iterable(o.probabilities for o in offers), float, num_offered)
        confidences_NJ = self.lessons.calibration.apply(
            [(record.kind, record.is_greedy) for record in records], stated_NJ
        )
        self._remember(records, confidences_NJ, offered_NJ)
        kept_N = self._select(confidences_NJ, lengths_N, load)
        is_probe_N = np.array([record.is_probe for record in records])
        if is_probe_N.any() and kept_N.sum() + is_probe_N.sum() <= load.spare_rows:
            kept_N = np.where(is_probe_N, np.maximum(kept_N, np.minimum(lengths_N, 1)), kept_N)  # to learn from it
        forced_N = np.where([record.is_forced for record in records], lengths_N, kept_N)
        if forced_N.sum() <= load.spare_rows:
            kept_N = forced_N
        self._count_kept(records, kept_N)
        for record, offer in zip(records, offers, strict=True):
            record.asked, record.is_probe, record.stated = 0, False, offer.probabilities
        self.counters.offered += int((lengths_N > 0).sum())
        self.counters.offered_tokens += num_offered
        self.counters.kept_tokens += int(kept_N.sum())
        self.counters.wholly_cut += int(((lengths_N > 0) & (kept_N == 0)).sum())
        kept: list[int] = kept_N.tolist()
        return kept

    def patience_s(self, num_ready: int, num_pending: int, load: StepLoad) -> float:
        """How long after the newest ask a step should wait for the drafts that are on their way."""
        if self.config.mode == "off" or not self._expected_wait_s:
            return 0.0
        rows = np.array([num_ready + num_pending, max(num_ready, 1), max(num_pending, 1)], np.float64)
        together_s, ready_s, _ = self.steps.seconds(rows, load.context, load.prefill).tolist()
        pending_s = float(self.steps.seconds(rows[2], load.context))
        return patience_s(self._expected_wait_s, together_s, ready_s, pending_s)

    def better_kind(self, sequence: int, connected: Collection[str]) -> str | None:
        """A drafter kind that promises more for what is left of the sequence, by what the whole fleet has seen."""
        record = self._sequences[sequence]
        promises = {
            kind: promise for (kind, task), promise in self._guide.promises.items() if task == record.task_class
        }
        return better_kind(record.run_kind, record.run.rounds, record.run.tokens, promises, connected)

    def limit(self, sequence: int, kind: str) -> int:
        """Draft tokens that the fleet holds to be worth asking this kind for."""
        return self._guide.limit(kind, self._sequences[sequence].task_class)

    # Learning.

    def observe_round(self, sequence: int, tokens: int) -> None:
        """A decode round of it has emitted so many tokens, with a draft or without."""
        record = self._sequences.get(sequence)
        if record is not None and record.is_counted:
            self.lessons.tally.round(record.run, record.run_kind, record.task_class, tokens)

    def observe_step(self, rows: int, context: float, prefill: int, seconds: float) -> None:
        """A step has taken so long, everything that the engine does for it included."""
        if rows:
            self.steps.observe(rows, context, prefill, seconds)

    def observe_wait(self, wait: DraftWait) -> None:
        self.drafts.observe(wait)

    def observe_pauses(self, stall_s: float, hidden_s: float) -> None:
        """Around a round of drafts: time that the target only waited, and that it worked between ask and wait."""
        self._stall_s += _SMOOTHING * (stall_s - self._stall_s)
        self._hidden_s += _SMOOTHING * (hidden_s - self._hidden_s)

    def observe_decision(self, seconds: float) -> None:
        """What keeping took."""
        self._decision_s += _SMOOTHING * (seconds - self._decision_s)

    def observe_verified(self, verified: Sequence[Verified]) -> None:
        """Of drafts that `keep` let into the step that has just ended."""
        verdicts = []
        for result in verified:
            record = self._sequences.get(result.sequence)
            if record is not None and 0 < result.kept <= len(record.stated):
                source = (record.kind, record.task_class, record.is_greedy)
                verdicts.append(Verdict(source, record.stated, result.kept, result.accepted))
        if self.lessons.add(verdicts):
            load = self._load
            self.round_costs = self._rounds.plain_steps(
                load.batch,
                lambda rows: self.steps.seconds(rows, load.context, load.prefill),
                lambda kind, sequences, longest: float(self.drafts.seconds(kind, sequences, longest)),
                self._hidden_s,
            )

    def snapshot(self) -> DcutSnapshot:
        return snapshot_of(
            self.config.mode, self.steps, self.drafts, self.lessons, asdict(self.counters), self._decision_s
        )

    def _lengths(self, candidates: Sequence[Candidate], records: Sequence[_Sequence], load: StepLoad) -> list[int]:
        # What is drafted in this process costs next to nothing: only what is kept of it is decided.
        lengths = [candidate.limit for candidate in candidates]
        if self.config.mode != "exact":
            return lengths
        remote = [row for row, one in enumerate(candidates) if not one.is_local and not one.is_forced]
        if remote:
            them, theirs = [candidates[row] for row in remote], [records[row] for row in remote]
            chosen = self._with_probes(them, theirs, self._planned(them, theirs, load), load)
            for row, length in zip(remote, chosen, strict=True):
                lengths[row] = min(length, lengths[row])
        return lengths

    def _planned(self, candidates: Sequence[Candidate], records: Sequence[_Sequence], load: StepLoad) -> Sequence[int]:
        """Decided anew when sequences or drafters are others, or after a few rounds: little changes in one."""
        who = tuple((candidate.sequence, candidate.kind) for candidate in candidates)
        self._plan_age += 1
        if self._plan[0] != who or self._plan_age >= _PLAN_ROUNDS:
            self._plan, self._plan_age = (who, self._chosen(candidates, records, load)), 0
        return self._plan[1]

    def _chosen(self, candidates: Sequence[Candidate], records: Sequence[_Sequence], load: StepLoad) -> tuple[int, ...]:
        limits_N = np.array([candidate.limit for candidate in candidates])
        longest = int(limits_N.max())
        scenarios_NQJ = self._history.scenarios([record.slot for record in records], longest)
        usual = {group: self.lessons.acceptance.conditional(*group)[:longest] for group in {r.group for r in records}}
        usual_NJ = np.stack([usual[record.group] for record in records])
        # What a sequence was not asked for is like what it was, and without any like its group.
        unknown_NQJ = np.isnan(scenarios_NQJ)
        scenarios_NQJ[unknown_NQJ] = 0.0
        known_N = unknown_NQJ[0].size - unknown_NQJ.sum((1, 2))
        like_NJ = (scenarios_NQJ.sum((1, 2))[:, None] + _GROUP_WEIGHT * usual_NJ) / (known_N[:, None] + _GROUP_WEIGHT)
        scenarios_NQJ = np.where(unknown_NQJ, like_NJ[:, None], scenarios_NQJ)
        scenarios_NQJ *= (np.arange(longest) < limits_N[:, None])[:, None]
        kinds = sorted({candidate.kind for candidate in candidates})
        chosen = choose_lengths(
            np.multiply.accumulate(scenarios_NQJ, axis=2),
            [kinds.index(candidate.kind) for candidate in candidates],
            load.batch,
            lambda rows: self.steps.seconds(rows, load.context, load.prefill),
            lambda source, count, length: self._draft_seconds(kinds[source], count, length),
            self._hidden_s,
            proportional=self.config.objective == "requests",
        )
        return tuple(chosen.tolist())

    def _begin_round(self, record: _Sequence, candidate: Candidate) -> None:
        """Rounds that say nothing of its drafter do not count: turned away, or drafted by lookup beside it."""
        record.is_counted = candidate.limit > 0 and not (candidate.is_local and record.remote_kind)
        if record.is_counted and record.run_kind != candidate.kind:
            self.lessons.tally.count(record.run, record.run_kind, record.task_class)
            record.run_kind, record.run = candidate.kind, Run()

    def _draft_seconds(self, kind: str, sequences: Floats, longest: Floats) -> Floats:
        """Time of the drafts, and what the fleet says that they cost others."""
        price: Floats = self._guide.price_s.get(kind, 0.0) * sequences * longest
        return self.drafts.seconds(kind, sequences, longest) + price

    def _count_kept(self, records: Sequence[_Sequence], kept_N: Counts) -> None:
        kept: dict[str, tuple[int, int]] = {}
        for record, rows in zip(records, kept_N.tolist(), strict=True):
            if record.kind and not record.is_local:
                number, total = kept.get(record.kind, (0, 0))
                kept[record.kind] = number + 1, total + rows
        for kind, counts in kept.items():
            self._rounds.kept(kind, *counts)

    def _with_probes(
        self, candidates: Sequence[Candidate], records: Sequence[_Sequence], planned: Sequence[int], load: StepLoad
    ) -> list[int]:
        lengths = list(planned)
        idle = []
        for row, (record, length) in enumerate(zip(records, lengths, strict=True)):
            if length:
                record.idle.reset(self._probing.first)
            else:
                idle.append(row)
        if not idle:
            return lengths
        # A probe is no longer than the drafts that are asked anyway, so that it makes nobody wait.
        length = max(max(lengths), _PROBE_LENGTH)
        kinds = Counter(candidate.kind for candidate, count in zip(candidates, lengths, strict=True) if count)
        wait_s = max((float(self.drafts.seconds(kind, count, length)) for kind, count in kinds.items()), default=0.0)
        kind = candidates[idle[0]].kind
        rows = np.array([load.batch, load.batch + 1], np.float64)
        step_s, with_row_s = self.steps.seconds(rows, load.context, load.prefill).tolist()

        def cost(number: int) -> float:
            """Tokens that the step would have emitted in the time that this takes."""
            longer_s = float(self.drafts.seconds(kind, kinds[kind] + number, length)) - max(wait_s, self._hidden_s)
            tokens: float = load.batch / step_s * (max(longer_s, 0.0) + number * (with_row_s - step_s))
            return tokens

        due = self._probing.due([records[row].idle for row in idle], load.batch, cost)
        for row, is_due in zip(idle, due, strict=True):
            if is_due:
                lengths[row], records[row].is_probe = length, True
                self.counters.probes += 1
        return lengths

    def _remember(
        self, records: Sequence[_Sequence], confidences_NJ: Floats, offered_NJ: npt.NDArray[np.bool_]
    ) -> None:
        """A draft that ended before what was asked would not have gone on; past what was asked nothing is known."""
        asked_N = np.array([record.asked for record in records])
        scenarios_NJ = np.where(np.arange(MAX_DRAFT_TOKENS) < asked_N[:, None], 0.0, np.nan)
        length = offered_NJ.shape[1]
        scenarios_NJ[:, :length] = np.where(offered_NJ, confidences_NJ, scenarios_NJ[:, :length])
        for is_probe, weight in ((False, 1), (True, _PROBE_WEIGHT)):
            rows = [
                row
                for row, record in enumerate(records)
                if record.asked and not record.is_local and record.is_probe is is_probe
            ]
            if rows:
                slots, groups = [records[row].slot for row in rows], [records[row].group for row in rows]
                self._history.add(slots, groups, scenarios_NJ[rows], weight)

    def _select(self, confidences_NJ: Floats, lengths_N: Counts, load: StepLoad) -> Counts:
        limit = min(int(lengths_N.sum()), load.spare_rows)
        if self.config.mode == "off":
            return keep_all(lengths_N, limit)
        seconds_K = self.steps.seconds(load.batch + np.arange(limit + 1), load.context, load.prefill)
        if seconds_K[-1] - seconds_K[0] < self._decision_s:
            self.counters.unselected += 1
            return keep_all(lengths_N, limit)
        keep = keep_quarters
        if self.config.mode == "exact":
            keep = keep_proportional if self.config.objective == "requests" else keep_exact
        return keep(survival(confidences_NJ, lengths_N), lengths_N, load.batch, seconds_K, self._stall_s)
