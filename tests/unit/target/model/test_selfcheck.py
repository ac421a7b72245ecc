from __future__ import annotations

from pathlib import Path

import pytest
import torch

from services.target.kv.pool import KVPool
from services.target.model.attention import NativeAttention
from services.target.model.loader import LoadedTarget
from services.target.model.matrix import Matrix
from services.target.model.row_plan import RowPlan
from services.target.model.selfcheck import check_exactness
from services.target.model.step import Pass
from tests.unit.target.model.test_families import CPU, LEAN, load, save


@pytest.fixture
def target(tmp_path: Path) -> LoadedTarget:
    save(LEAN["llama"](), tmp_path / "model")
    target = load(tmp_path / "model", "bf16")
    if target.verdict.exactness != "bitwise":
        pytest.skip(f"no compiler here: {target.verdict.reason}")
    return target


def check(target: LoadedTarget, max_rows: int = 64) -> tuple[str, str]:
    verdict = check_exactness(target.forward, target.dtype, CPU, max_rows)
    assert target.forward.plan == verdict.plan
    return verdict.exactness, verdict.reason


def test_kernels_are_bitwise_in_both_precisions(target: LoadedTarget, tmp_path: Path) -> None:
    assert check(target)[0] == "bitwise"
    assert load(tmp_path / "model", "fp32").verdict.exactness == "bitwise"


def test_auto_takes_the_fast_precision_where_it_is_proved(target: LoadedTarget, tmp_path: Path) -> None:
    assert load(tmp_path / "model", "auto").precision == "bfloat16"


def _spoil_attention(monkeypatch: pytest.MonkeyPatch, is_spoiled: str) -> None:
    attend = NativeAttention.attend

    def spoiled(
        self: NativeAttention, layer: int, step: Pass, query: torch.Tensor, pool: KVPool, scale: float, softcap: float
    ) -> torch.Tensor:
        out = attend(self, layer, step, query, pool, scale, softcap)
        rows, segments = query.shape[0], len(step.segment_starts) - 1
        wrong = {"many rows": segments == 1 and rows == 9, "a batch": segments > 1, "a chunk": rows == 33}[is_spoiled]
        return out * 1.25 if wrong else out

    monkeypatch.setattr(NativeAttention, "attend", spoiled)


@pytest.mark.parametrize(
    ("is_spoiled", "reason"),
    [
        ("many rows", "logits differ between one row and many rows of one sequence"),
        ("a batch", "logits differ between a sequence alone and in a batch"),
        ("a chunk", "logits differ between prefill chunks of different sizes"),
    ],
)
def test_attention_that_looks_at_its_company(
    target: LoadedTarget, monkeypatch: pytest.MonkeyPatch, is_spoiled: str, reason: str
) -> None:
    _spoil_attention(monkeypatch, is_spoiled)
    assert check(target) == ("ties", reason)
    assert target.forward.plan == RowPlan(), "nothing is proved, so nothing is split"


def test_auto_falls_back_to_fp32_and_says_why(
    target: LoadedTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _spoil_attention(monkeypatch, "a batch")
    fallback = load(tmp_path / "model", "auto")
    assert (fallback.precision, fallback.verdict.exactness) == ("float32", "ties")
    assert "between a sequence alone and in a batch" in caplog.text


def test_products_that_are_never_the_same(target: LoadedTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    class Drifting:
        def __init__(self, matrix: Matrix) -> None:
            self.in_features, self.out_features = matrix.in_features, matrix.out_features
            self._matrix, self._calls = matrix, 0

        def __call__(self, x_NI: torch.Tensor) -> torch.Tensor:
            self._calls += 1
            return self._matrix(x_NI) + self._calls

    matrices = target.forward.matrices()
    monkeypatch.setattr(target.forward, "matrices", lambda: [*matrices[1:], Drifting(matrices[0])])
    assert check(target) == ("ties", "matrix products depend on the number of rows")
