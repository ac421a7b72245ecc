"""Which rows the next step computes. Pure: no tensors, no clock, no threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from services.target.kv.blocks import BlockManager, block_hash
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
    """Continuous batching with chunked prefill: running sequences first, in order of admission.

    When blocks run out, the sequence admitted last gives up its own and is computed anew later.
    """

    def __init__(self, blocks: BlockManager, max_sequences: int, max_rows: int) -> None:
        self.blocks = blocks
        self.max_sequences = max_sequences
        self.max_rows = max_rows
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.num_preemptions = 0

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Ends a sequence wherever it stands."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._give_up_blocks(sequence)

    def plan(self, is_drafting: Callable[[Sequence], bool], drafts_of: Callable[[Sequence], Seq[int]]) -> list[Work]:
        """Takes the blocks that the work needs.

        `is_drafting`: a draft for it is on the way, so it sits this step out. `drafts_of` is called at most
        once for each sequence that takes part.
        """
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
        for sequence in prefilling:
            if budget == 0:
                break
            if sequence in self.running:
                budget -= self._take(sequence, min(sequence.num_pending, budget), (), plan)
        while budget > 0 and self.waiting and len(self.running) < self.max_sequences:
            rows = self._admit(self.waiting[0], budget, plan)
            if rows == 0:
                break
            budget -= rows
        return plan

    def commit(self, work: Work, new_tokens: Seq[int], num_accepted: int) -> None:
        """Records what a step computed: KV of `count` tokens and of the accepted drafts."""
        sequence = work.sequence
        sequence.tokens.extend(new_tokens)
        sequence.num_computed += work.count + num_accepted
        while len(sequence.hashes) < sequence.num_computed // BLOCK:
            index = len(sequence.hashes)
            hash_ = block_hash(sequence.last_hash, sequence.tokens[index * BLOCK : (index + 1) * BLOCK])
            sequence.hashes.append(hash_)
            self.blocks.register(sequence.blocks[index], hash_)

    def _admit(self, sequence: Sequence, budget: int, plan: list[Work]) -> int:
        """Starts the first waiting sequence if its whole text fits now; returns the rows it takes."""
        if not sequence.blocks and sequence.request.sampling.prompt_logprobs is None:
            self._reuse_prefix(sequence)
        if _blocks_for(len(sequence.tokens)) - len(sequence.blocks) > self.blocks.num_free:
            self._give_up_blocks(sequence)
            return 0
        self.waiting.popleft()
        self.running.append(sequence)
        rows = self._take(sequence, min(sequence.num_pending, budget), (), plan)
        assert rows > 0, "an admitted sequence must fit"
        return rows

    def _reuse_prefix(self, sequence: Sequence) -> None:
        found = self.blocks.match(sequence.tokens)
        sequence.blocks = [block for block, _ in found]
        sequence.hashes = [hash_ for _, hash_ in found]
        sequence.num_computed = len(found) * BLOCK
        if not sequence.was_admitted:
            sequence.num_cached = min(sequence.num_computed, sequence.num_prompt)

    def _take(self, sequence: Sequence, count: int, drafts: tuple[int, ...], plan: list[Work]) -> int:
        """Adds work with the blocks for it; returns its rows, 0 when the sequence itself had to yield."""
        while not self._grow(sequence, sequence.num_computed + count + len(drafts)):
            if drafts:
                drafts = ()
                continue
            victim = next((s for s in reversed(self.running) if not any(w.sequence is s for w in plan)), sequence)
            self._preempt(victim)
            if victim is sequence:
                return 0
        sequence.was_admitted = True
        plan.append(Work(sequence, count, drafts))
        return count + len(drafts)

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
        self.waiting.appendleft(sequence)
        self._give_up_blocks(sequence)

    def _give_up_blocks(self, sequence: Sequence) -> None:
        self.blocks.release(sequence.blocks)
        sequence.blocks, sequence.hashes, sequence.num_computed = [], [], 0


def _blocks_for(length: int) -> int:
    return -(-length // BLOCK)
