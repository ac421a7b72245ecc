from __future__ import annotations

import pytest

from services.training.config import OptimizerConfig, StageConfig, load_recipe
from services.training.schedule import rate, stage_at


def test_the_rate_warms_up_and_falls_to_its_end() -> None:
    config = OptimizerConfig(warmup=0.1, final=0.05)
    rates = [rate(step, 100, config) for step in range(100)]
    assert rates[9] == 1.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rate(100, 100, config) == pytest.approx(0.05)


def test_without_warm_up_it_begins_at_the_peak() -> None:
    assert rate(0, 10, OptimizerConfig(warmup=0.0)) == 1.0


def test_stages_follow_one_another_by_share() -> None:
    stages = (StageConfig(share=0.3, loss="kl"), StageConfig(share=0.1, loss="end_to_end_tv"))
    losses = [stage_at(step, 8, stages).loss for step in range(8)]
    assert losses == ["kl"] * 6 + ["end_to_end_tv"] * 2


def test_an_unknown_recipe_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="laptop"):
        load_recipe("no-such-recipe")


def test_a_recipe_with_an_unknown_setting_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "recipe.yaml"
    path.write_text("mtp: {setps: 10}\n")
    with pytest.raises(ValueError, match="setps"):
        load_recipe(str(path))
