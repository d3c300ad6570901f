"""The simulated disk: what survives a crash, and what does not."""

from __future__ import annotations

from array import array

import pytest

from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_simulation.simulator.coverage import Coverage
from headrace_simulation.simulator.disk import ENTRY, INSTALL_KEEPING, SAVE, Disk, Record, play
from headrace_simulation.simulator.loop import Loop
from headrace_simulation.simulator.memory_log import MemoryLog
from headrace_simulation.simulator.parameters import draw
from headrace_simulation.simulator.profiles import PROFILES

FOUNDERS = Membership((1, 2, 3))


def entry(index, term=1):
    return Entry(index, term, ENTRY_NORMAL, b"")


def snapshot(index, term, live=()):
    return Snapshot(index, term, FOUNDERS, b"state", array("Q", live))


def new_disk(seed, done):
    loop = Loop(seed, False)
    disk = Disk(loop, draw(loop.rng, PROFILES["calm"]).healed(), Coverage())
    disk.open(done, lambda: None)
    for group in (7, 8):
        disk.begin(group, 1, FOUNDERS)
    return disk


@pytest.fixture
def finished():
    """Return the tokens that each sync made durable."""
    return []


@pytest.fixture
def disk(finished):
    return new_disk(1, finished.append)


def write(disk, token, *entries, group=7, hard_state=None):
    disk.append(group, hard_state, list(entries), True, token)
    disk.flush()


def sync(disk):
    assert disk.loop.step()


def test_writes_that_gather_during_a_sync_share_the_next(disk, finished):
    for number in (1, 2, 3):
        write(disk, number, entry(number))
    assert disk.durable == {}
    assert disk.log(7).last_index() == 3
    sync(disk)
    assert (finished, disk.durable[7].items) == ([[1]], [entry(1)])
    sync(disk)
    assert (finished, len(disk.durable[7].items)) == ([[1], [2, 3]], 3)


def test_later_entries_replace_earlier_ones(disk):
    write(disk, 1, entry(1), entry(2), entry(3), hard_state=HardState(1, 0, 0))
    sync(disk)
    write(disk, 2, entry(2, 2), hard_state=HardState(2, 0, 0))
    sync(disk)
    durable = disk.durable[7]
    assert durable.items == [entry(1), entry(2, 2)]
    assert (durable.hard_state.term, durable.term_at(2), durable.term_at(3)) == (2, 2, -1)
    assert (durable.holds(2, 2), durable.holds(2, 1), durable.holds(3, 1)) == (True, False, False)


def test_crash_keeps_a_prefix_of_what_all_groups_wrote_and_did_not_sync():
    kept = set()
    for seed in range(80):
        disk = new_disk(seed, lambda tokens: None)
        write(disk, 1, entry(1), hard_state=HardState(1, 0, 0))
        sync(disk)
        write(disk, 2, entry(2), hard_state=HardState(2, 0, 0))
        write(disk, 3, entry(1), group=8)
        write(disk, 4, entry(3))
        disk.power_off()
        one, other = disk.durable[7], disk.durable[8]
        kept.add((one.hard_state.term, len(one.items), len(other.items)))
        while disk.loop.step():
            pass
    assert kept == {(1, 1, 0), (2, 1, 0), (2, 2, 0), (2, 2, 1), (2, 3, 1)}


def test_own_snapshot_replaces_the_beginning_once_it_is_durable(disk):
    write(disk, 1, entry(1), entry(2), entry(3))
    sync(disk)
    disk.save_snapshot(7, snapshot(2, 1, live=[1]), "saved")
    disk.flush()
    assert disk.log(7).first_index() == 1
    sync(disk)
    assert (disk.log(7).first_index(), disk.log(7).term_at(2), disk.log(7).last_index()) == (
        3,
        1,
        3,
    )
    assert disk.entry(7, 1) == entry(1)
    with pytest.raises(KeyError):
        disk.entry(7, 2)


@pytest.mark.parametrize(("keep", "last"), [(True, 3), (False, 2)])
def test_installed_snapshot_counts_at_once(disk, keep, last):
    write(disk, 1, entry(1), entry(2), entry(3))
    disk.add_incoming(7, [entry(1)])
    disk.install_snapshot(7, snapshot(2, 1, live=[1]), keep)
    assert (disk.log(7).first_index(), disk.log(7).last_index()) == (3, last)
    assert disk.read_snapshot(7).index == 2
    assert disk.entry(7, 1) == entry(1)


def test_bodies_that_are_missing_are_those_not_known_to_be_committed(disk):
    write(disk, 1, entry(1), entry(2), entry(3))
    disk.add_incoming(7, [entry(5)])
    assert disk.missing(7, array("Q", [1, 2, 3, 4, 5]), 2) == [3, 4]


def test_older_snapshot_is_ignored(disk):
    write(disk, 1, entry(1), entry(2), entry(3))
    disk.install_snapshot(7, snapshot(2, 1), True)
    disk.log(7).save(snapshot(1, 1))
    assert disk.read_snapshot(7).index == 2


def test_older_snapshot_of_a_peer_behind_an_own_one_changes_nothing():
    logs: dict[int, MemoryLog] = {}
    entries = [Record(ENTRY, 7, entry(index)) for index in (1, 2, 3)]
    snapshots = [Record(SAVE, 7, snapshot(3, 1)), Record(INSTALL_KEEPING, 7, snapshot(2, 1))]
    for record in [*entries, *snapshots, Record(ENTRY, 7, entry(4))]:
        play(logs, {}, record)
    assert (logs[7].first_index(), logs[7].last_index()) == (4, 4)


def test_damaged_group_is_quarantined_until_it_begins_anew(disk, finished):
    write(disk, 1, entry(1))
    sync(disk)
    disk.power_off()
    assert disk.damage(7)
    assert not disk.damage(9)
    disk.open(finished.append, lambda: None)
    assert (disk.quarantined(), disk.member(7)) == ([7], 0)
    disk.begin(7, 1025, Membership(()))
    write(disk, 2, entry(1))
    sync(disk)
    assert (disk.quarantined(), disk.member(7)) == ([], 1025)


def test_removed_group_stays_away(disk, finished):
    write(disk, 1, entry(1))
    disk.remove_group(7)
    disk.flush()
    sync(disk)
    sync(disk)
    disk.power_off()
    disk.open(finished.append, lambda: None)
    assert (7 in disk.durable, 7 in disk.removed, 8 in disk.removed) == (False, True, False)


def test_full_disk_finishes_nothing_until_there_is_space(disk, finished):
    disk.full = True
    write(disk, 1, entry(1))
    for _ in range(5):
        sync(disk)
    assert finished == []
    disk.full = False
    sync(disk)
    assert finished == [[1]]


def test_wiped_disk_knows_nothing(disk, finished):
    write(disk, 1, entry(1))
    sync(disk)
    disk.power_off()
    disk.wipe()
    disk.open(finished.append, lambda: None)
    assert (disk.durable, disk.member(7)) == ({}, 0)
