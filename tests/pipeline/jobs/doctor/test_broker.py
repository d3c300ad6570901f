"""The doctor's report on brokers, with scripted clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_client.error import (
    AccessRefusedError,
    ConnectFailedError,
    NotAuthenticatedError,
    NotFoundError,
    UnavailableError,
)
from headrace_client.export import Group, Groups, Shard, Shards
from headrace_client.lease_value import GroupState
from headrace_pipeline.jobs.doctor.broker import (
    check_brokers,
    check_clock,
    check_endpoints,
    check_lease_group,
    check_log_group,
    check_log_in,
    check_rights,
)
from headrace_pipeline.jobs.doctor.check import Check
from headrace_pipeline.options.connection import Connection

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


class FakeClient:
    """A client whose answers are values, or errors to raise."""

    endpoint = "a:1"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.closed = False
        self.export = SimpleNamespace(
            shards=lambda log, vhost="": self.answer(log),
            groups=lambda log, group: self.answer("groups"),
        )
        self.advice = SimpleNamespace(delete=lambda queue: self.answer("advice"))

    def lease_group(self, queue: str, group: str) -> Any:
        return SimpleNamespace(describe=lambda: self.answer("lease"))

    def answer(self, name: str) -> Any:
        found = self.answers.get(name, Shards(()))
        if isinstance(found, Exception):
            raise found
        return found

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def client(**answers: Any) -> Any:
    return FakeClient(**answers)


def samples(age_s: float = 1.0, missing: tuple[str, ...] = ()) -> Shards:
    last_ms = NOW_MS - int(age_s * 1000)
    return Shards((Shard("n1", 1, 0, 9, last_ms=last_ms, node="n1"),), missing)


def states(checks: Iterator[Check]) -> dict[str, str]:
    return {each.name: each.state for each in checks}


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_one_endpoint_that_answers_is_enough_and_the_others_are_told(
    listening: str, closed: str
) -> None:
    def state(endpoints: str) -> str:
        [check] = check_endpoints(Connection(endpoints))
        return check.state

    assert state(listening) == "ok"
    assert state(f"{closed},{listening}") == "warn"
    assert state(closed) == "fail"


def test_a_log_in_that_is_refused_names_the_options_to_look_at() -> None:
    def refused(connection: Connection) -> Any:
        raise NotAuthenticatedError("user 'u' is not known, or the password is wrong")

    def unreachable(connection: Connection) -> Any:
        raise ConnectFailedError("no endpoint answers")

    check, found = check_log_in(Connection("a:1"), refused)
    assert (check.state, found) == ("fail", None)
    assert "--password-file" in check.advice
    assert check_log_in(Connection("a:1"), unreachable)[0].state == "fail"
    assert check_log_in(Connection("a:1"), lambda _: client())[0].says == "as guest at a:1"


def test_rights_that_all_are_there() -> None:
    archive = Shards((Shard("a", 1, 10, 30, vhost="/", queue="q"),))
    able = client(flow_samples=samples(), archive=archive, advice=NotFoundError("no such queue"))
    checks = list(check_rights(able, "/"))
    assert {each.state for each in checks} == {"ok"}
    assert "1 queues of vhost '/', 20 rows" in checks[1].says


def test_a_right_that_lacks_is_a_warning_that_says_which_to_give() -> None:
    refused = AccessRefusedError("needs a tag")
    checks = check_rights(client(flow_samples=refused, archive=refused, advice=refused), "/")
    found = {each.name: each for each in checks}
    assert {each.state for each in found.values()} == {"warn"}
    assert found["telemetry"].advice == "give the user the tag monitoring"
    assert found["advice"].advice == "give the user the tag policymaker"


def test_what_is_switched_off_or_down_is_told() -> None:
    assert states(check_rights(client(), "/")) == {
        "telemetry": "warn",
        "archives": "warn",
        "advice": "ok",
    }
    down = client(flow_samples=samples(missing=("n2",)), advice=UnavailableError("starts"))
    found = states(check_rights(down, "/"))
    assert (found["telemetry"], found["advice"]) == ("warn", "fail")


@pytest.mark.parametrize(("age_s", "state"), [(1, "ok"), (-1, "ok"), (60, "warn"), (-60, "warn")])
def test_the_clock_is_compared_with_the_last_samples(age_s: float, state: str) -> None:
    assert check_clock(client(flow_samples=samples(age_s)), NOW).state == state


def test_without_samples_the_clock_is_not_known() -> None:
    assert check_clock(client(), NOW).state == "warn"
    assert check_clock(client(flow_samples=UnavailableError("x")), NOW).state == "warn"


def test_a_group_that_holds_messages_is_a_warning() -> None:
    later, earlier = (NOW + timedelta(seconds=each) for each in (20, -20))

    def state(answer: Any) -> str:
        return check_lease_group(client(lease=answer), "q", "g", NOW).state

    assert state(None) == "ok"
    assert state(GroupState("g", 3, 4, 3)) == "ok"
    assert state(GroupState("g", 3, 4, 3, earlier)) == "ok"
    assert state(GroupState("g", 3, 4, 3, later)) == "warn"
    assert state(AccessRefusedError("no")) == "warn"


def test_rows_that_were_dropped_unread_fail() -> None:
    def check(committed: int) -> Check:
        group = Group("n1", "g", 2, committed, NOW_MS, 1, first_index=10, next_index=30)
        return check_log_group(client(groups=Groups((group,))), "flow_samples", "g")

    assert check(15).state == "ok"
    assert "15 rows behind" in check(15).says
    assert check(4).state == "fail"
    assert "6 dropped unread" in check(4).says
    none = check_log_group(client(groups=Groups(())), "flow_samples", "g")
    assert none.state == "ok"


def test_the_client_is_closed_and_groups_come_last(listening: str) -> None:
    made = client(flow_samples=samples())
    last = Check("group", "ok", "x")
    checks = check_brokers(Connection(listening), lambda _: made, lambda _: [last], lambda: NOW)
    assert checks[-1] == last
    assert made.closed
    names = [each.name for each in checks]
    assert names == ["endpoints", "log-in", "telemetry", "archives", "advice", "clock", "group"]


def test_nothing_is_asked_of_brokers_that_are_not_there(closed: str) -> None:
    checks = check_brokers(Connection(closed), lambda _: client(), lambda _: [])
    assert [each.name for each in checks] == ["endpoints"]
