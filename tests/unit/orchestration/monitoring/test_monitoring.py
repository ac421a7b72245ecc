from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from orchestration.monitoring.panels import ROWS, WINDOW
from services.metrics.catalogue import METRICS

FOLDER = Path(__file__).parents[4] / "orchestration" / "monitoring"
ALERTS = FOLDER / "alerts.yaml"
UNIT_TESTS = Path(__file__).with_name("alerts.test.yaml")
QUERIES = [query for panels in ROWS.values() for panel in panels for query in panel.queries]
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing (Debian: apt install prometheus)"
)


def rules() -> list[dict[str, str]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def shown_names() -> dict[str, str]:
    """Names as Prometheus has them, with the name of their metric."""
    names = {}
    for name, metric in METRICS.items():
        endings = ("_bucket", "_count", "_sum") if metric.kind == "histogram" else ("",)
        names |= {f"{metric.shown}{ending}": name for ending in endings}
    return names


def test_queries_and_rules_name_metrics_and_labels_that_there_are() -> None:
    names = shown_names()
    for expression in (*(query.expr for query in QUERIES), *(rule["expr"] for rule in rules())):
        used = re.findall(r"draftfleet_\w+", expression)
        assert used, expression
        assert set(used) <= names.keys(), expression
        labels = {label.name: label for name in used for label in METRICS[names[name]].labels}
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            assert set(grouped.replace(" ", "").split(",")) <= {*labels, "le", ""}, expression
        for label, _, values in re.findall(r"(\w+)(=~|!=|=)\"([^\"]*)\"", expression):
            assert set(values.split("|")) <= set(labels[label].values), expression


def test_the_dashboard_is_the_generated_one() -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="it needs Python 3.11 and the extra dev")
    from orchestration.monitoring.dashboard import PATH, dashboard

    assert PATH.read_text(encoding="utf-8") == dashboard(), "run: python -m orchestration.monitoring.dashboard"


def test_the_dashboard_has_every_query_once_and_no_panel_over_another() -> None:
    board = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert sorted(t["expr"] for p in panels for t in p.get("targets", ())) == sorted(query.expr for query in QUERIES)
    taken = set()
    for panel in panels:
        targets = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(targets)) == len(targets)
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert at["x"] + at["w"] <= 24


def test_every_alert_is_tested_fired_and_quiet() -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text(encoding="utf-8"))["tests"]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {check["alertname"] for check in checks if check.get("exp_alerts")} == names
    assert {check["alertname"] for check in checks if not check.get("exp_alerts")} == names


@needs_promtool
def test_alerts_fire_when_they_should() -> None:
    told = subprocess.run(["promtool", "test", "rules", str(UNIT_TESTS)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


@needs_promtool
def test_prometheus_takes_the_rules_the_configuration_and_the_queries(tmp_path: Path) -> None:
    # Grafana puts the window in.
    recorded = [
        {"record": f"query_{number}", "expr": query.expr.replace(WINDOW, "5m")} for number, query in enumerate(QUERIES)
    ]
    queries = tmp_path / "queries.yaml"
    queries.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}), encoding="utf-8")
    for what, path in (("rules", ALERTS), ("config", FOLDER / "prometheus.yaml"), ("rules", queries)):
        told = subprocess.run(["promtool", "check", what, str(path)], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stdout + told.stderr
