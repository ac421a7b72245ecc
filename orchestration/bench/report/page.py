"""A result as one HTML page that needs nothing else."""

from __future__ import annotations

from jinja2 import Environment

from orchestration.bench.report.plots import as_svg
from orchestration.bench.report.tables import notes, tables
from orchestration.bench.result import Result

_TEMPLATE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>draftfleet bench, {{ result.date }}</title>
<style>
  :root { color-scheme: light dark }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem }
  table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums }
  th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #8884 }
  th.name, td.name { text-align: left }
  .wide { overflow-x: auto }
  svg { max-width: 100%; height: auto; background: white }
  pre { overflow-x: auto; font-size: 12px }
</style>
<h1>draftfleet bench</h1>
<ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>
{% for table in tables %}
<h2>{{ table.title }}</h2>
<div class="wide"><table>
<tr>{% for column in table.columns %}<th{% if loop.index <= table.num_names %} class="name"{% endif %}>{{ column }}</th>
{%- endfor %}</tr>
{% for row in table.rows %}<tr>{% for value in row %}<td{% if loop.index <= table.num_names %} class="name"{% endif %}>
{{- value }}</td>{% endfor %}</tr>
{% endfor %}</table></div>
{% endfor %}
{% if plot %}<h2>Plots</h2>{{ plot | safe }}{% else %}<p>No plots: matplotlib was not installed.</p>{% endif %}
<h2>Method</h2><p>{{ result.method }}</p>
<h2>Versions and settings</h2>
<pre>{{ details }}</pre>
</html>
"""


def as_html(result: Result) -> str:
    """Without plots where matplotlib is missing."""
    try:
        plot = as_svg(result)
    except ImportError:
        plot = ""
    details = result.model_dump_json(indent=1, include={"versions", "settings", "arms"})
    return (
        Environment(autoescape=True)
        .from_string(_TEMPLATE)
        .render(result=result, notes=notes(result), tables=tables(result), plot=plot, details=details)
    )
