"""Writes Grafana's dashboard beside this file: python -m orchestration.monitoring.dashboard"""

from __future__ import annotations

import itertools
import string
from pathlib import Path

from grafana_foundation_sdk.builders.common import StackingConfig
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef

from orchestration.monitoring.panels import ROWS, Panel

PATH = Path(__file__).with_name("dashboard.json")
_SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
_COLUMNS = 24
_HEIGHT = 8


def dashboard() -> str:
    """As JSON, to be imported into Grafana or mounted for its provisioning."""
    board = (
        Dashboard("draftfleet")
        .uid("draftfleet")
        .tags(["draftfleet"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .with_variable(DatasourceVariable("source").label("Prometheus").type("prometheus"))
    )
    numbers = itertools.count(1)
    for title, panels in ROWS.items():
        board = board.with_row(Row(title).id(next(numbers)))
        for panel in panels:
            board = board.with_panel(_panel(panel).id(next(numbers)))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def _panel(panel: Panel) -> TimeSeries:
    built = (
        TimeSeries()
        .title(panel.title)
        .description(panel.meaning)
        .datasource(_SOURCE)
        .unit(panel.unit)
        .min(0)
        .fill_opacity(30 if panel.is_stacked else 0)
        .span(_COLUMNS // 3)
        .height(_HEIGHT)
    )
    if panel.most is not None:
        built = built.max(panel.most)
    if panel.is_stacked:
        built = built.stacking(StackingConfig().mode(StackingMode.NORMAL))
    for letter, query in zip(string.ascii_uppercase, panel.queries, strict=False):
        target = Dataquery().ref_id(letter).datasource(_SOURCE).expr(query.expr).legend_format(query.legend)
        built = built.with_target(target)
    return built


if __name__ == "__main__":
    PATH.write_text(dashboard(), encoding="utf-8")
