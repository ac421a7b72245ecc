"""Which rows the next step computes. Pure: no tensors, no clock, no threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from services.target.fairness import FairShare, WaitingLine
from services.target.kv.blocks import BlockManager, block_hash, root_of
from services.target.model.spec import BLOCK
from services.target.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Work:
    """`count` pending tokens of a sequence, followed by draft tokens where these are its last."""

    sequence: Sequence
    count: int
    drafts: tuple[int, ...] = ()

    @property
    def reaches_end(self) -> bool:
        """Whether its last row chooses a new token."""
        return self.sequence.num_computed + self.count == len(self.sequence.tokens)


class Scheduler:
    """Continuous batching with chunked prefill: decoding sequences first, in order of admission, then prompts.

    Prompts, running and waiting, take turns by their tenants' shares; within a tenant in order. When blocks run
    out, the sequence admitted last gives up its own and is computed anew later. So does one of a tenant with
    many running, when another with fewer could not begin.
    """

    def __init__(self, blocks: BlockManager, max_sequences: int, max_rows: int) -> None:
        self.blocks = blocks
        self.max_sequences = max_sequences
        self.max_rows = max_rows
        self.share = FairShare()
        self.waiting = WaitingLine(self.share)
        self.running: list[Sequence] = []
        self.num_preemptions = 0

    def add(self, sequence: Sequence) -> None:
        self.share.enter(sequence.tenant)
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Ends a sequence wherever it stands."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        else:
            return
        self.share.leave(sequence.tenant)
        self._give_up_blocks(sequence)

    def plan(self, is_drafting: Callable[[Sequence], bool], drafts_of: Callable[[Sequence], Seq[int]]) -> list[Work]:
        """Takes the blocks that the work needs.

        `is_drafting`: a draft for it is on the way, so it sits this step out. `drafts_of` is called at most
        once for each sequence that takes part.
        """
        if self.waiting:
            self._even_out()
        budget = self.max_rows
        plan: list[Work] = []
        decoding = [s for s in self.running if s.is_decoding]
        prefilling = [s for s in self.running if not s.is_decoding]
        for sequence in decoding:
            if is_drafting(sequence) or sequence not in self.running:
                continue
            if budget == 0:
                break
            drafts = tuple(drafts_of(sequence))[: max(0, min(budget - 1, sequence.max_drafts))]
            budget -= self._take(sequence, 1, drafts, plan)
        prefilling.sort(key=lambda s: self.share.served(s.tenant))
        may_admit = True
        while budget > 0:
            prefilling = [s for s in prefilling if s in self.running]
            head = self.waiting.head if may_admit and self.waiting else None
            if head is not None and (not prefilling or self._goes_before(head, prefilling[0])):
                rows = self._admit(head, budget, plan)
                may_admit = rows > 0
            elif prefilling:
                sequence = prefilling.pop(0)
                rows = self._take(sequence, min(sequence.num_pending, budget), (), plan)
            else:
                break
            budget -= rows
        return plan

    def commit(self, work: Work, new_tokens: Seq[int], num_accepted: int) -> None:
        """Records what a step computed: KV of `count` tokens and of the accepted drafts."""
        sequence = work.sequence
        sequence.tokens.extend(new_tokens)
        sequence.num_computed += work.count + num_accepted
        self._charge(sequence, sequence.num_computed)
        while len(sequence.hashes) < sequence.num_computed // BLOCK:
            index = len(sequence.hashes)
            hash_ = block_hash(sequence.last_hash, sequence.tokens[index * BLOCK : (index + 1) * BLOCK])
            sequence.hashes.append(hash_)
            self.blocks.register(sequence.blocks[index], hash_)

    def _goes_before(self, waiting: Sequence, running: Sequence) -> bool:
        return self.share.served(waiting.tenant) < self.share.served(running.tenant)

    def _admit(self, sequence: Sequence, budget: int, plan: list[Work]) -> int:
        """Starts a waiting sequence if its whole text fits now; returns the rows it takes."""
        if not self._fits(sequence):
            self._give_up_blocks(sequence)
            return 0
        self.waiting.remove(sequence)
        self.running.append(sequence)
        rows = self._take(sequence, min(sequence.num_pending, budget), (), plan)
        assert rows > 0, "an admitted sequence must fit"
        return rows

    def _fits(self, sequence: Sequence) -> bool:
        if len(self.running) >= self.max_sequences:
            return False
        if not sequence.blocks and sequence.request.sampling.prompt_logprobs is None:
            self._reuse_prefix(sequence)
        return _blocks_for(len(sequence.tokens)) - len(sequence.blocks) <= self.blocks.num_free

    def _even_out(self) -> None:
        """Preempts sequences of a tenant with many running until another, with fewer, can begin."""
        head = self.waiting.head
        while (victim := self._victim_for(head)) is not None and not self._fits(head):
            self._preempt(victim)
        self._give_up_blocks(head)

    def _victim_for(self, waiting: Sequence) -> Sequence | None:
        """The newest sequence of the tenant with most running, where that would even things out.

        The other keeps at least as many as this one then has, and has had more already: so nobody is preempted
        in return, and who waits now stays the first to be admitted.
        """
        running = Counter(s.tenant for s in self.running)
        victim = max(self.running, key=lambda s: running[s.tenant], default=None)
        if victim is None or running[victim.tenant] < running[waiting.tenant] + 2:
            return None
        if not self._goes_before(waiting, victim):
            return None
        return next(s for s in reversed(self.running) if s.tenant == victim.tenant)

    def _reuse_prefix(self, sequence: Sequence) -> None:
        found = self.blocks.match(sequence.tokens, root_of(sequence.tenant))
        sequence.blocks = [block for block, _ in found]
        sequence.hashes = [hash_ for _, hash_ in found]
        sequence.num_computed = len(found) * BLOCK
        sequence.num_charged = max(sequence.num_charged, sequence.num_computed)
        if not sequence.was_admitted:
            sequence.num_cached = min(sequence.num_computed, sequence.num_prompt)

    def _take(self, sequence: Sequence, count: int, drafts: tuple[int, ...], plan: list[Work]) -> int:
        """Adds work with the blocks for it; returns its rows, 0 when the sequence itself had to yield."""
        while not self._grow(sequence, sequence.num_computed + count + len(drafts)):
            if drafts:
                drafts = ()
                continue
            victim = self._last_in(plan) or sequence
            self._preempt(victim)
            if victim is sequence:
                return 0
        sequence.was_admitted = True
        self._charge(sequence, sequence.num_computed + count)  # now, so that one plan shares its own rows
        plan.append(Work(sequence, count, drafts))
        return count + len(drafts)

    def _charge(self, sequence: Sequence, position: int) -> None:
        """Its tenant pays for what has not been computed before."""
        self.share.charge(sequence.tenant, max(position - sequence.num_charged, 0))
        sequence.num_charged = max(sequence.num_charged, position)

    def _last_in(self, plan: list[Work]) -> Sequence | None:
        """Who was admitted last, of the tenant with most running, and is not in the plan."""
        planned = {work.sequence.id for work in plan}
        running = Counter(s.tenant for s in self.running)
        left = [s for s in reversed(self.running) if s.id not in planned]
        return max(left, key=lambda s: running[s.tenant], default=None)  # of equals the first

    def _grow(self, sequence: Sequence, length: int) -> bool:
        """Gives the sequence blocks for `length` positions, all or none."""
        missing = _blocks_for(length) - len(sequence.blocks)
        if missing > self.blocks.num_free:
            return False
        for _ in range(missing):
            block = self.blocks.allocate()
            assert block is not None
            sequence.blocks.append(block)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.num_preemptions += 1
        self.running.remove(sequence)
        self.waiting.put_back(sequence)
        self._give_up_blocks(sequence)

    def _give_up_blocks(self, sequence: Sequence) -> None:
        self.blocks.release(sequence.blocks)
        sequence.blocks, sequence.hashes, sequence.num_computed = [], [], 0


def _blocks_for(length: int) -> int:
    return -(-length // BLOCK)
