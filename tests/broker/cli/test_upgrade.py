"""`headrace upgrade`: the cluster version is shown and raised."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result
from tests.broker.cli.fake_api import FakeApi

from headrace_broker.cli.main import main
from headrace_broker.cli.session.api_client import ApiAnswer

VERSION = "/api/cluster/version"


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": None}).invoke(main, ["upgrade", *words])


def view(version: int, problem: str = "") -> ApiAnswer:
    nodes: list[dict[str, Any]] = [{"name": "n1", "known": 2}, {"name": "n2", "known": None}]
    return ApiAnswer(200, {"version": version, "newest": 2, "nodes": nodes, "problem": problem})


def requests(api: FakeApi) -> list[tuple[Any, ...]]:
    return [each for each in api.asked if each[0] in ("GET", "POST")]


def test_status_says_what_each_node_knows_and_how_to_go_on(api: FakeApi) -> None:
    api.answers = [view(1)]
    result = run("status")
    assert result.exit_code == 0
    assert "cluster version 1" in result.output
    assert result.output.index("n2") > result.output.index("n1")
    assert "`headrace upgrade finish` raises it" in result.output


def test_status_says_what_is_in_the_way(api: FakeApi) -> None:
    api.answers = [view(1, "node 'n2' runs an older version")]
    output = run("status").output
    assert "cannot be raised: node 'n2' runs an older version" in output
    assert "upgrade finish" not in output


def test_status_of_a_raised_cluster_asks_for_nothing(api: FakeApi) -> None:
    api.answers = [view(2)]
    assert "upgrade finish" not in run("status").output


def test_finish_raises_the_version(api: FakeApi) -> None:
    api.answers = [view(1), view(2)]
    result = run("finish")
    assert (result.exit_code, "cluster version 2" in result.output) == (0, True)
    assert requests(api)[1] == ("POST", f"{VERSION}/raise", None)


def test_finish_names_the_node_that_is_in_the_way(api: FakeApi) -> None:
    api.answers = [view(1, "node 'n2' runs an older version")]
    result = run("finish")
    assert result.exit_code != 0
    assert "node 'n2' runs an older version" in result.output
    assert len(requests(api)) == 1
