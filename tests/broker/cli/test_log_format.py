"""The log as JSON, and a file for the audit log."""

from __future__ import annotations

import json
import logging
import stat

import pytest

from headrace_broker.cli import log_format
from headrace_broker.config import ConfigError, LoggingSection
from headrace_broker.runtime import audit
from headrace_broker.runtime.audit import ACTOR, Actor


@pytest.fixture
def set_up(monkeypatch):
    """Sets logging up as a node does, on loggers of its own, and takes it back."""
    handler = logging.StreamHandler()
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [handler])
    before = audit.LOG.level
    token = ACTOR.set(Actor("ann", "192.0.2.7:5", "http", "r-1"))

    def work(**more) -> logging.StreamHandler:
        log_format.set_up(LoggingSection(**more))
        return handler

    yield work
    ACTOR.reset(token)
    for each in list(audit.LOG.handlers):
        audit.LOG.removeHandler(each)
        each.close()
    audit.LOG.setLevel(before)


def record(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    found = logging.LogRecord("x.y", logging.WARNING, "f.py", 1, message, arguments, None)
    found.__dict__.update(more)
    return found


def test_a_record_is_one_line_of_json_whatever_is_in_it(set_up):
    formatter = set_up(format="json").formatter
    found = record("a\n%s", '"quoted"', request_id="r-1", fields={"user": "ann", "n": 3})
    found.created = 1_700_000_000.5
    line = formatter.format(found)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "warning",
        "logger": "x.y",
        "message": 'a\n"quoted"',
        "request": "r-1",
        "fields": {"user": "ann", "n": 3},
    }


def test_an_exception_comes_along(set_up):
    formatter = set_up(format="json").formatter
    try:
        raise ValueError("why")
    except ValueError as error:
        found = record("failed", request_id="-")
        found.exc_info = (ValueError, error, error.__traceback__)
    line = json.loads(formatter.format(found))
    assert "ValueError: why" in line["exception"]
    assert "request" not in line


def test_people_get_lines_as_before(set_up):
    assert set_up().formatter is None


@pytest.mark.parametrize("kind", ["human", "json"])
def test_the_audit_log_may_have_a_file_that_only_its_owner_reads(set_up, tmp_path, kind):
    file = tmp_path / "audit.log"
    set_up(format=kind, audit_file=str(file))
    audit.record("purge_queue", "orders", messages=3)
    [line] = file.read_text(encoding="utf-8").splitlines()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    if kind == "json":
        assert json.loads(line)["fields"]["messages"] == 3
    else:
        assert line.endswith(
            "headrace.audit: user=ann peer=192.0.2.7:5 protocol=http request=r-1 "
            "action=purge_queue target=orders outcome=done messages=3"
        )


def test_a_file_that_cannot_be_written_is_refused(set_up, tmp_path):
    with pytest.raises(ConfigError, match=r"^logging\.audit_file: .*: cannot be written: "):
        set_up(audit_file=str(tmp_path / "nowhere" / "audit.log"))
