"""Lines that anybody may cause: how many are written, and that it is said how many were not."""

from __future__ import annotations

import asyncio
import functools
import io
import logging
from collections.abc import Callable, Iterator

import pytest

from headrace_broker.cli import log_budget
from headrace_broker.cli.log_budget import LogBudget
from headrace_broker.logs.log_event import DEBUG, INFO, Event, log_event
from headrace_broker.model.limits import (
    LOG_EVENT_LINES,
    LOG_EVENT_SECONDS,
    LOG_UNPROVEN_LINES,
    LOG_UNPROVEN_PLACE_LINES,
    LOG_UNPROVEN_SECONDS,
)
from headrace_broker.runtime.security.audit import Actor, record_by
from headrace_broker.runtime.security.unproven_log import unproven

LOG = logging.getLogger("test.log_budget")


class Written:
    """Lines of two handlers that share a budget."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.undo: list[Callable[[], None]] = []
        budget = LogBudget(lambda: self.now)
        self.streams = [io.StringIO(), io.StringIO()]
        handlers = [logging.StreamHandler(stream) for stream in self.streams]
        for handler in handlers:
            handler.addFilter(budget)
        for name in ("test.log_budget", "headrace.audit"):
            logger = logging.getLogger(name)
            monkeypatch.setattr(logger, "handlers", handlers)
            monkeypatch.setattr(logger, "propagate", False)
            before = logger.level
            logger.setLevel(logging.INFO)
            self.undo.append(functools.partial(logger.setLevel, before))

    @property
    def lines(self) -> list[str]:
        first, second = (stream.getvalue().splitlines() for stream in self.streams)
        assert first == second
        return first


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    found = Written(monkeypatch)
    yield found
    for each in found.undo:
        each()


def refuse(host: str) -> None:
    LOG.warning("%s is refused", host, extra=unproven(host))


def test_one_address_fills_no_log_and_leaves_room_for_others(written: Written) -> None:
    for _ in range(10_000):
        refuse("192.0.2.1")
    assert len(written.lines) == LOG_UNPROVEN_PLACE_LINES
    refuse("192.0.2.2")
    assert written.lines[-1] == "192.0.2.2 is refused"


def test_many_addresses_do_not_either(written: Written) -> None:
    for number in range(10_000):
        refuse(f"2001:db8:0:{number:x}::1")
    assert len(written.lines) == LOG_UNPROVEN_LINES


def test_addresses_of_one_site_are_one(written: Written) -> None:
    for number in range(100):
        refuse(f"2001:db8::{number:x}")
    assert len(written.lines) == LOG_UNPROVEN_PLACE_LINES


def test_how_many_were_left_out_is_said_with_the_next_one(written: Written) -> None:
    for _ in range(100):
        refuse("192.0.2.1")
    written.now += LOG_UNPROVEN_SECONDS
    refuse("192.0.2.3")
    said, last = written.lines[-2:]
    assert said == (
        f"{100 - LOG_UNPROVEN_PLACE_LINES} more lines like this were left out within "
        f"{LOG_UNPROVEN_SECONDS:.0f} s: 192.0.2.1 is refused"
    )
    assert last == "192.0.2.3 is refused"


def test_how_many_were_left_out_is_said_when_nobody_comes_any_more(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_budget, "LOG_UNPROVEN_SECONDS", 0.01)

    async def body() -> None:
        for _ in range(100):
            refuse("192.0.2.1")
        async with asyncio.timeout(30):
            while "were left out" not in written.lines[-1]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    asyncio.run(body())


def test_what_is_not_marked_is_always_written(written: Written) -> None:
    for number in range(100):
        LOG.warning("line %d", number)
    assert len(written.lines) == 100


def test_log_ins_that_fail_do_not_fill_the_audit_log_and_changes_are_all_in_it(
    written: Written,
) -> None:
    actor = Actor("ann", "[2001:db8::1]:5", "http")
    for _ in range(100):
        record_by(actor, "login", "ann", "refused")
    assert len(written.lines) == LOG_UNPROVEN_PLACE_LINES
    for _ in range(100):
        record_by(actor, "delete_queue", "orders")
    assert len(written.lines) == LOG_UNPROVEN_PLACE_LINES + 100


STORM = Event("leader_followed", INFO, "group %(group)d", ("group",), (), DEBUG)
OTHER = Event("peer_down", INFO, "node %(peer)d", ("peer",))


def test_a_storm_of_one_event_leaves_room_for_others_and_for_its_higher_level(
    written: Written,
) -> None:
    LOG.setLevel(logging.DEBUG)
    for group in range(10_000):
        log_event(LOG, STORM, DEBUG, group=group)
    assert len(written.lines) == LOG_EVENT_LINES
    log_event(LOG, STORM, group=0)
    log_event(LOG, OTHER, peer=2)
    assert written.lines[-2:] == ["group 0", "node 2"]


def test_how_many_lines_of_a_storm_were_left_out_is_said_once_it_is_over(written: Written) -> None:
    for group in range(LOG_EVENT_LINES + 7):
        log_event(LOG, STORM, group=group)
    written.now += LOG_EVENT_SECONDS
    log_event(LOG, STORM, group=1)
    assert written.lines[-2:] == [
        f"7 more lines like this were left out within 10 s: group {LOG_EVENT_LINES + 6}",
        "group 1",
    ]
