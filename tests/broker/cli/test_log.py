"""`headrace log` on real files."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace_broker.cli.main import main
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.mark import Mark
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.writing.identity import Identity
from headrace_raftlog.storage.writing.mark_file import MarkFile, Marks


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory with three entries of group 7, each in a batch of its own."""
    identity = Identity.open(str(tmp_path), "test", 1)
    shared = SharedLog.open(str(tmp_path), LogOptions(segment_bytes=1 << 20), identity)
    for index in (1, 2, 3):
        durable = threading.Event()
        shared.writer.on_durable = lambda _, durable=durable: durable.set()  # type: ignore[misc]
        entry = Entry(index, 1, ENTRY_NORMAL, b"payload" * 100)
        shared.append(7, HardState(1, 1, 0), [entry], True, index)
        shared.flush()
        assert durable.wait(30)
    shared.close()
    return tmp_path


def segment(directory: Path) -> Path:
    """The directory's only segment."""
    [path] = [path for path in directory.iterdir() if path.stat().st_size >= 1 << 20]
    return path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["log", *arguments])


def test_an_intact_log_is_counted(directory: Path) -> None:
    result = invoke("verify", str(directory))
    assert result.exit_code == 0, result.output
    assert result.output.startswith("1 segments, ")
    assert "records of 1 groups" in result.output
    assert result.output.endswith("intact\n")


def damage(path: Path, position: int) -> bytes:
    """Flip a bit of a file; return its bytes."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return bytes(data)


def end_of(path: Path) -> int:
    """Return the length of a file without the zeros at its end."""
    return len(path.read_bytes().rstrip(b"\0"))


def remember(directory: Path) -> None:
    """Form the directory, and have it remember the last batch of its log as synced."""
    identity = Identity.open(str(directory), "test", 1).form(str(directory), {1: 1, 2: 2})
    shared = SharedLog.open(str(directory), LogOptions(segment_bytes=1 << 20), identity)
    shared.close()
    marks = MarkFile.open(str(directory))
    marks.write(Marks().begun(Mark(identity.disk, identity.boot, 5, shared.synced())))
    marks.close()


@pytest.mark.parametrize("byte_count", [600, 1300])  # whole batches, and a part of one
def test_synced_batches_that_are_gone_are_told_as_the_next_start_does(
    directory: Path, byte_count: int
) -> None:
    remember(directory)
    assert invoke("verify", str(directory)).exit_code == 0
    path = segment(directory)
    data = path.read_bytes()
    end = end_of(path) - byte_count
    path.write_bytes(data[:end] + bytes(len(data) - end))
    kept = {each: each.read_bytes() for each in directory.iterdir()}
    result = invoke("verify", str(directory))
    assert result.exit_code == 1
    assert "node 1 has lost the end of its log: batch " in result.output
    assert "The next start sets these data aside" in result.output
    assert "crash" not in result.output
    assert "intact" not in result.output
    assert {each: each.read_bytes() for each in directory.iterdir()} == kept


def test_a_torn_end_is_said_to_be_no_more_than_the_directory_knows(directory: Path) -> None:
    path = segment(directory)
    data = path.read_bytes()
    end = end_of(path) - 1300
    path.write_bytes(data[:end] + bytes(len(data) - end))
    result = invoke("verify", str(directory))
    assert result.exit_code == 0, result.output
    assert "the directory remembers nothing later to be synced" in result.output


def test_a_directory_of_another_release_is_an_error(directory: Path) -> None:
    (directory / "node.json").write_text('{"format": 99}')
    result = invoke("verify", str(directory))
    assert result.exit_code == 1
    assert "format 99" in result.output


def test_damage_in_the_middle_is_named_with_file_and_offset(directory: Path) -> None:
    path = segment(directory)
    data = damage(path, path.read_bytes().index(b"payload"))
    result = invoke("verify", str(directory))
    assert result.exit_code == 1
    assert f"{path}: DAMAGED at byte " in result.output
    assert f"{path}: DAMAGED at byte " in result.output
    assert "group 7: entries " in result.output
    assert "fetch these entries from the other members" in result.output
    assert path.read_bytes() == data


def test_damage_that_concerns_everything_says_what_to_do(directory: Path) -> None:
    damage(segment(directory), 20)
    result = invoke("verify", str(directory))
    assert result.exit_code == 1
    assert "sets it aside and is rebuilt" in result.output
    assert invoke("stat", str(directory)).exit_code == 1


def test_space_is_told_by_file_by_group_and_in_total(directory: Path) -> None:
    result = invoke("stat", str(directory))
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    live = 3 * (40 + 700) + 48
    assert lines[1] == f"{segment(directory)}  {1 << 20}  {live}  {(1 << 20) - live}  active"
    assert lines[3] == f"7  3  0  {3 * 740}  0  0  1"
    assert lines[4] == (
        f"1 files, 1 groups, {1 << 20} bytes, {live} live, at most {2 * live + (2 << 20)} wanted "
        "(twice the live ones and two files)"
    )


def test_a_dump_lists_the_entries(directory: Path) -> None:
    result = invoke("dump", str(directory))
    assert result.exit_code == 0
    for index in (1, 2, 3):
        assert f"group 7 era 0 index {index} term 1" in result.output


def test_a_directory_without_a_log_is_an_error(tmp_path: Path) -> None:
    result = invoke("verify", str(tmp_path))
    assert result.exit_code == 1
    assert "holds no log" in result.output
    assert invoke("verify", str(tmp_path / "gone")).exit_code == 2
