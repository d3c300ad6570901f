"""Advice in the catalog: kept, snapshotted, replaced, dropped with its queue."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.advice import CONSUMERS, Advice
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.proposal import command_problem
from headrace_broker.catalog.result import Exists, NotFound, Ok

FIGURES = (("backlog", "1e+21"), ("rate", "0.1"))
ADVICE = Advice("/", "q", CONSUMERS, 8, 2, "because", 2000, "me", 1000, FIGURES)


def kept(catalog: Catalog) -> list[Advice]:
    return list(catalog.advice.valid(0))


def version(catalog: Catalog) -> int:
    found: int = msgspec.msgpack.decode(catalog.snapshot())["version"]
    return found


def test_advice_is_in_snapshots_and_leaves_them_as_they_were(driver: Any) -> None:
    driver.queue("q")
    before = driver.catalog.snapshot()
    plain = version(driver.catalog)
    assert driver.do(commands.PutAdvice((ADVICE,), 1000)) == Ok(1)
    assert version(driver.catalog) == 6
    restored = Catalog.restore(driver.catalog.snapshot())
    assert kept(restored) == [ADVICE]
    assert restored.digest() == driver.catalog.digest()
    assert driver.do(commands.DeleteAdvice("/", "q")) == Ok(1)
    assert driver.do(commands.DeleteAdvice("/", "q")) == Exists(0)
    assert version(driver.catalog) == plain
    assert kept(Catalog.restore(before)) == []


def test_order_of_arrival_is_not_in_the_state(driver: Any) -> None:
    driver.queue("q")
    other = msgspec.structs.replace(ADVICE, author="another")
    driver.do(commands.PutAdvice((ADVICE, other), 1000))
    assert kept(driver.catalog) == [other, ADVICE]
    assert kept(Catalog.restore(driver.catalog.snapshot())) == [other, ADVICE]


def test_what_has_lapsed_is_dropped_by_the_time_of_a_command(driver: Any) -> None:
    driver.queue("q")
    driver.do(commands.PutAdvice((ADVICE,), 1000))
    later = msgspec.structs.replace(ADVICE, author="another", valid_until_ms=5000)
    driver.do(commands.PutAdvice((later,), 1999))
    assert kept(driver.catalog) == [later, ADVICE]
    driver.do(commands.PutAdvice((later,), 2000))
    assert kept(driver.catalog) == [later]


def test_queue_that_is_gone_takes_its_advice_along(driver: Any) -> None:
    driver.queue("q")
    driver.queue("other")
    more = msgspec.structs.replace(ADVICE, queue="other")
    driver.do(commands.PutAdvice((ADVICE, more), 1000))
    driver.do(commands.DeleteQueue("/", "q"))
    assert kept(driver.catalog) == [more]
    assert driver.do(commands.PutAdvice((more, ADVICE), 1000)) == NotFound("queue 'q' in vhost '/'")


def test_advice_of_no_kind_is_not_proposed() -> None:
    wrong = msgspec.structs.replace(ADVICE, kind="mood")
    assert command_problem(commands.PutAdvice((ADVICE,), 1000)) == ""
    assert command_problem(commands.PutAdvice((ADVICE, wrong), 1000)).startswith("items[1].kind: ")
