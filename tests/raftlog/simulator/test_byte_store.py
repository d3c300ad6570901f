"""The real log under the simulator: its expected content is known beside it."""

from __future__ import annotations

from array import array

import pytest

from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.simulator.byte_store import ByteStore
from headrace_raftlog.simulator.coverage import Coverage
from headrace_raftlog.simulator.invariant_error import InvariantError
from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.parameters import draw
from headrace_raftlog.simulator.profiles import PROFILES
from headrace_raftlog.storage.disk.memory_files import MemoryFiles

FOUNDERS = Membership((1, 2, 3))


class ForgetfulFiles(MemoryFiles):
    """A disk that answers syncs and, from some moment on, does not do them."""

    forgets = False

    def sync(self, fd):
        if not self.forgets:
            super().sync(fd)

    def write_through(self, fd, pieces, offset):
        if self.forgets:
            return self.write(fd, b"".join(pieces), offset)
        return super().write_through(fd, pieces, offset)


def entry(index, term=1, size=5):
    return Entry(index, term, ENTRY_NORMAL, bytes(size))


def new_store(seed, files=None):
    loop = Loop(seed, False)
    store = ByteStore(loop, draw(loop.rng, PROFILES["bytes"]).healed(), Coverage())
    if files is not None:
        store.files = files
    return store


def start(store):
    tokens: list[object] = []
    store.open(tokens.extend, lambda: None)
    return tokens


def write(store, tokens, *entries, group=7, hard_state=None):
    """Write until it is durable."""
    token = object()
    store.append(group, hard_state, list(entries), True, token)
    store.flush()
    while token not in tokens:
        assert store.loop.step()


@pytest.fixture
def store():
    return new_store(3)


@pytest.fixture
def tokens(store):
    tokens = start(store)
    store.begin(7, 1, FOUNDERS)
    return tokens


def test_what_is_durable_is_known_and_comes_back(store, tokens):
    write(store, tokens, entry(1), entry(2), hard_state=HardState(1, 1, 0))
    assert [one.index for one in store.durable[7].items] == [1, 2]
    store.power_off()
    start(store)
    assert (store.member(7), store.log(7).last_index(), store.hard_state(7).vote) == (1, 2, 1)


def test_snapshots_are_followed(store, tokens):
    write(store, tokens, entry(1), entry(2), entry(3))
    store.save_snapshot(7, Snapshot(2, 1, FOUNDERS, b"state", array("Q", [1])), object())
    write(store, tokens, entry(4))
    assert (store.durable[7].snapshot_index, store.log(7).first_index()) == (2, 3)
    store.add_incoming(7, [entry(5)])
    store.install_snapshot(7, Snapshot(6, 1, FOUNDERS, b"newer", array("Q", [1, 5])), False)
    write(store, tokens, entry(7))
    store.power_off()
    start(store)
    assert (store.log(7).first_index(), store.log(7).last_index()) == (7, 7)
    assert store.entry(7, 5) == entry(5)


def test_fetched_bodies_that_survived_are_known_for_the_install_after_them():
    survived = 0
    for seed in range(40):
        store = new_store(seed)
        tokens = start(store)
        store.begin(7, 1, FOUNDERS)
        write(store, tokens, entry(1))
        store.add_incoming(7, [entry(5)])
        store.flush()
        store.power_off()
        tokens = start(store)
        missing = store.missing(7, array("Q", [5]), 1)
        assert (missing == []) == (5 in store.durable[7].incoming)
        if missing:
            continue
        survived += 1
        store.install_snapshot(7, Snapshot(6, 1, FOUNDERS, b"newer", array("Q", [5])), False)
        write(store, tokens, entry(7))
        assert store.durable[7].bodies == {5: entry(5)}
    assert survived > 5


def test_fetched_bodies_are_forgotten_once_a_snapshot_has_replaced_them(store, tokens):
    write(store, tokens, entry(1), entry(2), entry(3))
    store.add_incoming(7, [entry(2), entry(9)])
    store.save_snapshot(7, Snapshot(3, 1, FOUNDERS, b"state", array("Q", [1])), object())
    write(store, tokens, entry(4))
    assert sorted(store.durable[7].incoming) == [9]
    store.power_off()
    start(store)
    assert store.missing(7, array("Q", [1, 9]), 4) == []


