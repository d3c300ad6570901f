"""The list of events of the log: complete, in the documents, and fit for both formats."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

import headrace_raftlog.log_event as raft_event
from headrace_broker.cli.log_format import HumanFormatter, JsonFormatter
from headrace_broker.logs import log_event as broker_event
from headrace_broker.logs.log_event import EVENTS, LINES_LEFT_OUT, LOGGERS, Event, log_event
from headrace_broker.model.limits import LOG_FIELD_CHARACTERS_MAX

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "logging.md"
RESERVED = {"time", "level", "logger", "message", "request", "exception", "event", "fields"}
LOG = logging.getLogger("headrace.test")


class Kept(logging.Handler):
    """Keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    found = Kept()
    monkeypatch.setattr(LOG, "handlers", [found])
    monkeypatch.setattr(LOG, "propagate", False)
    monkeypatch.setattr(LOG, "level", logging.DEBUG)
    LOG.manager._clear_cache()  # type: ignore[attr-defined]
    return found


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading of the document, without its head."""
    text = DOCUMENT.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def level_name(level: int) -> str:
    return str(logging.getLevelName(level)).lower()


def values(event: Event) -> dict[str, Any]:
    """Return a value for each field, of the kind that its place in the sentence wants."""
    kinds = dict(re.findall(r"%\((\w+)\)[.0-9]*([a-z])", event.sentence))
    found = {"d": 7, "f": 1.5}
    return {name: found.get(kinds.get(name, "s"), "x") for name in event.fields}


def test_the_document_has_every_event_with_its_level_and_fields() -> None:
    told = {row[0].strip("`"): row for row in rows("Events")}
    assert list(told) == [event.name for event in EVENTS]
    for event in EVENTS:
        _, level, fields, when, what = told[event.name]
        more = f", {level_name(event.lower)} for queues" if event.lower else ""
        assert level == level_name(event.level) + more, event.name
        names = [f"`{name}`" for name in event.fields]
        names += [f"[`{name}`]" for name in event.optional]
        assert fields == ", ".join(names), event.name
        assert when, event.name
        assert what, event.name


def test_the_document_has_every_logger() -> None:
    assert {row[0].strip("`"): row[1] for row in rows("Loggers")} == LOGGERS


def test_every_event_that_is_defined_is_listed() -> None:
    for module in (raft_event, broker_event):
        for found in vars(module).values():
            if isinstance(found, Event):
                assert found in EVENTS, found.name
    assert len({event.name for event in EVENTS}) == len(EVENTS)


def test_fields_hide_no_key_of_the_format_and_sentences_use_fields_of_theirs() -> None:
    for event in EVENTS:
        assert not RESERVED & {*event.fields, *event.optional}, event.name
        assert event.sentence % values(event)


def test_loggers_of_the_source_are_listed() -> None:
    named = re.compile(r"getLogger\(\"(headrace[^\"]*)\"\)")
    found: set[str] = set()
    for folder in ("broker/headrace_broker", "raftlog/headrace_raftlog"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert "getLogger(__name__)" not in text, path
            found.update(named.findall(text))
    assert found == set(LOGGERS)


@pytest.mark.parametrize("event", EVENTS, ids=[event.name for event in EVENTS])
def test_an_event_is_written_in_both_formats(kept: Kept, event: Event) -> None:
    fields = values(event)
    log_event(LOG, event, **fields)
    [record] = kept.records
    line = json.loads(JsonFormatter().format(record))
    assert fields.items() <= line.items()
    assert (line["event"], line["level"]) == (event.name, level_name(event.level))
    human = HumanFormatter().format(record)
    assert f" | event={event.name} " in human
    assert all(f" {name}={value}" in human for name, value in fields.items())


def test_names_of_clients_forge_no_field_and_have_a_bound(kept: Kept) -> None:
    name = "q event=leader_elected term=9\n" + "x" * 1000
    event = Event("queue_declared", logging.INFO, "queue %(queue)r", ("queue",))
    log_event(LOG, event, queue=name)
    human = HumanFormatter().format(kept.records[0])
    assert human.split(" | ")[1].startswith('event=queue_declared queue="q event=leader_elected')
    assert "\n" not in human
    line = json.loads(JsonFormatter().format(kept.records[0]))
    assert len(line["queue"]) < LOG_FIELD_CHARACTERS_MAX + 40
    assert line["queue"].startswith(name[:LOG_FIELD_CHARACTERS_MAX])


def test_a_level_that_is_off_writes_nothing(kept: Kept) -> None:
    LOG.setLevel(logging.WARNING)
    log_event(LOG, LINES_LEFT_OUT, count=1, seconds=1.0, of="x", last="y")
    assert not kept.records
