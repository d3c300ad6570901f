"""/api/log-level."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import get_args

import pytest

from headrace_broker.logs.log_event import LOGGERS
from headrace_broker.management.resources.log_level import Logger
from headrace_broker.runtime.administration.log_level import LogLevels
from headrace_broker.runtime.rpc.correlator import Rpc


@pytest.fixture(autouse=True)
def root_level() -> Iterator[None]:
    """Put the level back as it was."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)
    for name in get_args(Logger):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_the_level_is_set_shown_and_recorded(api, caplog):
    caplog.set_level("INFO", "headrace.audit")
    for level in ("debug", "error"):
        assert api("PUT", "/api/log-level", {"level": level}) == (204, None)
        assert api("GET", "/api/log-level", user="mon") == (
            200,
            {"node": "n1", "level": level, "loggers": {}},
        )
        assert logging.getLogger().level == getattr(logging, level.upper())
    lines = [each.getMessage() for each in caplog.records if each.name == "headrace.audit"]
    assert len(lines) == 2  # whatever the level is
    assert "user=guest" in lines[1]
    assert lines[1].endswith("action=set_log_level target=n1 outcome=done level=error")


def test_one_logger_has_a_level_of_its_own_until_all_are_set(api):
    raft = logging.getLogger("headrace.raft")
    assert api("PUT", "/api/log-level", {"level": "warning"}) == (204, None)
    body = {"level": "debug", "logger": "headrace.raft"}
    assert api("PUT", "/api/log-level", body) == (204, None)
    assert raft.isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("headrace.cluster").isEnabledFor(logging.INFO)
    _, found = api("GET", "/api/log-level")
    assert found["loggers"] == {"headrace.raft": "debug"}
    assert api("PUT", "/api/log-level", {"level": "error"}) == (204, None)
    assert not raft.isEnabledFor(logging.WARNING)


def test_processes_that_do_not_answer_are_named(api, node):
    node.log_levels = LogLevels(Rpc(1, lambda peer, data: False), {1: "n1", 65: "n1:1"}, [65, 1])
    status, answer = api("PUT", "/api/log-level", {"level": "debug"})
    assert (status, answer["reason"]) == (503, "the level is set, but not of n1:1: no answer")
    assert logging.getLogger().level == logging.DEBUG


def test_a_level_is_for_loggers_that_there_are(refused):
    body = {"level": "debug", "logger": "headrace.audit"}
    assert refused(400, "PUT", "/api/log-level", body).startswith("logger:")


def test_loggers_that_are_listed_may_have_a_level():
    assert {*get_args(Logger), "headrace.audit"} == set(LOGGERS)


def test_the_level_is_for_administrators_and_one_that_there_is(refused):
    refused(403, "PUT", "/api/log-level", {"level": "debug"}, user="mon")
    refused(403, "GET", "/api/log-level", user="alice")
    assert refused(400, "PUT", "/api/log-level", {"level": "all"}).startswith("level:")
    assert logging.getLogger().level != logging.DEBUG
