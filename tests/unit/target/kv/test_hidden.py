"""Hidden states kept beside the KV cache: what is found is what was written last, and memory is bounded."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.target.kv.hidden import Capture, HiddenStates
from services.target.model.spec import BLOCK

LAYERS, HIDDEN = 2, 3
ROW_BYTES = LAYERS * HIDDEN * 4
CAPTURE = Capture((1, -1))


def rows(first: int, count: int, mark: float = 0.0) -> torch.Tensor:
    """A row says its position."""
    positions = torch.arange(first, first + count, dtype=torch.float32) + mark
    return positions[:, None, None].expand(-1, LAYERS, HIDDEN).clone()


def states(num_blocks: int) -> HiddenStates:
    return HiddenStates(num_blocks * BLOCK * ROW_BYTES)


def test_what_was_written_is_found() -> None:
    held = states(8)
    blocks = [5, 2, 9, 0]
    held.write(CAPTURE, blocks, 0, rows(0, 20))
    held.write(CAPTURE, blocks, 20, rows(20, 30))
    found = held.newest(blocks, 0, 50)
    assert found is not None
    assert found[0] == 0
    assert torch.equal(found[1], rows(0, 50))
    found = held.newest(blocks, 13, 37)
    assert found is not None
    assert (found[0], torch.equal(found[1], rows(13, 24))) == (13, True)
    assert held.newest(blocks, 30, 30) is None


def test_only_what_has_no_gap_before_the_end_is_found() -> None:
    held = states(8)
    blocks = [0, 1, 2, 3]
    held.write(CAPTURE, blocks, 0, rows(0, 64))
    held.forget(blocks, 18, 3)
    found = held.newest(blocks, 0, 60)
    assert found is not None
    assert (found[0], torch.equal(found[1], rows(21, 39))) == (21, True)
    assert held.newest(blocks, 0, 21) is None
    held.write(CAPTURE, blocks, 18, rows(18, 3))
    found = held.newest(blocks, 0, 60)
    assert found is not None
    assert found[0] == 0


def test_other_layers_start_anew() -> None:
    held = states(8)
    held.write(CAPTURE, [0], 0, rows(0, 16))
    held.write(Capture((1, 2)), [1], 0, rows(0, 4))
    assert held.newest([0], 0, 16) is None
    assert held.newest([1], 0, 4) is not None


def test_without_memory_nothing_is_held() -> None:
    held = states(0)
    held.write(CAPTURE, [0, 1], 0, rows(0, 20))
    assert held.newest([0, 1], 0, 20) is None


def test_the_blocks_used_longest_ago_give_way() -> None:
    held = states(3)
    for block in range(3):
        held.write(CAPTURE, [block], 0, rows(0, 16, block))
    assert held.newest([0], 0, 16) is not None  # a use
    held.write(CAPTURE, [7], 0, rows(0, 16, 7))
    assert held.newest([1], 0, 16) is None
    for block in (0, 2, 7):
        found = held.newest([block], 0, 16)
        assert found is not None
        assert torch.equal(found[1], rows(0, 16, block))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 63), st.integers(1, 40)), max_size=20),
    st.integers(0, 63),
    st.integers(1, 64),
)
def test_like_a_plain_dictionary(steps: list[tuple[bool, int, int]], first: int, count: int) -> None:
    held, blocks = states(4), [3, 1, 0, 2]
    held.write(CAPTURE, blocks, 0, rows(0, 1))
    known = {0: 0.0}
    for number, (is_write, start, length) in enumerate(steps):
        length = min(length, 64 - start)
        if is_write:
            held.write(CAPTURE, blocks, start, rows(start, length, number * 100))
            known.update({p: p + number * 100 for p in range(start, start + length)})
        else:
            held.forget(blocks, start, length)
            for position in range(start, start + length):
                known.pop(position, None)
    end = min(first + count, 64)
    oldest = end
    while oldest > first and oldest - 1 in known:
        oldest -= 1
    found = held.newest(blocks, first, end)
    if oldest == end:
        assert found is None
    else:
        assert found is not None
        assert found[0] == oldest
        assert found[1][:, 0, 0].tolist() == [known[p] for p in range(oldest, end)]
