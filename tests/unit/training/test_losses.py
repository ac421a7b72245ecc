"""Losses against slow references that loop over whole distributions."""

from __future__ import annotations

import math

import pytest
import torch

from services.training.losses import (
    Agreement,
    LogProbs,
    agreement,
    decayed_weights,
    dpace_weights,
    end_to_end_tv,
    mean_over,
    row_loss,
)

ROWS, DRAFT, FULL = 5, 7, 11  # draft ids 0..6 are the target's ids 0, 2, 4, 6, 7, 8, 10
D2T = [0, 2, 4, 6, 7, 8, 10]


def _whole(rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draft logits, teacher log-probabilities of all tokens, and their ids as draft ids."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(rows, DRAFT, generator=generator) * 2
    logp = (torch.randn(rows, FULL, generator=generator) * 2).log_softmax(-1)
    t2d = torch.full((FULL,), -1)
    t2d[torch.tensor(D2T)] = torch.arange(DRAFT)
    order = logp.argsort(descending=True)
    return logits, logp.gather(-1, order), t2d[order]


def test_agreement_is_that_of_the_whole_distributions() -> None:
    logits, top_logp, top_ids = _whole()
    labels = torch.tensor([0, 6, 3, -1, 2])
    found = agreement(logits, labels, top_ids, top_logp)
    for row in range(ROWS):
        q = {d: math.exp(v) for d, v in enumerate(logits[row].log_softmax(-1).tolist())}
        p = {d: math.exp(v) for d, v in zip(top_ids[row].tolist(), top_logp[row].tolist(), strict=True) if d >= 0}
        assert found.alpha_R[row].item() == pytest.approx(sum(min(p[d], q[d]) for d in p), rel=1e-5)
        mass = sum(p.values())
        kl = sum(p[d] / mass * math.log(p[d] / mass / q[d]) for d in p)
        assert found.kl_R[row].item() == pytest.approx(kl, rel=1e-4)
        label = int(labels[row])
        assert found.ce_R[row].item() == pytest.approx(-math.log(q[label]) if label >= 0 else 0.0, rel=1e-5)


def test_equal_distributions_agree_fully() -> None:
    logits = torch.randn(4, DRAFT)
    top_logp, top_ids = logits.log_softmax(-1).sort(descending=True)
    found = agreement(logits, top_ids[:, 0], top_ids, top_logp)
    torch.testing.assert_close(found.alpha_R, torch.ones(4))
    torch.testing.assert_close(found.kl_R, torch.zeros(4), atol=1e-5, rtol=0)


def test_a_teacher_cut_to_its_top_tokens_never_raises_alpha() -> None:
    logits, top_logp, top_ids = _whole()
    labels = torch.zeros(ROWS, dtype=torch.int64)
    whole = agreement(logits, labels, top_ids, top_logp).alpha_R
    for count in range(1, FULL):
        cut = agreement(logits, labels, top_ids[:, :count], top_logp[:, :count]).alpha_R
        lacking = 1 - top_logp[:, :count].exp().sum(-1)
        assert bool((cut <= whole + 1e-6).all())
        assert bool((cut >= whole - lacking - 1e-6).all())


def test_rows_without_a_teacher_give_finite_losses_and_gradients() -> None:
    logits = torch.randn(3, DRAFT, requires_grad=True)
    top_logp = torch.full((3, 4), -torch.inf)
    found = agreement(logits, torch.full((3,), -1), torch.zeros(3, 4, dtype=torch.int64), top_logp)
    for name in ("ce", "kl", "tv", "lk"):
        loss = row_loss(name, found)  # type: ignore[arg-type]
        assert bool(torch.isfinite(loss).all())
        (gradient,) = torch.autograd.grad(loss.sum(), logits, retain_graph=True)
        assert bool(torch.isfinite(gradient).all())


def test_lk_leans_on_kl_while_poor_and_its_share_has_no_gradient() -> None:
    alpha = torch.tensor([0.0, 0.3, 1.0], requires_grad=True)
    kl = torch.tensor([2.0, 1.0, 0.5])
    loss = row_loss("lk", Agreement(torch.zeros(3), kl, alpha))
    for row in range(3):
        share = math.exp(-3 * alpha[row].item())
        assert loss[row].item() == pytest.approx(share * kl[row].item() + (1 - share) * (1 - alpha[row].item()))
    (gradient,) = torch.autograd.grad(loss.sum(), alpha)
    torch.testing.assert_close(gradient, -(1 - torch.exp(-3 * alpha.detach())))


def test_end_to_end_tv_is_one_minus_the_mean_survival() -> None:
    alpha = torch.rand(6, 4)
    counts = [4, 3, 2, 1, 0, 4]
    valid = torch.tensor([[float(i < count) for i in range(4)] for count in counts])
    found = end_to_end_tv(alpha, valid)
    for row, count in enumerate(counts):
        survivals = [math.prod(alpha[row, : j + 1].tolist()) for j in range(count)]
        wanted = 1 - sum(survivals) / count if count else 0.0
        assert found[row].item() == pytest.approx(wanted, rel=1e-5)


def test_dpace_weights_by_hand() -> None:
    ce = torch.rand(3, 4, requires_grad=True)
    found = dpace_weights(ce, torch.ones(3, 4))
    assert not found.requires_grad
    for row in range(3):
        c = [0.5 * math.exp(-v) + 0.5 for v in ce[row].tolist()]
        prefix = [math.prod(c[: k + 1]) for k in range(4)]
        for k in range(4):
            assert found[row, k].item() == pytest.approx(sum(prefix[k:]), rel=1e-5)


def test_decayed_weights_and_means() -> None:
    torch.testing.assert_close(decayed_weights(3, 4.0), torch.tensor([1.0, math.exp(-0.25), math.exp(-0.5)]))
    assert mean_over(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0])).item() == pytest.approx(2.0)
    assert mean_over(torch.tensor([1.0, 5.0]), torch.zeros(2)).item() == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probabilities_and_their_gradient_are_those_of_log_softmax(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.training.losses._CACHED_ELEMENTS", 40)  # several rows at a time, and a rest
    torch.manual_seed(1)
    logits = (torch.randn(7, 13) * 3).to(dtype).requires_grad_()
    ids = torch.randint(0, 13, (7, 5))
    weights = torch.randn(7, 5)
    found = LogProbs.apply(logits, ids)
    (gradient,) = torch.autograd.grad((found * weights).sum(), logits)
    plain = logits.detach().double().requires_grad_()
    wanted = plain.log_softmax(-1).gather(-1, ids)
    (wanted_gradient,) = torch.autograd.grad((wanted * weights.double()).sum(), plain)
    torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=1e-5)
    assert gradient.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(gradient.double(), wanted_gradient, atol=tolerance, rtol=tolerance)
