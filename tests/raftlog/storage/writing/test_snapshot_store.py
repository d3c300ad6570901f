"""Snapshots: written in parts, read back whole, never half."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.limits import SNAPSHOT_INFLIGHT_BYTES_MAX
from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.group.snapshot_record import decode_data, decode_live, encode_lead
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_simulation.memory_files import MemoryFiles

Run = Callable[..., list[Entry]]
MEMBERS = Membership((1, 2, 3), (4,))


def snapshot_of(index: int, state: bytes, live: list[int]) -> Snapshot:
    return Snapshot(index, 1, MEMBERS, state, array("Q", live))


def state_of(log: SharedLog, group: int) -> bytes:
    found = log.read_snapshot(group)
    assert found is not None
    return found.state


def save(opened, group: int, snapshot: Snapshot) -> None:
    opened.log.save_snapshot(group, snapshot, "saved")
    opened.log.flush()
    opened.wait(lambda: "saved" in opened.tokens)
    opened.log.flush()


@given(st.sets(st.integers(1, 2**62), max_size=50), st.binary(max_size=50))
def test_bytes_are_read_as_written(live: set[int], state: bytes) -> None:
    snapshot = Snapshot(2**62, 1, MEMBERS, state, array("Q", sorted(live)))
    data = encode_lead(snapshot) + state
    found = decode_data(data)
    assert (found.membership, list(found.live)) == (MEMBERS, sorted(live))
    assert data[found.state_start :] == state


@given(st.binary(max_size=80))
def test_random_bytes_are_a_snapshot_or_an_error(data: bytes) -> None:
    try:
        decode_data(data)
    except ValueError:
        return


@pytest.mark.parametrize("data", [b"\x80", b"\xff" * 11])
def test_cut_or_endless_step_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="live entries"):
        decode_live(data, 0, len(data), 1)


def test_large_snapshot_spans_segments_and_survives(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk, cache_bytes=0)
    opened.commit(1, run(1, 1, *[bytes([at]) * 90 for at in range(30)]), HardState(1, 0, 30))
    state = bytes(range(256)) * 200
    save(opened, 1, snapshot_of(25, state, [2, 3, 25]))
    assert len(disk.names("/log")) > 7
    for again in (opened, None):
        if again is None:
            opened.log.close()
            again = open_log(disk, cache_bytes=0)
        view = again.log.group(1)
        assert (view.snapshot_index, view.first_index(), view.last_index()) == (25, 26, 30)
        assert (view.term_at(25), view.term_at(24), view.membership) == (1, -1, MEMBERS)
        assert [view.entry(at).data[0] for at in (2, 3, 25)] == [1, 2, 24]
        with pytest.raises(KeyError, match="keeps no entry 4"):
            view.entry(4)
        found = again.log.read_snapshot(1)
        assert (found.state, list(found.live)) == (state, [2, 3, 25])


def test_snapshot_is_effective_only_when_it_is_durable(disk: MemoryFiles, run: Run) -> None:
    log = SharedLog.open("/log", LogOptions(segment_bytes=8192, stepped=True), files=disk)
    log.append(1, None, run(1, 1, b"a", b"b"), True, None)
    log.flush()
    log.step()
    log.save_snapshot(1, snapshot_of(2, b"s" * 20000, []))
    log.flush()
    assert (log.group(1).snapshot_index, log.read_snapshot(1)) == (0, None)
    before = disk.after_power_loss(lambda *_: True, names_synced=True)
    log.step()
    log.flush()
    assert log.group(1).snapshot_index == 2
    log.close()
    again = SharedLog.open("/log", LogOptions(segment_bytes=8192, stepped=True), files=before)
    assert (again.group(1).snapshot_index, again.group(1).last_index()) == (0, 2)
    again.close()


def test_snapshot_that_is_not_newer_changes_nothing(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a", b"b", b"c"))
    save(opened, 1, snapshot_of(2, b"new", []))
    opened.log.save_snapshot(1, snapshot_of(2, b"again", []), "second")
    opened.log.save_snapshot(1, snapshot_of(1, b"old", []), "third")
    opened.log.flush()
    opened.wait(lambda: "third" in opened.tokens)
    assert state_of(opened.log, 1) == b"new"


def test_snapshot_that_does_not_fit_the_log_is_a_bug(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a", b"b"))
    with pytest.raises(AssertionError, match="does not fit"):
        opened.log.save_snapshot(1, snapshot_of(3, b"", []))
    with pytest.raises(AssertionError, match="live entry 3 is not in the log"):
        opened.log.save_snapshot(1, snapshot_of(2, b"", [1, 3]))
    with pytest.raises(AssertionError, match="live entry 1 was not fetched"):
        opened.log.install_snapshot(2, snapshot_of(3, b"", [1]), False)


def test_damaged_snapshot_is_never_handed_out(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"))
    opened.commit(2, run(1, 1, b"a"))
    save(opened, 1, snapshot_of(1, b"STATE" * 3000, []))
    path = next(
        f"/log/{name}"
        for name in disk.names("/log")
        if b"STATE" * 100 in disk.file(f"/log/{name}").written
    )
    written = disk.file(path).written
    written[written.index(b"STATE" * 100)] ^= 1
    with pytest.raises(CorruptLogError, match="snapshot of group 1 at entry 1 has a damaged"):
        opened.log.read_snapshot(1)
    opened.log.close()
    assert list(open_log(disk).log.quarantined) == [1]


def test_appends_overtake_the_rest_of_a_very_large_snapshot(disk: MemoryFiles, run: Run) -> None:
    options = LogOptions(segment_bytes=1 << 20, stepped=True)
    log = SharedLog.open("/log", options, files=disk)
    done: list[object] = []
    log.writer.on_durable = done.extend
    log.append(1, None, run(1, 1, b"a"), True, None)
    state = bytes(2 * SNAPSHOT_INFLIGHT_BYTES_MAX)
    log.save_snapshot(1, snapshot_of(1, state, [1]), "snapshot")
    assert log.backlog_bytes < 2 * SNAPSHOT_INFLIGHT_BYTES_MAX
    log.append(2, None, run(1, 1, b"b"), True, "append")
    while "snapshot" not in done:
        log.flush()
        log.step()
    assert done == ["append", "snapshot"]
    log.flush()
    assert state_of(log, 1) == state
    log.close()


def test_install_takes_bodies_from_own_log_and_from_peers(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk, cache_bytes=0)
    opened.log.begin(1, 9, NOBODY)
    opened.commit(1, run(1, 1, b"one", b"two", b"three", b"wrong"), HardState(1, 0, 3))
    live = array("Q", [2, 4, 7])
    assert opened.log.missing(1, live, 3) == [4, 7]
    opened.log.add_incoming(1, [Entry(4, 2, 0, b"four")])
    opened.log.flush()
    opened.log.close()
    opened = open_log(disk, cache_bytes=0)
    assert opened.log.missing(1, live, 3) == [7]
    opened.log.add_incoming(1, [Entry(7, 2, 0, b"seven"), Entry(12, 2, 0, b"later")])
    opened.log.install_snapshot(1, Snapshot(8, 2, MEMBERS, b"state", live), False, "in")
    view = opened.log.group(1)

    def check(log: SharedLog) -> None:
        view = log.group(1)
        assert (view.snapshot_index, view.last_index(), view.term_at(8)) == (8, 8, 2)
        assert [view.entry(at).data for at in live] == [b"two", b"four", b"seven"]
        assert (view.membership, view.member) == (MEMBERS, 9)
        assert state_of(log, 1) == b"state"
        assert log.missing(1, array("Q", [12, 13]), 8) == [13]

    check(opened.log)
    opened.log.flush()
    opened.wait(lambda: "in" in opened.tokens)
    check(opened.log)
    opened.log.close()
    opened = open_log(disk, cache_bytes=0)
    check(opened.log)
    assert view.retired is False


@pytest.mark.parametrize("keep", [False, True])
def test_install_keeps_the_suffix_only_when_told(
    disk: MemoryFiles, open_log, run: Run, keep: bool
) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a", b"b", b"c", b"d"))
    opened.log.install_snapshot(1, snapshot_of(2, b"", [1]), keep, "in")
    opened.log.flush()
    opened.wait(lambda: "in" in opened.tokens)
    for again in (opened, None):
        if again is None:
            opened.log.close()
            again = open_log(disk)
        view = again.log.group(1)
        assert view.last_index() == (4 if keep else 2)
        assert view.entry(1).data == b"a"
    assert again is not None
    assert again.commit(1, run(view.last_index() + 1, 3, b"on"))
