"""The log as JSON, and a file for the audit log."""

from __future__ import annotations

import json
import logging
import stat

import pytest

from headrace_broker.cli import log_format
from headrace_broker.config.configuration import ConfigError, LoggingSection
from headrace_broker.model.limits import LOG_EXCEPTION_CHARACTERS_MAX, LOG_MESSAGE_CHARACTERS_MAX
from headrace_broker.runtime.security import audit
from headrace_broker.runtime.security.audit import ACTOR, Actor


@pytest.fixture
def set_up(monkeypatch):
    """Sets logging up as a node does, on loggers of its own, and takes it back."""
    handler = logging.StreamHandler()
    handler.setFormatter(log_format.HumanFormatter())
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [handler])
    before = audit.LOG.level
    token = ACTOR.set(Actor("ann", "192.0.2.7:5", "http", "r-1"))

    def work(process: str = "", **more) -> logging.StreamHandler:
        log_format.set_up(LoggingSection(**more), process)
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


def test_lines_name_the_process_where_a_node_has_several(set_up):
    line = set_up("n1:1", format="json").formatter.format(record("a"))
    assert json.loads(line)["process"] == "n1:1"
    assert set_up("n1:1").formatter.format(record("a")).startswith("n1:1 20")
    assert "process" not in json.loads(set_up(format="json").formatter.format(record("a")))


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


HOSTILE = {
    "a line": "ann\n2026-01-01 00:00:00,000 INFO    headrace.audit: user=root outcome=done",
    "a line of old": "ann\r2026-01-01 root",
    "Unicode's lines": "ann\u2028x\u2029y\x85z\x0bv\x0cw",
    "a terminal": "ann\x1b[2J\x9b2J\x07\x7f",
    "directions": "ann\u202etoor\u2066x\u2069\u200f\u061c",
    "no width": "a\u200bn\ufeffn",
    "NUL": "ann\0root",
    "surrogates": "ann\udcff",
    "beyond 16 bits": "ann\U000e0001",
}


@pytest.mark.parametrize("kind", ["human", "json"])
@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("where", ["message", "argument", "name", "exception", "fields"])
def test_what_clients_say_stays_on_its_line_and_moves_no_cursor(set_up, kind, said, where):
    formatter = set_up(format=kind).formatter
    found = record("user %s is refused", said if where == "argument" else "ann")
    if where == "message":
        found = record(f"user {said} is refused")
    elif where == "name":
        found.name = said
    elif where == "fields":
        found.fields = {"user": said}
    elif where == "exception":
        try:
            raise ValueError(said)
        except ValueError as error:
            found.exc_info = (ValueError, error, error.__traceback__)
    line = formatter.format(found)
    assert line.encode()  # a file takes it
    first, *more = line.split("\n")
    assert all(each.isprintable() for each in (first, *more))
    assert all(each.startswith("  ") for each in more)  # what is no record does not look like one
    if kind == "json":
        assert not more
        read = json.loads(line)
        if where in ("message", "argument"):
            assert said in read["message"]  # programs get what was said


@pytest.mark.parametrize("kind", ["human", "json"])
def test_nobody_fills_the_log_with_one_line(set_up, kind):
    formatter = set_up(format=kind).formatter
    found = record("user %s is refused", "x" * 1_000_000)
    try:
        raise ValueError("y" * 1_000_000)
    except ValueError as error:
        found.exc_info = (ValueError, error, error.__traceback__)
    text = formatter.format(found)
    assert len(text) < 2 * (LOG_MESSAGE_CHARACTERS_MAX + LOG_EXCEPTION_CHARACTERS_MAX)
    assert "more characters)" in text


@pytest.mark.parametrize("kind", ["human", "json"])
def test_what_people_write_is_left_as_it_is(set_up, kind):
    formatter = set_up(format=kind).formatter
    line = formatter.format(record("queue '%s' has %d messages", "Aufträge ありがとう", 3))
    assert "queue 'Aufträge ありがとう' has 3 messages" in line


def test_a_record_is_written_before_the_configuration_is_read(monkeypatch, capsys):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    before = root.level
    log_format.begin("info")
    root.warning("a\nb")
    root.setLevel(before)
    assert capsys.readouterr().err.endswith(r"WARNING root: a\nb" + "\n")
    (handler,) = root.handlers
    assert log_format.BUDGET in handler.filters


def test_the_audit_file_is_written_likewise(set_up, tmp_path):
    file = tmp_path / "audit.log"
    set_up(audit_file=str(file))
    audit.LOG.info("user=%s", "ann\n2026-01-01 user=root\u2028\x1b")
    assert len(file.read_text().splitlines()) == 1


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


def test_what_clients_say_looks_like_no_event(set_up):
    handler = set_up()
    line = handler.format(record("user %r refused", "x' | event=node_expelled node=a"))
    assert " | event=" not in line
    assert r"\x7c event=node_expelled" in line
