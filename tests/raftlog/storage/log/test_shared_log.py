"""The shared log as its host uses it: many groups, reopening, refusals."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace_raftlog.model.entry import ENTRY_CONFIG, ENTRY_NOOP, Entry, HardState
from headrace_raftlog.model.errors import IdentityError, LogLockedError
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.writing.identity import Identity
from headrace_simulation.memory_files import MemoryFiles

Run = Callable[..., list[Entry]]
CAP_SYS_ADMIN = 1 << 21


def test_everything_is_there_after_reopening_on_a_real_disk(
    tmp_path: Path, open_log, run: Run
) -> None:
    directory = str(tmp_path / "data" / "log")
    opened = open_log(Files(), directory)
    for round_number in range(10):
        for group in (0, 3, 2**40):
            state = HardState(round_number + 1, group % 3, round_number)
            opened.commit(group, run(round_number + 1, round_number + 1, b"x" * 400), state)
    before = opened.contents()
    assert list(before) == [0, 3, 2**40]
    opened.log.close()
    assert len(list(Path(directory).glob("*.log"))) >= 3
    again = open_log(Files(), directory)
    assert again.contents() == before
    assert again.commit(3, run(11, 11, b"more"))
    again.log.close()
    assert open_log(Files(), directory).log.group(3).last_index() == 11


def test_entry_kinds_and_odd_lengths_survive(disk: MemoryFiles, open_log) -> None:
    entries = [
        Entry(1, 1, ENTRY_NOOP, b""),
        Entry(2, 1, ENTRY_CONFIG, b"c"),
        *(Entry(3 + n, 1, 0, bytes(range(n % 256))) for n in range(600)),
    ]
    opened = open_log(disk)
    assert opened.commit(1, entries)
    opened.log.close()
    assert open_log(disk).contents()[1] == (HardState(0, 0, 0), entries)


def test_truncation_then_restart_gives_the_new_entries(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a", b"b", b"c", b"d"))
    opened.commit(1, run(3, 2, b"C"), HardState(2, 0, 0))
    opened.commit(2, run(1, 1, b"other"))
    expected = run(1, 1, b"a", b"b") + run(3, 2, b"C")
    assert opened.contents()[1][1] == expected
    opened.log.close()
    again = open_log(disk)
    assert again.contents()[1] == (HardState(2, 0, 0), expected)
    assert [again.log.group(1).term_at(index) for index in range(1, 5)] == [1, 1, 2, -1]


def test_truncation_of_what_is_still_being_written_gives_the_new_entries(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk, cache_bytes=0)
    opened.append(1, run(1, 1, b"a", b"b", b"c"))
    opened.append(1, run(2, 2, b"B"))
    opened.log.flush()
    opened.append(1, run(2, 3, b"BB", b"CC"))
    opened.log.flush()
    opened.wait(lambda: len(opened.tokens) == 3)
    expected = run(1, 1, b"a") + run(2, 3, b"BB", b"CC")
    assert opened.contents()[1][1] == expected
    opened.commit(2, run(1, 1, b"evicts"))
    assert opened.contents()[1][1] == expected
    opened.log.close()
    assert open_log(disk).contents()[1][1] == expected


def test_recovered_commit_hint_never_exceeds_the_log(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"), HardState(1, 0, 9))
    opened.log.close()
    assert open_log(disk).log.group(1).hard_state == HardState(1, 0, 1)


def test_removed_group_stays_dead(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"))
    opened.commit(2, run(1, 1, b"b"))
    opened.log.remove_group(1, "gone")
    opened.log.flush()
    opened.wait(lambda: "gone" in opened.tokens)
    for again in (opened, None):
        if again is None:
            opened.log.close()
            again = open_log(disk)
        assert again.log.groups() == [2]
        with pytest.raises(KeyError, match="group 1 was removed"):
            again.log.group(1)
        with pytest.raises(KeyError, match="group 1 was removed"):
            again.append(1, run(1, 1, b"a"))


def test_record_behind_a_tombstone_revives_nothing(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.log.remove_group(1, "gone")
    opened.log.flush()
    opened.wait(lambda: "gone" in opened.tokens)
    opened.log.flush()
    opened.log._table.removed.clear()
    opened.commit(1, run(1, 1, b"a"))
    opened.log.close()
    assert open_log(disk).log.groups() == []


def test_removal_overtakes_no_append_in_flight(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.append(1, run(1, 1, b"a"))
    opened.log.remove_group(1)
    opened.log.close()
    assert opened.tokens == [1]
    assert open_log(disk).log.groups() == []


@pytest.mark.parametrize("files", [Files, MemoryFiles])
def test_second_opening_of_a_directory_is_refused(
    tmp_path: Path, open_log, files: type[Files]
) -> None:
    disk = files()
    opened = open_log(disk, str(tmp_path))
    with pytest.raises(LogLockedError, match=f"{tmp_path} is in use"):
        open_log(disk, str(tmp_path))
    opened.log.close()
    open_log(disk, str(tmp_path))


def test_refused_opening_leaves_the_directory_free(disk: MemoryFiles, open_log) -> None:
    disk.put("/log/0000000000000001.log", b"short")
    for _ in range(2):
        with pytest.raises(Exception, match="shorter than a segment header"):
            open_log(disk)
    assert disk._open == {}


def test_log_of_another_node_is_refused_naming_both(disk: MemoryFiles, open_log) -> None:
    open_log(disk, identity=Identity("mill", 3, 1, 5)).log.close()
    open_log(disk, identity=Identity("mill", 3, 2, 5)).log.close()
    for identity in (Identity("mill", 4, 1, 5), Identity("other", 3, 1, 5)):
        with pytest.raises(IdentityError) as caught:
            open_log(disk, identity=identity)
        assert "node 3 of cluster 'mill'" in str(caught.value)
        assert f"node {identity.node} of cluster '{identity.cluster}'" in str(caught.value)
    open_log(disk)


def test_entry_longer_than_the_log_takes_is_refused_whole(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk, entry_bytes_max=8191)
    with pytest.raises(ValueError, match=r"entry 2 has 8192 bytes, the log takes 8191"):
        opened.append(1, run(1, 1, b"fits", bytes(8192)))
    assert opened.log.group(1).last_index() == 0


def test_entry_longer_than_a_segment_has_one_of_its_own(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk, entry_bytes_max=1 << 20)
    usual = opened.log.position.header.size
    for index, size in enumerate((10, 20 * usual, 10, usual, 5 * usual, 100), start=1):
        data = bytes([index]) * size
        assert opened.commit(1, run(index, 1, data), HardState(1, 0, index))
        assert opened.commit(2, run(index, 1, b"beside"), HardState(1, 0, index))
    opened.log.backlog_bytes  # noqa: B018  (notes what is durable)
    uses = opened.log._table.ledger.segments
    sizes = [disk.size(disk.open(f"/log/{each:016d}.log")) for each in uses]
    assert [use.size for use in uses.values()] == sizes
    assert [size // usual for size in sizes if size > usual] == [22, 5], "one is in what is left"
    before = opened.contents()
    opened.log.close()
    assert open_log(disk).contents() == before


def test_appending_to_a_closed_log_is_a_bug(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.log.close()
    opened.log.close()
    with pytest.raises(AssertionError, match="closed"):
        opened.append(1, run(1, 1, b"a"))


def test_other_segment_size_takes_effect_with_the_next_file(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk, segment_bytes=8192)
    opened.commit(1, run(1, 1, b"a" * 900))
    opened.log.close()
    again = open_log(disk, segment_bytes=16384)
    for index in range(2, 20):
        again.commit(1, run(index, 1, b"b" * 900))
    sizes = [len(disk.file(f"/log/{name}").written) for name in disk.names("/log")]
    assert sizes[:2] == [8192, 16384]
    before = again.contents()
    again.log.close()
    assert open_log(disk, segment_bytes=4096).contents() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 4095},
        {"segment_bytes": 1 << 32},
        {"segment_bytes": 5000},
        {"cache_bytes": -1},
        {"spare_files": -1},
        {"spare_files": 1025},
        {"job_bytes_max": 511},
        {"job_bytes_max": 1 << 30},
        {"full_retry_seconds": 0.0},
        {"seal_seconds": 0.0},
    ],
)
def test_options_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LogOptions(**wrong)  # type: ignore[arg-type]


def may_mount() -> bool:
    status = Path("/proc/self/status")
    if os.geteuid() != 0 or not status.exists():
        return False
    effective = next(line for line in status.read_text().splitlines() if "CapEff" in line)
    return bool(int(effective.split()[1], 16) & CAP_SYS_ADMIN)


if may_mount():

    def test_real_full_disk_is_waited_out(tmp_path: Path, open_log, run: Run) -> None:
        place = tmp_path / "small"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "none", str(place)], check=True)
        try:
            ballast = place / "ballast"
            ballast.write_bytes(bytes(64 << 10))
            opened = open_log(Files(), str(place / "log"), segment_bytes=32 << 10)
            for index in range(1, 101):
                opened.append(1, run(index, 1, bytes([index]) * 1000))
                opened.log.flush()
            opened.wait(lambda: opened.full == [True])
            assert len(opened.tokens) < 100
            ballast.unlink()
            opened.wait(lambda: len(opened.tokens) == 100)
            assert opened.full == [True, False]
            before = opened.contents()
            opened.log.close()
            again = open_log(Files(), str(place / "log"), segment_bytes=32 << 10)
            assert again.contents() == before
            again.log.close()
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
