"""Dashboards and alert rules speak of metrics, labels and values that there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_broker.core.queue.messages.effect import REASON_NAMES
from headrace_broker.model.flow import LIMIT_NAMES
from headrace_broker.runtime.explain.flow_totals import ALARMS, KINDS, STATES
from headrace_broker.runtime.metrics.catalogue import METRICS
from headrace_broker.runtime.metrics.metric import HISTOGRAM, PREFIX
from headrace_broker.runtime.security.authenticator import PROTOCOLS, RESULTS

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "charts" / "headrace"
RULES = sorted((CHART / "rules").glob("*.yaml"))
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))

SUFFIXES = ("_bucket", "_sum", "_count")
FOREIGN = {  # of Prometheus itself, and of prometheus_client
    "up",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
    "process_cpu_seconds_total",
}
TARGET = {"job", "instance"}  # what Prometheus adds
VALUES = {
    "kind": {*ALARMS, *KINDS},
    "limit": {name for name in LIMIT_NAMES if name},
    "protocol": set(PROTOCOLS),
    "reason": set(REASON_NAMES.values()),
    "result": set(RESULTS),
    "state": set(STATES),
}
SELECTOR = re.compile(r"\b((?:headrace_|process_)[a-z0-9_]+|up)\b(?!\s*\()(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
RECORD = re.compile(r"\bheadrace:[a-z0-9_:]+")


def expressions(path: Path) -> Iterator[str]:
    """The queries of a dashboard or of a file of rules."""
    text = path.read_text()
    if path.suffix == ".json":
        for panel in json.loads(text)["panels"]:
            for target in panel.get("targets", ()):
                yield target["expr"]
        return
    for match in re.finditer(r"^ +expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)", text, re.MULTILINE):
        yield " ".join((match[1] or match[2]).split())


def selectors(path: Path) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Names of metrics with their matchers: label, operator, value."""
    for expression in expressions(path):
        for name, matchers in SELECTOR.findall(expression):
            yield name, MATCHER.findall(matchers)


def labels_of(name: str) -> set[str] | None:
    """Labels of a series by its name; None where there is no such series."""
    if name in FOREIGN:
        return set()
    bare = name.removeprefix(PREFIX)
    for suffix in SUFFIXES:
        metric = METRICS.get(bare.removesuffix(suffix))
        if bare.endswith(suffix) and metric is not None and metric.kind == HISTOGRAM:
            return {*metric.labels, "le"}
    metric = METRICS.get(bare)
    return set(metric.labels) if metric is not None and metric.kind != HISTOGRAM else None


def problems(name: str, matchers: list[tuple[str, str, str]]) -> list[str]:
    labels = labels_of(name)
    if labels is None:
        return [f"there is no {name}"]
    found = [
        f"{name} has no label {label}" for label, _, _ in matchers if label not in labels | TARGET
    ]
    for label, operator, value in matchers:
        known = VALUES.get(label)
        if known is None:
            continue
        parts = value.split("|") if operator in ("=~", "!~") else [value]
        found += [
            f"{name}: no {label} is {part}"
            for part in parts
            if not any(re.fullmatch(part, each) for each in known)
        ]
    return found


@pytest.mark.parametrize("path", [*RULES, *DASHBOARDS], ids=lambda path: path.name)
def test_what_is_asked_for_is_there(path: Path) -> None:
    found = list(selectors(path))
    assert len(found) >= 5
    assert [text for name, matchers in found for text in problems(name, matchers)] == []


def test_recorded_series_are_recorded() -> None:
    text = "".join(path.read_text() for path in RULES)
    recorded = set(re.findall(r"^ +- record: (\S+)$", text, re.MULTILINE))
    used = {name for path in RULES for each in expressions(path) for name in RECORD.findall(each)}
    assert used <= recorded


@pytest.mark.parametrize(
    ("name", "matchers", "text"),
    [
        ("headrace_flow_alarms", [], "there is no"),
        ("headrace_log_sync_duration_seconds", [], "there is no"),
        ("headrace_queues_count", [], "there is no"),
        ("headrace_flow_alarm", [("limit", "=", "memory-alarm")], "has no label"),
        ("headrace_flow_alarm", [("kind", "=", "memory")], "no kind is memory"),
        ("headrace_logins_total", [("result", "=~", "refused|late")], "no result is late"),
    ],
)
def test_what_is_misspelled_is_found(
    name: str, matchers: list[tuple[str, str, str]], text: str
) -> None:
    [problem] = problems(name, matchers)
    assert text in problem


def test_alerts_are_named_once_and_say_what_is_to_be_done() -> None:
    names: list[str] = []
    for path in RULES:
        for rule in re.split(r"^ +- alert: ", path.read_text(), flags=re.MULTILINE)[1:]:
            names.append(rule.split()[0])
            for part in ("expr:", "severity:", "summary:", "description:"):
                assert rule.count(f" {part}") == 1, (names[-1], part)
    assert len(names) == len(set(names))
    assert all(name.startswith("Headrace") for name in names)


def test_dashboards_are_what_their_tables_say() -> None:
    script = ROOT / "charts" / "grafana" / "dashboards.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_panels_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    panels = json.loads(path.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken
        taken |= cells
