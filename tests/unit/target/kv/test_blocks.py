from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.target.kv.blocks import ROOT, BlockManager, block_hash
from services.target.model.spec import BLOCK


def fill(blocks: BlockManager, tokens: list[int], held: list[int] | None = None) -> list[int]:
    """Takes blocks for `tokens` beside those held, and makes the full ones known."""
    mine = list(held or [])
    while len(mine) * BLOCK < len(tokens):
        block = blocks.allocate()
        assert block is not None
        mine.append(block)
    parent = ROOT
    for index in range(len(tokens) // BLOCK):
        parent = block_hash(parent, tokens[index * BLOCK : (index + 1) * BLOCK])
        blocks.register(mine[index], parent)
    return mine


def text(blocks: int, first: int = 0) -> list[int]:
    return list(range(first, first + blocks * BLOCK))


def matched(blocks: BlockManager, tokens: list[int]) -> list[int]:
    """The blocks that a lookup finds, held by nobody afterwards."""
    found = [block for block, _ in blocks.match(tokens)]
    blocks.release(found)
    return found


def test_hashes_depend_on_all_tokens_before() -> None:
    one = block_hash(ROOT, text(1))
    assert one == block_hash(ROOT, tuple(text(1)))
    assert len({one, block_hash(one, text(1)), block_hash(ROOT, text(1, 1)), block_hash(one, text(1, 1))}) == 4


def test_a_prefix_is_found_up_to_the_first_difference() -> None:
    blocks = BlockManager(8)
    mine = fill(blocks, text(3))
    assert matched(blocks, [*text(3), 1]) == mine
    assert matched(blocks, [*text(2), *text(2, 500)]) == mine[:2]
    assert matched(blocks, [7, *text(3)]) == []


def test_the_last_token_is_left_to_compute() -> None:
    blocks = BlockManager(8)
    mine = fill(blocks, text(2))
    assert matched(blocks, text(2)) == mine[:1]
    assert matched(blocks, text(2)[:-1]) == mine[:1]
    assert matched(blocks, text(1)) == []
    assert matched(blocks, []) == []


def test_a_prefix_outlives_its_sequence_until_its_blocks_are_needed() -> None:
    blocks = BlockManager(4)
    mine = fill(blocks, text(3))
    blocks.release(mine)
    assert blocks.num_free == 4
    assert matched(blocks, [*text(3), 1]) == mine


def test_the_end_of_a_prefix_goes_before_its_start_and_the_oldest_first() -> None:
    blocks = BlockManager(4)
    old = fill(blocks, text(2))
    new = fill(blocks, text(2, 900))
    blocks.release(old)
    blocks.release(new)
    taken = [blocks.allocate() for _ in range(4)]
    assert taken == [old[1], old[0], new[1], new[0]]
    assert blocks.allocate() is None


def test_use_makes_a_prefix_young_again() -> None:
    blocks = BlockManager(2)
    first, second = fill(blocks, text(1)), fill(blocks, text(1, 900))
    blocks.release(first)
    blocks.release(second)
    matched(blocks, [*text(1), 1])
    assert blocks.allocate() == second[0]
    assert matched(blocks, [*text(1), 1]) == first
    assert matched(blocks, [*text(1, 900), 1]) == []


def test_unknown_blocks_are_taken_before_known_ones() -> None:
    blocks = BlockManager(3)
    mine = fill(blocks, text(1))
    blocks.release(mine)
    assert mine[0] not in {blocks.allocate(), blocks.allocate()}
    assert matched(blocks, [*text(1), 1]) == mine


def test_a_shared_block_is_free_when_the_last_holder_leaves() -> None:
    blocks = BlockManager(2)
    mine = fill(blocks, text(1))
    theirs = [block for block, _ in blocks.match([*text(1), 1])]
    assert theirs == mine
    blocks.release(mine)
    assert blocks.num_free == 1
    blocks.release(theirs)
    assert blocks.num_free == 2


def test_two_copies_of_a_prefix_keep_one_name() -> None:
    blocks = BlockManager(4)
    first, second = fill(blocks, text(1)), fill(blocks, text(1))
    assert first != second
    assert matched(blocks, [*text(1), 1]) == first
    blocks.release(second)
    blocks.release(first)
    assert blocks.num_free == 4
    assert {blocks.allocate() for _ in range(4)} == set(range(4))


def test_without_the_prefix_cache_nothing_is_found() -> None:
    blocks = BlockManager(2, prefix_cache=False)
    blocks.release(fill(blocks, text(2)))
    assert blocks.match([*text(2), 1]) == []
    assert blocks.num_free == 2


def test_a_second_release_is_a_bug() -> None:
    blocks = BlockManager(1)
    mine = fill(blocks, text(1))
    blocks.release(mine)
    with pytest.raises(AssertionError, match="released more often"):
        blocks.release(mine)


class Blocks(RuleBasedStateMachine):
    """Sequences over an alphabet of two blocks, so that prefixes are often shared."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = BlockManager(6)
        self.held: list[tuple[list[int], list[int]]] = []  # tokens, blocks
        self.content: dict[int, tuple[int, ...]] = {}  # what was last computed into a block, with all before it

    @rule(kinds=st.lists(st.integers(0, 1), min_size=1, max_size=4), rest=st.integers(0, BLOCK - 1))
    def start(self, kinds: list[int], rest: int) -> None:
        tokens = [token for kind in kinds for token in text(1, 100 * kind)] + [9] * rest
        found = self.blocks.match(tokens)
        assert len(found) * BLOCK < len(tokens)
        parent = ROOT
        for index, (block, hash_) in enumerate(found):
            parent = block_hash(parent, tokens[index * BLOCK : (index + 1) * BLOCK])
            assert hash_ == parent
            assert self.content[block] == tuple(tokens[: (index + 1) * BLOCK]), "a block found holds something else"
        mine = [block for block, _ in found]
        if -(-len(tokens) // BLOCK) - len(mine) > self.blocks.num_free:
            self.blocks.release(mine)
            return
        mine = fill(self.blocks, tokens, mine)
        for index in range(len(found), len(mine)):
            self.content[mine[index]] = tuple(tokens[: (index + 1) * BLOCK])
        self.held.append((tokens, mine))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        _, mine = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.blocks.release(mine)

    @invariant()
    def every_block_is_free_or_held(self) -> None:
        assert self.blocks.num_free == 6 - len({block for _, mine in self.held for block in mine})

    @invariant()
    def only_equal_prefixes_share_a_block(self) -> None:
        for tokens, mine in self.held:
            for index, block in enumerate(mine):
                assert self.content[block] == tuple(tokens[: (index + 1) * BLOCK])


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(max_examples=60, stateful_step_count=30)