def test_any_part_of_what_was_under_way_is_explained():
    lasts = set()
    for seed in range(40):
        store = new_store(seed)
        tokens = start(store)
        store.begin(7, 1, FOUNDERS)
        write(store, tokens, entry(1))
        store.append(7, HardState(2, 0, 1), [entry(2, 2, 900), entry(3, 2, 900)], True, object())
        store.append(8, None, [], False, object())
        store.flush()
        store.power_off()
        start(store)
        lasts.add(store.log(7).last_index())
    assert lasts == {1, 3}


def test_loss_of_what_was_acknowledged_is_noticed():
    noticed = 0
    for seed in range(40):
        files = ForgetfulFiles()
        store = new_store(seed, files)
        tokens = start(store)
        store.begin(7, 1, FOUNDERS)
        write(store, tokens, entry(1))
        files.forgets = True
        write(store, tokens, entry(2))
        store.power_off()
        try:
            start(store)
        except (InvariantError, CorruptLogError):  # the log notices what stood before its end
            noticed += 1
    assert noticed > 5


def test_damage_ends_in_quarantine_and_a_new_beginning(store, tokens):
    for index in range(1, 12):
        write(store, tokens, entry(index, size=400))
    store.power_off()
    assert store.damage(7)
    tokens = start(store)
    assert (store.quarantined(), 7 in store.durable) == ([7], False)
    store.begin(7, 1025, NOBODY)
    write(store, tokens, entry(1))
    store.power_off()
    start(store)
    assert (store.quarantined(), store.member(7)) == ([], 1025)


def test_damage_that_nobody_did_is_noticed(store, tokens):
    for index in range(1, 12):
        write(store, tokens, entry(index, size=400))
    store.power_off()
    assert store.damage(7)
    store._damaged = {}
    with pytest.raises(InvariantError, match="quarantined"):
        start(store)


def test_entry_that_rots_is_lost_until_it_is_put_back(store, tokens):
    written = [entry(index, size=400) for index in range(1, 12)]
    for each in written:
        write(store, tokens, each)
    store.power_off()
    assert store.rot(7, 3)
    tokens = start(store)
    assert store.quarantined() == []
    assert store.lost(7) == [(3, written[2].term)]
    assert store.held(7, 3, written[2].term) is None
    assert store.held(7, 4, written[3].term) == written[3]
    assert not store.mend(7, written[3])
    assert store.mend(7, written[2])
    write(store, tokens, entry(12))
    assert store.lost(7) == []
    store.power_off()
    start(store)
    assert store.lost(7) == []
    assert store.entry(7, 3) == written[2]


def test_rot_that_nobody_did_is_noticed(store, tokens):
    for index in range(1, 12):
        write(store, tokens, entry(index, size=400))
    store.power_off()
    assert store.rot(7, 3)
    store.rotten = {}
    with pytest.raises(InvariantError, match="are lost"):
        start(store)


def test_damage_that_could_pass_for_a_torn_end_is_not_done(store, tokens):
    write(store, tokens, entry(1))
    store.power_off()
    assert not store.damage(7)
    assert not store.damage(9)


def test_full_disk_and_failed_sync(store, tokens):
    store.full = True
    token = object()
    store.append(7, None, [entry(1)], True, token)
    store.flush()
    for _ in range(5):
        assert store.loop.step()
    assert token not in tokens
    store.full = False
    while token not in tokens:
        assert store.loop.step()
    failures = []
    store._failed = lambda: failures.append(1)
    store._breaks = "sync"
    store.append(7, None, [entry(2)], True, object())
    store.flush()
    store.loop.step()
    assert failures == [1]


def test_removed_and_wiped(store, tokens):
    write(store, tokens, entry(1))
    store.remove_group(7)
    store.begin(8, 1, FOUNDERS)
    write(store, tokens, entry(1), group=8)
    store.power_off()
    tokens = start(store)
    assert (store.member(7), store.member(8)) == (0, 1)
    store.power_off()
    store.wipe()
    start(store)
    assert (store.member(8), store.durable) == (0, {})
