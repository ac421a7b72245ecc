from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.target.drafting.features import FeatureWindow, to_bytes
from tests.unit.drafters.support import feature_rows


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), min_size=1, max_size=12), st.integers(1, 10))
def test_the_window_is_the_newest_gapless_rows(pieces: list[tuple[int, int]], limit: int) -> None:
    window = FeatureWindow()
    held: list[int] = []  # positions, by the simplest means
    for first, rows in pieces:
        window.add(first, feature_rows(first, rows), limit)
        held = [position for position in held if position < first]
        if held and held[-1] != first - 1:
            held = []
        held = (held + list(range(first, first + rows)))[-limit:]
        assert (window.first, window.end) == (held[0], held[-1] + 1)
        assert torch.equal(window.rows(window.first, window.end), feature_rows(held[0], len(held)))


def test_rows_are_copied() -> None:
    buffer = feature_rows(0, 4)
    window = FeatureWindow()
    window.add(0, buffer, 4)
    buffer.zero_()
    assert torch.equal(window.rows(0, 4), feature_rows(0, 4))


def test_other_layers_start_the_window_anew() -> None:
    window = FeatureWindow()
    window.add(0, feature_rows(0, 4), 8)
    window.add(4, feature_rows(4, 2)[:, :1], 8)
    assert (window.first, window.end) == (4, 6)


@pytest.mark.parametrize("rows", [torch.zeros(2, 3), torch.zeros(2, 3, 4, dtype=torch.float64)])
def test_what_no_drafter_takes_is_refused(rows: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"features: .* cannot be sent; they must be \[rows, layers, hidden\]"):
        FeatureWindow().add(0, rows, 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_bytes_are_little_endian_in_c_order(dtype: torch.dtype) -> None:
    rows = feature_rows(3, 5, dtype).transpose(1, 2)  # not contiguous
    back = torch.frombuffer(bytearray(to_bytes(rows)), dtype=dtype).view(rows.shape)
    assert torch.equal(back, rows)
