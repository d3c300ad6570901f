"""Which files make up a log, and what becomes of those that are missing or too many."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.membership import NOBODY
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.segment import file_survey
from headrace_raftlog.storage.segment.file_list import (
    GONE_MAX,
    FileSpan,
    decode_files,
    decode_gone,
    encode_files,
    encode_gone,
)
from headrace_raftlog.storage.segment.file_survey import Survey
from headrace_raftlog.storage.segment.record import head_number_at, record_payload_at
from headrace_raftlog.storage.segment.segment import SegmentReader, segment_name
from headrace_simulation.memory_files import MemoryFiles


def path(sequence: int) -> str:
    return f"/log/{segment_name(sequence)}"


def opened(disk: MemoryFiles) -> SharedLog:
    options = LogOptions(segment_bytes=8192, cache_bytes=0, stepped=True)
    return SharedLog.open("/log", options, files=disk)


def write(log: SharedLog) -> None:
    log.flush()
    log.step()
    log.flush()


@pytest.fixture
def holed(disk: MemoryFiles) -> tuple[MemoryFiles, dict[str, bytes]]:
    """A log of which files in the middle were removed, and these files."""
    log = opened(disk)
    log.append(1, None, [Entry(1, 1, 0, b"old" * 100)], True, None)
    held: dict[str, bytes] = {}
    for index in range(1, 61):
        log.append(2, None, [Entry(index, 1, 0, b"x" * 500)], True, None)
        write(log)
    held = {name: bytes(disk.file(f"/log/{name}").written) for name in disk.names("/log")}
    log.save_snapshot(2, Snapshot(60, 1, NOBODY, b"", array("Q")))
    write(log)
    write(log)
    log.collect(0)
    write(log)
    log.close()
    gone = {name: data for name, data in held.items() if name not in disk.names("/log")}
    assert len([name for name in gone if name.endswith(".log")]) >= 4
    assert segment_name(1) in disk.names("/log")
    return disk, gone


def surveyed(disk: MemoryFiles) -> Survey:
    survey = Survey(disk, "/log", SegmentReader(disk, "/log"))
    survey.run()
    return survey


def test_removed_files_in_the_middle_are_not_missed(holed) -> None:
    disk, _ = holed
    survey = surveyed(disk)
    assert survey.sequences[0] == 1
    assert survey.sequences[1] > 5
    log = opened(disk)
    assert log.quarantined == {}
    assert log.group(1).entry(1).data == b"old" * 100
    assert log.group(2).snapshot_index == 60
    log.close()


def test_removed_file_that_comes_back_is_removed_again(holed) -> None:
    disk, gone = holed
    for name, data in gone.items():
        disk.put(f"/log/{name}", data)
    assert set(surveyed(disk).superfluous) == set(gone)
    log = opened(disk)
    assert log.group(2).last_index() == 60
    log.close()
    assert not set(gone) & set(disk.names("/log"))


def test_file_that_should_exist_is_missed(holed) -> None:
    disk, _ = holed
    for sequence in surveyed(disk).sequences[:-1]:
        trial = disk.after_power_loss(lambda *_: True, names_synced=False)
        trial.remove(path(sequence))
        with pytest.raises(CorruptLogError, match=f"segment {sequence} is missing"):
            surveyed(trial)


def test_list_is_read_though_something_else_in_its_batch_is_damaged(holed) -> None:
    disk, _ = holed
    log = opened(disk)
    while len(surveyed(disk).sequences) < 5:
        first = log.group(2).last_index() + 1
        log.append(2, None, [Entry(first, 1, 0, b"payload" * 70)], True, None)
        write(log)
    log.append(3, None, [Entry(1, 1, 0, b"z")], True, None)
    write(log)
    log.close()
    newest = path(surveyed(disk).sequences[-1])
    data = bytearray(disk.file(newest).written)
    data[data.index(b"payload")] ^= 1
    disk.put(newest, bytes(data))
    again = opened(disk)
    assert again.quarantined == {}
    assert again.groups() == [1, 2, 3]
    assert again.group(2).lost is not None
    again.close()


def test_list_in_a_torn_batch_is_not_believed(disk: MemoryFiles) -> None:
    """The files that it leaves out were not removed, and are still listed by the one before it."""
    log = opened(disk)
    for index in range(1, 41):
        log.append(1, None, [Entry(index, 1, 0, b"x" * 500)], True, None)
        write(log)
    log.save_snapshot(1, Snapshot(40, 1, NOBODY, b"", array("Q")))
    write(log)
    write(log)
    position = log.writer.position
    position.offset = position.header.size - 512  # no room is left for a list of removed files
    log.collect(0)
    following = path(position.header.sequence + 1)
    present = set(disk.names("/log"))

    def fail(call: str, name: str) -> None:
        if call == "sync" and name == following and disk.file(name).unsynced[0][0] == 512:
            raise OSError(5, "power failed", name)

    disk.fault = fail
    log.append(2, None, [Entry(1, 1, 0, b"y" * 3000)], True, None)
    log.flush()
    log.step()
    assert log.failure is not None
    log.close()
    lost = disk.after_power_loss(lambda at, number, offset: number == 0, names_synced=True)
    again = opened(lost)
    assert again.recovery.torn is not None
    again.close()
    assert {name for name in present if name.endswith(".log")} == set(lost.names("/log")) - {"lock"}
    opened(lost).close()


SPANS = st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**40), st.integers(0, 2**40)))


@given(SPANS)
def test_list_of_files_is_read_as_written(steps: list[tuple[int, int, int]]) -> None:
    spans, sequence, number = [], 0, 0
    for more, gap, batches in steps:
        sequence += more
        spans.append(FileSpan(sequence, number + gap, number + gap + batches))
        number += gap + batches
    payload = record_payload_at(encode_files(7, spans), 0)
    found = [(span.sequence, span.first, span.last) for span in decode_files(payload)]
    assert found == [(span.sequence, span.first, span.last) for span in spans]


@given(st.binary(max_size=60))
def test_random_bytes_are_a_list_or_an_error(data: bytes) -> None:
    try:
        spans = decode_files(data)
    except ValueError:
        return
    assert 3 * len(spans) <= len(data)


def test_list_of_removed_files_fits_one_sector() -> None:
    sequences = list(range(2**50, 2**50 + GONE_MAX))
    record = encode_gone(7, sequences)
    assert decode_gone(record_payload_at(record, 0)) == sequences
    assert len(record) + 80 <= 512 < len(encode_gone(7, [*sequences, 1])) + 80


def test_what_clients_wrote_into_reserved_bytes_is_not_looked_at(
    disk: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that claims to be many long records would make each start take minutes."""
    looked: list[int] = []
    options = LogOptions(
        segment_bytes=64 << 10, stepped=True, whole_bytes_max=1024, slice_bytes=1024
    )
    log = SharedLog.open("/log", options, None, disk)
    for index in (1, 2):
        log.append(1, None, [Entry(index, 1, 0, bytes(20_000))], True, None)
        log.flush()
        log.step()
    log.close()

    def look(data: bytes, start: int, salt: int) -> int:
        looked.append(start)
        return int(head_number_at(data, start, salt))

    monkeypatch.setattr(file_survey, "head_number_at", look)
    survey = Survey(disk, "/log", SegmentReader(disk, "/log"))
    survey.run()
    inside = [at for at in looked if 2048 <= at < 20_000]
    assert inside == []
