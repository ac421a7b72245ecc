from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.metrics.catalogue import GROUPS, METRICS, metric_of
from services.metrics.exposition import render
from services.metrics.messages import Snapshot
from services.metrics.metric import OTHER, Metric, Series, Value
from services.metrics.table import PATH, table
from services.metrics.vllm import ALIASES, KV_USAGE

UNITS = ("_seconds", "_bytes", "_ratio")


def one_of_each() -> Snapshot:
    """Every metric with one series, of value 1 or one observation in the second bucket."""
    totals: dict[Series, Value] = {}
    gauges: dict[Series, float] = {}
    for metric in METRICS.values():
        series = (metric.name, *(label.values[0] for label in metric.labels))
        if metric.kind == "histogram":
            totals[series] = (0, 1, *(0 for _ in metric.bounds[1:]), metric.bounds[1])
        elif metric.kind == "total":
            totals[series] = (1,)
        else:
            gauges[series] = 1.0
    return Snapshot("actor", 1, True, totals, gauges)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_a_metric_is_named_and_explained(metric: Metric) -> None:
    assert re.fullmatch(r"draftfleet(_[a-z]+)+", metric.name)
    assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket"))
    assert metric.help.endswith(".")
    if "seconds" in metric.name:
        assert metric.name.endswith(UNITS)
        assert "second" in metric.help.lower() or ", s" in metric.help or "age" in metric.help.lower()
    assert list(metric.bounds) == sorted(set(metric.bounds))
    assert bool(metric.bounds) == (metric.kind == "histogram")
    for label in metric.labels:
        assert label.name not in ("le", "request_id", "replica", "user")
        assert OTHER not in label.values
        assert len(set(label.values)) == len(label.values)


def test_names_are_used_once_and_series_have_an_end() -> None:
    assert sum(len(group) for group in GROUPS.values()) == len(METRICS)
    assert sum(metric.max_series for metric in METRICS.values()) < 2000


def test_the_table_is_the_generated_one() -> None:
    assert PATH.read_text(encoding="utf-8") == table(), "run: python -m services.metrics.table"


def test_labels_outside_their_values_are_told_as_other() -> None:
    metric = METRICS["draftfleet_drafts"]
    assert metric.series(("mtp", "poetry")) == ("draftfleet_drafts", "mtp", OTHER)
    with pytest.raises(ValueError, match="1 labels were given; it has these: drafter, class"):
        metric.series(("mtp",))


@pytest.mark.parametrize(
    ("series", "value", "message"),
    [
        ((), (1,), "names no metric"),
        (("draftfleet_nonsense",), (1,), "names no metric"),
        (("draftfleet_drafts", "mtp", "poetry"), (1,), "its labels may not be"),
        (("draftfleet_drafts", "mtp"), (1,), "labels were given"),
        (("draftfleet_drafts", "mtp", "chat"), (1, 2), "2 numbers were given; it has 1"),
    ],
)
def test_a_series_that_there_is_not_is_refused(series: Series, value: Value, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric_of(series, value)


def test_the_text_is_prometheus_own_and_complete() -> None:
    text = render(one_of_each(), "the model", 0.5).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in METRICS.values():
        family = families[metric.name]
        assert family.type == metric.type
        assert family.documentation == metric.help
        values = {sample.name.removeprefix(metric.name): sample.value for sample in family.samples}
        if metric.kind == "histogram":
            assert (values["_count"], values["_sum"]) == (1, metric.bounds[1])
        else:
            assert next(iter(values.values())) == (0.5 if metric.name == "draftfleet_totals_age_seconds" else 1)
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == {label.name for label in metric.labels}


def test_vllms_names_are_there_from_the_start_and_add_up() -> None:
    empty = render(Snapshot("a", 0, True, {}, {}), "m", 0.0).decode()
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        assert f'\nvllm:spec_decode_{name}_total{{engine="0",model_name="m"}} 0.0\n' in empty
    totals: dict[Series, Value] = {
        ("draftfleet_drafts", "mtp", "chat"): (3,),
        ("draftfleet_drafts", "dfly", "code"): (4,),
        ("draftfleet_accepted_tokens_per_position", "mtp", "0"): (2,),
        ("draftfleet_accepted_tokens_per_position", "dfly", "0"): (3,),
        ("draftfleet_accepted_tokens_per_position", "dfly", "1"): (1,),
    }
    gauges = {("draftfleet_kv_blocks", "held"): 1.0, ("draftfleet_kv_blocks", "free"): 3.0}
    text = render(Snapshot("a", 1, True, totals, gauges), "m", 0.0).decode()
    lines = set(text.splitlines())
    assert 'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 7.0' in lines
    at = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position='
    assert {f'{at}"0"}} 5.0', f'{at}"1"}} 1.0'} <= lines
    assert f'{KV_USAGE}{{engine="0",model_name="m"}} 0.25' in lines
    for alias in ALIASES:
        assert f"\n# TYPE {alias.shown} {alias.of.type}\n" in text or f"\n# TYPE {alias.shown} counter\n" in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing (Debian: apt install prometheus)")
def test_promtool_finds_no_fault() -> None:
    text = render(one_of_each(), "m", 0.5).decode()
    ours = "".join(line + "\n" for line in text.splitlines() if "vllm:" not in line)
    found = subprocess.run(["promtool", "check", "metrics"], input=ours, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
