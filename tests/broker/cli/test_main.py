"""The commands, as far as they need no cluster."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from headrace_broker.cli.cluster import status_table
from headrace_broker.cli.local_cluster import LocalCluster
from headrace_broker.cli.main import main
from headrace_broker.cli.run import describe, live_line
from headrace_broker.model import build_info


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Put the root logger back as it was: `serve` configures it."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def overview(leader: str, rate: float, ready: int, unacknowledged: int) -> dict[str, Any]:
    details = {f"{name}_details": {"rate": rate} for name in ("publish", "deliver", "ack")}
    totals = {
        "messages": ready + unacknowledged + 5,
        "messages_ready": ready,
        "messages_unacknowledged": unacknowledged,
    }
    return {"leader": leader, "local": {"message_stats": details, "queue_totals": totals}}


def test_ctl_is_rabbitmqctl_under_another_name() -> None:
    shown = CliRunner().invoke(main, ["ctl", "--help"])
    assert shown.exit_code == 0
    assert "list_queues" in shown.output
    refused = CliRunner().invoke(main, ["ctl", "eval", "1."])
    assert (refused.exit_code, "not supported" in refused.stderr) == (64, True)


def test_version_says_whether_the_hot_path_is_compiled() -> None:
    result = CliRunner().invoke(main, ["version"])
    assert result.exit_code == 0
    assert f"headrace {build_info.VERSION}\n" in result.output
    expected = "compiled yes" if build_info.compiled() else "compiled no"
    assert expected in result.output


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(main, ["--help"])
    for command in ("serve", "cluster", "run", "log", "version"):
        assert f"\n  {command} " in result.output


def test_serve_refuses_a_bad_configuration_by_name(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("[node]\nid = 0\nname = 'n'\ndata_dir = 'd'\n")
    result = CliRunner().invoke(main, ["serve", "--config", str(path)])
    assert result.exit_code == 1
    assert "node.id: 0 is not allowed; it must be an integer from 1 to 1023" in result.output


def test_commands_on_a_cluster_that_is_not_there_fail_with_a_reason(tmp_path: Path) -> None:
    for command in ("stop", "status"):
        result = CliRunner().invoke(main, ["cluster", command, "--data", str(tmp_path)])
        assert result.exit_code == 1
        assert "no local cluster below" in result.output


def test_a_cluster_of_no_nodes_is_refused(tmp_path: Path) -> None:
    arguments = ["cluster", "start", "--nodes", "0", "--data", str(tmp_path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "1<=x<=9" in result.output


def test_a_cluster_of_too_many_shards_is_refused(tmp_path: Path) -> None:
    for command in (["cluster", "start"], ["run"]):
        arguments = [*command, "--data", str(tmp_path / "data"), "--shards"]
        result = CliRunner().invoke(main, [*arguments, "9"])
        assert result.exit_code == 2
        assert "1<=x<=8" in result.output
        result = CliRunner().invoke(main, [*arguments, "6"])
        assert result.exit_code == 1
        assert "6 on each of 3 nodes are more than 16" in result.output
    assert list(tmp_path.iterdir()) == []


def test_the_live_line_sums_up_the_nodes() -> None:
    line = live_line([overview("n2", 1000.4, 10, 1), overview("n2", 500.0, 1990, 0)], 3)
    assert line == (
        "nodes 2/3 | leader n2 | publish 1,500/s | deliver 1,500/s | ack 1,500/s | "
        "depth 2,011 (2,000 ready, 1 unacked)"
    )


def test_the_live_line_says_no_less_than_all_where_a_shard_tells_nothing() -> None:
    line = live_line([overview("n2", 1000.4, 10, 1), {"leader": "n2", "local": None}], 3)
    assert line == "nodes 2/3 | leader n2 | a shard does not tell its messages"


def test_the_live_line_of_a_cluster_without_answers() -> None:
    assert live_line([], 3).startswith("nodes 0/3 | leader none | publish 0/s")


def test_the_example_is_python_and_names_the_addresses(tmp_path: Path) -> None:
    text = describe(LocalCluster(tmp_path, 3))
    assert "amqp://127.0.0.1:5674" in text
    assert "127.0.0.1:7674" in text
    assert "http://127.0.0.1:15672/api/overview" in text
    snippet = text.partition("<<'END'\n")[2].partition("END\n")[0]
    compile(snippet, "example", "exec")
    assert '("127.0.0.1", 5672)' in snippet


def test_the_status_of_stopped_nodes_fits_a_narrow_terminal(tmp_path: Path) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(status_table(LocalCluster(tmp_path, 3)))
    lines = console.export_text().splitlines()
    assert len(lines) == 4
    assert lines[3].split() == [
        "n3",
        "127.0.0.1:5674",
        "127.0.0.1:15674",
        "127.0.0.1:7674",
        "stopped",
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_asks_the_program(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_HEADRACE_COMPLETE={shell}_complete" in result.output
