"""`headrace backup` and `headrace restore` as people and programs call them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.broker.cli.backup.sample import backup_at

from headrace_broker.cli.backup.manifest import MANIFEST
from headrace_broker.cli.main import main
from headrace_broker.cli.session.session import EXIT_NOT_FOUND, EXIT_UNAVAILABLE

EXIT_DAMAGED = 6


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_backup_is_shown_to_people_and_to_programs(tmp_path) -> None:
    backup_at(tmp_path)
    told = run("backup", "show", tmp_path)
    assert told.exit_code == 0
    assert "backup b1 of cluster 'local'" in told.output
    assert [line.split()[:3] for line in told.output.splitlines()[2:]] == [
        ["/", "orders", "4"],
        ["/", "none", "0"],
    ]
    shown = json.loads(run("backup", "show", "-o", "json", tmp_path).output)
    assert shown["queues"][0]["files"][0]["messages"] == 3


def test_backup_that_is_whole_and_one_that_is_damaged(tmp_path) -> None:
    _, manifest = backup_at(tmp_path)
    told = run("backup", "verify", tmp_path)
    assert (told.exit_code, told.output.split(",")[0]) == (
        0,
        "the backup is whole: 4 messages of 2 queues",
    )
    path = tmp_path / manifest.queues[0].files[0].name
    path.write_bytes(path.read_bytes()[:-3])
    told = run("backup", "verify", tmp_path)
    assert told.exit_code == EXIT_DAMAGED
    assert f"Error: {manifest.queues[0].files[0].name} is torn" in told.output
    told = run("backup", "verify", tmp_path, "-o", "json")
    assert told.exit_code == EXIT_DAMAGED
    (tmp_path / MANIFEST).write_text("{}")
    assert run("backup", "show", tmp_path).exit_code == EXIT_DAMAGED


@pytest.mark.parametrize("command", [["backup", "show"], ["backup", "verify"], ["restore"]])
def test_place_without_a_backup_or_with_half_of_one(tmp_path, command) -> None:
    told = run(*command, tmp_path)
    assert (told.exit_code, "holds no backup" in told.output) == (EXIT_NOT_FOUND, True)
    (tmp_path / "backup.json").write_text("{}")
    told = run(*command, tmp_path)
    assert told.exit_code == EXIT_NOT_FOUND
    assert "was not finished: repeat it to go on" in told.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["backup"],
        ["backup", "{}", "--rate", "fast"],
        ["backup", "{}", "-q", "("],
        ["backup", "{}", "--hold", "0"],
        ["restore", "{}", "--definitions", "some"],
        ["restore", "{}", "--into", "one"],
    ],
)
def test_wrong_use(tmp_path, arguments) -> None:
    backup_at(tmp_path)
    assert run(*(each.format(tmp_path) for each in arguments)).exit_code == 2


def test_path_alone_makes_a_backup_of_the_cluster_that_answers(tmp_path: Path) -> None:
    for arguments in (
        ["backup", tmp_path / "b", "--api", "127.0.0.1:9"],
        ["backup", "--api", "127.0.0.1:9", tmp_path / "b", "-q", "show"],
        ["backup", "--api=127.0.0.1:9", "-q", "verify", tmp_path / "b"],
        ["backup", "create", tmp_path / "b", "--api", "127.0.0.1:9"],
        ["backup", "--api", "127.0.0.1:9", "create", tmp_path / "b"],
    ):
        told = run(*arguments)
        assert told.exit_code == EXIT_UNAVAILABLE
        assert "127.0.0.1:9" in told.output
    assert not (tmp_path / "b").exists()
    assert run("restore", tmp_path / "b", "-q", "none").exit_code == EXIT_NOT_FOUND


def test_queue_that_is_not_in_a_backup(tmp_path) -> None:
    backup_at(tmp_path)
    told = run("restore", tmp_path, "-q", "nobody")
    assert (told.exit_code, told.output) == (
        EXIT_NOT_FOUND,
        "Error: the backup has no queue with such a name\n",
    )
