"""Writes the Grafana dashboards from the tables beside this module.

python charts/grafana/dashboards.py [--check]

A panel is a title, a unit of Grafana's and queries with their legends; rows of panels stand below
each other, three or four in one row. --check fails where a file is not what this would write.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from flow import FLOW
from overview import OVERVIEW
from panel import Panel, Row

DIRECTORY: Final = Path(__file__).parent.parent / "headrace" / "dashboards"
WIDTH: Final = 24  # columns of Grafana's grid
HEIGHT: Final = 8
STAT_HEIGHT: Final = 4
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
PICKED: Final = 'job=~"$job",instance=~"$instance"'


def dashboard(uid: str, title: str, text: str, rows: tuple[Row, ...]) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for name, found in rows:
        if name:
            panels.append(_head(len(panels) + 1, name, top))
            top += 1
        width = WIDTH // len(found)
        height = STAT_HEIGHT if found[0].kind == "stat" else HEIGHT
        for place, panel in enumerate(found):
            grid = {"x": place * width, "y": top, "w": width, "h": height}
            panels.append(_panel(len(panels) + 1, panel, grid))
        top += height
    return {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": ["headrace"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _head(number: int, name: str, top: int) -> dict[str, Any]:
    grid = {"x": 0, "y": top, "w": WIDTH, "h": 1}
    return {
        "id": number,
        "type": "row",
        "title": name,
        "collapsed": False,
        "gridPos": grid,
        "panels": [],
    }


def _panel(number: int, panel: Panel, grid: dict[str, int]) -> dict[str, Any]:
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
    if panel.stacked:
        custom |= {"stacking": {"mode": "normal"}, "fillOpacity": 40}
    options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}}
    if panel.kind == "timeseries":
        options = {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": grid,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": custom if panel.kind == "timeseries" else {},
            },
            "overrides": [],
        },
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": query.replace("PICK", PICKED),
                "legendFormat": legend,
            }
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    found: list[dict[str, Any]] = [source]
    for name, query in (
        ("job", "label_values(headrace_build_info, job)"),
        ("instance", 'label_values(headrace_build_info{job=~"$job"}, instance)'),
    ):
        found.append(
            {
                "name": name,
                "type": "query",
                "datasource": SOURCE,
                "query": {"query": query, "refId": name},
                "refresh": 2,
                "includeAll": True,
                "multi": True,
                "current": {"text": "All", "value": "$__all"},
                "sort": 1,
            }
        )
    return found


def documents() -> dict[str, str]:
    """Return the dashboards by the names of their files."""
    found = {
        "headrace-overview.json": dashboard(
            "headrace-overview",
            "Headrace: overview",
            "Messages, clients, replicated logs and nodes of a Headrace cluster.",
            OVERVIEW,
        ),
        "headrace-flow.json": dashboard(
            "headrace-flow",
            "Headrace: flow control",
            "Who has to wait, for which limit, and what nodes hold meanwhile.",
            FLOW,
        ),
    }
    return {name: json.dumps(body, indent=2) + "\n" for name, body in found.items()}


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    differing = [
        name
        for name, text in documents().items()
        if not (DIRECTORY / name).exists() or (DIRECTORY / name).read_text() != text
    ]
    if options.check:
        for name in differing:
            print(f"{name} is not what {Path(__file__).name} writes", file=sys.stderr)
        return 1 if differing else 0
    for name in differing:
        (DIRECTORY / name).write_text(documents()[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
