"""`headrace node`: requests to the API, duration, and exit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.broker.cli.fake_api import FakeApi

from headrace_broker.cli.main import main
from headrace_broker.cli.node import clock_of
from headrace_broker.cli.session.api_client import ApiAnswer, ApiError

NODE = "/api/cluster/nodes/n%2F2"


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": None}).invoke(main, ["node", *words])


def row(**more: Any) -> dict[str, Any]:
    return {
        "id": 2, "name": "n/2", "address": "h:1", "running": True, "being_drained": False,
        "drained": False, "leaders": 3, "replicas": 5, "leaving": 0, "connections": 7,
        "alone": 0, **more,
    }  # fmt: skip


def left(replicas: int, *problems: str, forgotten: bool = False) -> ApiAnswer:
    body = {"replicas": replicas, "problems": list(problems), "forgotten": forgotten}
    return ApiAnswer(200, body)


def requests(api: FakeApi) -> list[tuple[Any, ...]]:
    return [each for each in api.asked if each[0] in ("GET", "POST", "DELETE")]


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "running"),
        ({"being_drained": True}, "draining"),
        ({"being_drained": True, "drained": True}, "drained"),
        ({"running": False}, "down"),
        ({"running": False, "being_drained": True}, "down, in maintenance"),
        ({"shards": [{"name": "n/2", "running": True, "being_drained": False}]}, "running"),
    ],
)
def test_a_listing_says_how_each_node_is(api: FakeApi, more: dict[str, Any], state: str) -> None:
    api.answers.append(ApiAnswer(200, [row(**more)]))
    heads, line = run("list").stdout.splitlines()
    assert heads.split() == [
        *("id", "name", "address", "state", "leaders", "replicas", "leaving", "connections"),
        *("clock", "shards", "zone"),
    ]
    assert " ".join(line.split()) == f"2 n/2 h:1 {state} 3 5 0 7 - 1 -"
    assert requests(api) == [("GET", "/api/cluster/nodes", None)]


def test_a_listing_names_processes_that_are_down(api: FakeApi) -> None:
    runs = {"n1": True, "n1:1": False, "n1:2": False}
    shards = [{"name": each, "running": runs[each], "being_drained": False} for each in runs]
    api.answers.append(ApiAnswer(200, [row(shards=shards)]))
    line = run("list").stdout.splitlines()[1]
    assert "running, but shard n1:1, n1:2 down" in line
    assert line.split()[-2] == "3"


def test_a_listing_shows_the_zone_of_each_node(api: FakeApi) -> None:
    api.answers.append(ApiAnswer(200, [row(zone="eu-1a")]))
    assert run("list").stdout.splitlines()[1].split()[-1] == "eu-1a"


def test_a_drain_is_waited_for(api: FakeApi) -> None:
    api.answers += [
        ApiAnswer(204, None),
        ApiAnswer(200, row(being_drained=True)),
        ApiAnswer(200, row(being_drained=True, drained=True, leaders=0, connections=0)),
    ]
    result = run("drain", "n/2")
    assert (result.exit_code, result.output) == (0, "node 'n/2' is drained; it has 5 replicas\n")
    looks = [("GET", NODE, None)] * 2
    assert requests(api) == [("POST", f"{NODE}/drain", None), *looks]


def test_a_drain_says_what_only_this_node_has(api: FakeApi) -> None:
    api.answers += [ApiAnswer(204, None), ApiAnswer(200, row(drained=True, alone=2))]
    assert "2 of them lead queues that have no other replica\n" in run("drain", "n/2").output


def test_a_drain_is_only_begun_where_nobody_waits(api: FakeApi) -> None:
    api.answers.append(ApiAnswer(204, None))
    result = run("drain", "n/2", "--wait", "0")
    assert (result.exit_code, result.output) == (0, "node 'n/2' is being drained\n")


def test_a_drain_that_takes_too_long_fails_and_says_what_is_left(api: FakeApi) -> None:
    api.answers += [ApiAnswer(204, None), ApiAnswer(200, row(being_drained=True))]
    api.answers += [ApiAnswer(200, [])] * 2
    result = run("drain", "n/2", "--wait", "1e-9")
    assert result.exit_code == 1
    assert result.output == ("Error: node 'n/2' is not drained after 1e-09 s: leads 3, 7 clients\n")


@pytest.mark.parametrize("name", ["n/2", "n/2:1"])
def test_a_drain_that_takes_too_long_names_queues_and_who_could_lead_them(
    api: FakeApi, name: str
) -> None:
    led = {"vhost": "/", "leader": "n/2:1", "members": ["n1", "n/2:1", "n3", "n4"]}
    alone = {"vhost": "v", "name": "own", "leader": "n/2:1", "members": ["n/2:1"]}
    nodes = [row(name="n1", running=False), row(name="n3", being_drained=True)]
    queues = [{**led, "name": "far", "leader": "n1"}, alone]
    queues += [{**led, "name": f"q{number}\x1b"} for number in range(6)]
    draining = row(being_drained=True)
    api.answers += [ApiAnswer(204, None), *(ApiAnswer(200, each) for each in (draining, nodes))]
    api.answers.append(ApiAnswer(200, queues))
    lines = run("drain", name, "--wait", "1e-9").output.splitlines()
    assert lines[1:] == [
        *(
            f"it leads queue 'q{number}\\x1b' in vhost '/', "
            "also on n1 (down), n3 (draining), n4 (gone)"
            for number in range(5)
        ),
        "and 1 more",
    ]


def test_a_drain_ends_as_it_fails(api: FakeApi) -> None:
    api.answers += [ApiAnswer(204, None), ApiAnswer(404, {"reason": "no node 'n/2'"})]
    assert run("drain", "n/2").exit_code == 3
    api.answers += [ApiAnswer(204, None), ApiAnswer(200, row()), ApiAnswer(503, {"reason": "busy"})]
    result = run("drain", "n/2", "--wait", "1e-9")
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "is not drained after" in result.output


def test_a_refused_drain_is_not_waited_for(api: FakeApi) -> None:
    api.answers.append(ApiAnswer(400, {"reason": "it is the last that serves clients"}))
    result = run("drain", "n/2")
    assert (result.exit_code, len(requests(api))) == (1, 1)
    assert "it is the last that serves clients" in result.output


def test_a_program_is_told_by_the_exit_code_alone(api: FakeApi) -> None:
    api.answers += [ApiAnswer(204, None), ApiAnswer(200, row(drained=True))]
    result = run("drain", "n/2", "-o", "json")
    assert (result.exit_code, result.output) == (0, "")


def test_revive(api: FakeApi) -> None:
    api.answers.append(ApiAnswer(204, None))
    assert run("revive", "n/2").output == "node 'n/2' serves again\n"
    assert requests(api) == [("POST", f"{NODE}/revive", None)]


def test_a_node_that_joins_is_announced_and_waited_for(api: FakeApi) -> None:
    api.answers += [
        ApiAnswer(204, None),
        ApiAnswer(200, row(running=False, leaders=None, connections=None)),
        ApiAnswer(200, row()),
    ]
    words = ["join", "n/2", "--id", "2", "--address", "h:1"]
    assert run(*words).output == "node 'n/2' runs\n"
    body = {"id": 2, "name": "n/2", "address": "h:1"}
    assert requests(api)[0] == ("POST", "/api/cluster/nodes", body)
    api.answers.append(ApiAnswer(204, None))
    assert run(*words, "--wait", "0").output == "node 'n/2' is announced: start it\n"


@pytest.mark.parametrize("words", [["--id", "0"], ["--id", "1024"], []])
def test_a_node_joins_with_a_number_that_can_be(api: FakeApi, words: list[str]) -> None:
    assert run("join", "n4", "--address", "h:1", *words).exit_code == 2
    assert api.asked == []


def test_a_node_is_forgotten_once_its_replicas_are_elsewhere(api: FakeApi) -> None:
    api.answers += [left(4), left(1, forgotten=False), left(0, forgotten=True)]
    result = run("forget", "n/2", "--replicas", "move")
    assert (result.exit_code, result.output) == (0, "node 'n/2' is forgotten\n")
    assert requests(api) == [("DELETE", f"{NODE}?replicas=move", None)] * 3


def test_a_node_that_keeps_replicas_is_not_forgotten_and_it_is_said_why(api: FakeApi) -> None:
    api.answers += [left(2), left(2, "queue 'a': no node is left", "queue 'b': likewise")]
    result = run("forget", "n/2")
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "Error: node 'n/2' still has 2 replicas", "queue 'a': no node is left",
        "queue 'b': likewise",
    ]  # fmt: skip


def test_replicas_that_take_too_long_to_leave_are_counted(api: FakeApi) -> None:
    api.answers.append(left(3))
    result = run("forget", "n/2", "--wait", "0", "--replicas", "shrink")
    assert (result.exit_code, "still has 3 replicas" in result.output) == (1, True)


def test_a_node_that_is_not_there_and_one_that_does_not_answer(api: FakeApi) -> None:
    api.answers += [ApiAnswer(404, {"reason": "no node 'x'"}), ApiError("h:1: refused")]
    assert run("revive", "x").exit_code == 3
    assert run("revive", "x").exit_code == 5


def test_programs_get_all_there_is_of_the_nodes(api: FakeApi) -> None:
    api.answers.append(ApiAnswer(200, [row()]))
    assert msgspec.json.decode(run("list", "-o", "json").stdout) == [row()]


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({}, "-"),  # an older node answers
        ({"clock_skew_ms": None, "clock_warning": ""}, "-"),
        ({"clock_skew_ms": -3, "clock_warning": ""}, "-3 ms"),
        ({"clock_skew_ms": 7000, "clock_warning": "ahead"}, "+7000 ms !"),
    ],
)
def test_clock_of_a_node_is_shown_as_far_as_it_is_known(row: dict[str, Any], shown: str) -> None:
    assert clock_of(row) == shown
