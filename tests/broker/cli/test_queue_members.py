"""`headrace queue members|grow|shrink|transfer|rebalance`: what they ask, and how they end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.broker.cli.fake_api import FakeApi

from headrace_broker.cli.main import main
from headrace_broker.cli.session.api_client import ApiAnswer

MEMBERS = "/api/queues/%2F/q/members"


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": None}).invoke(main, ["queue", *words])


def member(node: str, role: str = "voter", **more: Any) -> dict[str, Any]:
    return {
        "node": node, "member": f"{node}#1", "role": role, "leader": False, "running": True,
        "online": True, "wanted": True, "match": 9, "lag": 0, **more,
    }  # fmt: skip


def view(*rows: dict[str, Any], settled: bool = True) -> ApiAnswer:
    return ApiAnswer(200, {"settled": settled, "leader": "n1", "members": list(rows)})


def requests(api: FakeApi) -> list[tuple[Any, ...]]:
    return [each for each in api.asked if each[0] in ("GET", "PUT", "POST", "DELETE")]


def test_replicas_are_listed_and_the_exit_code_says_whether_all_is_settled(api: FakeApi) -> None:
    api.answers += [view(member("n1", leader=True), member("n2", lag=None)), view(settled=False)]
    result = run("members", "list", "q")
    assert result.exit_code == 0
    heads, first, second = result.stdout.splitlines()
    assert heads.split() == [
        *("node", "member", "role", "leader", "running", "online", "wanted", "lag")
    ]
    assert first.split() == ["n1", "n1#1", "voter", "yes", "yes", "yes", "yes", "0"]
    assert second.split() == ["n2", "n2#1", "voter", "no", "yes", "yes", "yes"]
    assert run("members", "list", "q").exit_code == 1


def test_programs_get_all_there_is_of_the_replicas(api: FakeApi) -> None:
    api.answers.append(view(member("n1"), settled=False))
    result = run("members", "list", "q", "-o", "json")
    assert (result.exit_code, msgspec.json.decode(result.stdout)["leader"]) == (1, "n1")


def test_a_replica_that_is_added_is_waited_for_until_it_votes(api: FakeApi) -> None:
    api.answers += [
        ApiAnswer(204, None),
        view(member("n1")),  # its leader has not begun yet
        view(member("n1"), member("n4", "missing", lag=None)),
        ApiAnswer(503, {"reason": "the leader does not answer"}),
        view(member("n1"), member("n4", "learner", lag=500)),
        view(member("n1", online=False), member("n4")),
    ]
    result = run("members", "add", "q", "n4")
    assert (result.exit_code, result.output) == (0, "queue 'q' has a replica on 'n4'\n")
    assert requests(api)[0] == ("PUT", f"{MEMBERS}/n4", None)
    assert requests(api)[1:] == [("GET", MEMBERS, None)] * 5


def test_a_replica_that_does_not_get_there_in_time_is_an_error(api: FakeApi) -> None:
    api.answers += [ApiAnswer(204, None), view(member("n1"), member("n4", "learner", lag=7))]
    result = run("members", "add", "q", "n4", "--wait", "1e-9")
    assert result.exit_code == 1
    assert result.output == "Error: queue 'q' is not settled after 1e-09 s: n4 is learner\n"


def test_a_queue_that_is_deleted_meanwhile_is_an_error_at_once(api: FakeApi) -> None:
    api.answers += [ApiAnswer(204, None), ApiAnswer(404, {"reason": "no queue 'q'"})]
    assert run("members", "add", "q", "n4").exit_code == 3


def test_a_replica_is_removed_once_no_other_is_on_its_way(api: FakeApi) -> None:
    api.answers += [
        ApiAnswer(204, None),
        view(member("n1"), member("n2", "leaving", wanted=False)),
        view(member("n1"), member("n3", "learner")),
        view(member("n1"), member("n3")),
    ]
    result = run("members", "remove", "q", "n2", "--move")
    assert result.exit_code == 0
    assert result.output == "queue 'q' has no replica on 'n2' any more\n"
    assert requests(api)[0] == ("DELETE", f"{MEMBERS}/n2?move=true", None)
    assert len(requests(api)) == 4


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["add", "q", "n4"], "queue 'q' gets a replica on 'n4'\n"),
        (["remove", "q", "n4"], "the replica of queue 'q' leaves 'n4'\n"),
    ],
)
def test_a_change_is_only_begun_where_nobody_waits(
    api: FakeApi, words: list[str], text: str
) -> None:
    api.answers.append(ApiAnswer(204, None))
    assert run("members", *words, "--wait", "0").output == text
    assert len(requests(api)) == 1


def test_leadership_is_transferred(api: FakeApi) -> None:
    api.answers.append(ApiAnswer(204, None))
    assert run("transfer", "q", "n2").output == "queue 'q' is led by 'n2'\n"
    assert requests(api) == [("PUT", "/api/queues/%2F/q/leader", {"node": "n2"})]


def step(name: str, result: str = "ok", reason: str = "") -> dict[str, Any]:
    return {"vhost": "/", "name": name, "size": 3, "result": result, "reason": reason}


def test_grow_and_shrink_say_what_becomes_of_each_queue(api: FakeApi) -> None:
    api.answers += [
        ApiAnswer(200, [step("a"), step("b", "error", "it is there already")]),
        ApiAnswer(200, [step("a")]),
    ]
    words = ["--strategy", "even", "--queue-pattern", "^a", "--wait", "0"]
    grown = run("grow", "n4", *words)
    assert grown.exit_code == 1
    assert "b      3         error   it is there already" in grown.output
    assert "1 of 2 queues stay as they are" in grown.output
    body = {"strategy": "even", "vhost_pattern": ".*", "queue_pattern": "^a"}
    assert requests(api) == [("POST", "/api/queues/quorum/replicas/on/n4/grow", body)]
    assert run("shrink", "n4", "--move", "--wait", "0").exit_code == 0
    body = {"vhost_pattern": ".*", "queue_pattern": ".*"}
    path = "/api/queues/quorum/replicas/on/n4/shrink?move=true"
    assert requests(api)[-1] == ("DELETE", path, body)


def test_all_queues_that_grow_are_waited_for_but_not_those_that_go(api: FakeApi) -> None:
    api.answers += [
        ApiAnswer(200, [step("a"), step("b"), step("c")]),
        view(member("n1"), member("n4", "learner")),  # a
        view(member("n1"), member("n4")),  # b
        ApiAnswer(404, {"reason": "no queue 'c'"}),
        ApiAnswer(503, {"reason": "its leader does not answer"}),  # a
        view(member("n1"), member("n4")),
    ]
    assert run("grow", "n4").exit_code == 0
    asked = [path.split("/")[4] for _, path, _ in requests(api)[1:]]
    assert asked == ["a", "b", "c", "a", "a"]


def test_queues_that_take_too_long_are_counted(api: FakeApi) -> None:
    api.answers += [
        ApiAnswer(200, [step("a"), step("b")]),
        view(member("n1"), member("n2", "leaving", wanted=False)),
        view(member("n1")),
    ]
    result = run("shrink", "n2", "--wait", "1e-9")
    assert result.exit_code == 1
    assert result.stderr == "Error: 1 of 2 queues are not settled after 1e-09 s\n"


def balance(running: bool, **more: Any) -> ApiAnswer:
    found = {
        "running": running, "done": 1, "total": 4, "failed": 0, "problem": "",
        "before": {"n1": 4}, "after": {"n1": 2, "n2": 2}, **more,
    }  # fmt: skip
    return ApiAnswer(200, found)


def test_a_rebalance_is_waited_for(api: FakeApi) -> None:
    api.answers += [ApiAnswer(204, None), balance(True), balance(False, done=4)]
    result = run("rebalance", "--queue-pattern", "^a")
    assert result.exit_code == 0
    assert [line.split() for line in result.output.splitlines()] == [
        ["node", "before", "after"], ["n1", "4", "2"], ["n2", "2"],
    ]  # fmt: skip
    body = {"vhost_pattern": ".*", "queue_pattern": "^a"}
    assert requests(api)[0] == ("POST", "/api/rebalance/queues", body)


def test_how_leaders_are_spread_is_shown_and_nothing_is_done(api: FakeApi) -> None:
    automatic = {
        "state": "even", "text": "queues led: n1 2, n2 2", "decides": "n1", "handed_over": 3,
        "failed": 0,
    }  # fmt: skip
    api.answers += [balance(True, automatic=automatic)]
    result = run("rebalance", "--status")
    assert result.exit_code == 0
    assert "n1 2, n2 2" in result.output
    assert "goes on" in result.output
    assert [request[:2] for request in requests(api)] == [("GET", "/api/rebalance/queues")]


@pytest.mark.parametrize(
    ("words", "found", "code", "text"),
    [
        (["--wait", "1e-9"], balance(True), 1, "Error: 1 of 4 leaders are where they are to be\n"),
        (["--wait", "0"], balance(True), 0, ""),
        ([], balance(False, failed=2), 1, "Error: 2 leaders stay where they are\n"),
        ([], balance(False, problem="no quorum"), 1, "Error: no quorum\n"),
    ],
)
def test_a_rebalance_that_does_not_get_there_fails(
    api: FakeApi, words: list[str], found: ApiAnswer, code: int, text: str
) -> None:
    api.answers += [ApiAnswer(204, None), found]
    result = run("rebalance", *words)
    assert (result.exit_code, result.stderr) == (code, text)
