"""Entries that rot on the disks of several nodes at once, and are put back as the nodes do it.

It is `node/entry_repair.py` in the small: a group stands still while something of its log is lost,
asks whoever is up for entries of that index and term, and takes a snapshot where they are
compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from headrace_raftlog.model.entry import ENTRY_NORMAL, HardState
from headrace_raftlog.model.errors import LostEntryError
from headrace_raftlog.storage.group.lost_entries import lose
from headrace_raftlog.storage.segment.record import HEADER_BYTES
from headrace_raftlog.storage.segment.segment import segment_name
from headrace_simulation.simulator.byte_store import BEFORE_DAMAGE_BYTES, DIRECTORY, ByteStore
from headrace_simulation.simulator.catalog import GroupRecord
from headrace_simulation.simulator.port import NodePort

FETCHED = 0.7  # probability that a peer is reached in a tick


def rot(victim: NodePort, nodes: Sequence[NodePort], record: GroupRecord, rng: Random) -> bool:
    """Flip a bit of a committed entry that another node has; False without one.

    A node that runs reads it at once: the group stands still there from then on.
    """
    store = victim.store
    durable = store.durable.get(record.group)
    if not isinstance(store, ByteStore) or durable is None:
        return False
    others = [node for node in nodes if node is not victim]
    found = [
        entry.index
        for entry in durable.items
        if entry.kind == ENTRY_NORMAL
        and entry.data
        and entry.index <= durable.hard_state.commit
        and any(_holds(node, record, entry.index, entry.term) for node in others)
    ]
    older = found[: len(found) // 2 + 1]  # the last ones could pass for a torn end
    if not found:
        return False
    index = rng.choice(older)
    if not victim.up:
        return store.rot(record.group, index)
    if record.group not in victim.replicas or not _rot_in_use(store, record.group, index):
        return False
    if victim.replicas[record.group].is_leader:
        victim.coverage.note("leaders that find rot")
    victim.drop(record.group)
    victim.coverage.note("rot found by a node that runs")
    return True


def _rot_in_use(store: ByteStore, group: int, index: int) -> bool:
    """Flip a bit in the body of a durable entry while the log is in use.

    Returns:
        Whether a read has found it: the entry is lost then.
    """
    shared = store.shared
    if not shared.known(group):
        return False
    view = shared.group(group)
    location = int(view.location_of(index)) if view.has(index) else 0
    newest = max(
        int(one.location_of(one.last_index())) for one in map(shared.group, shared.groups())
    )
    if location == 0 or newest - location < BEFORE_DAMAGE_BYTES:
        return False
    file = store.files.file(f"{DIRECTORY}/{segment_name(location >> 32)}")
    at, bit = (location & 0xFFFFFFFF) + HEADER_BYTES, 1 << store.loop.rng.randrange(8)
    for data in (file.written, file.synced):
        data[at] ^= bit
    view.recent.pop(index, None)
    try:
        view.entry(index)
    except LostEntryError as error:
        store.rotten.setdefault(group, set()).add(index)
        return lose(view, error.index)
    for data in (file.written, file.synced):  # it is in memory: no read would find it now
        data[at] ^= bit
    return False


def _holds(node: NodePort, record: GroupRecord, index: int, term: int) -> bool:
    durable = node.store.durable.get(record.group)
    if durable is None or durable.member in record.lost:
        return False
    if index <= durable.snapshot_index:
        return True
    rotten = node.store.rotten.get(record.group, ())
    return durable.term_at(index) == term and index not in rotten


def mended(node: NodePort, record: GroupRecord) -> bool:
    """Bring a group one step closer to having nothing lost; return whether that is so."""
    store, group = node.store, record.group
    if not isinstance(store, ByteStore) or group not in store.rotten:
        return True
    if not store.lost(group) and not store.is_writing(group):
        del store.rotten[group]
        node.coverage.note("mended groups")
        return True
    node.coverage.note("groups that stand still")
    for peer in node.peers:
        reached = peer.up and not peer.paused and node.network.connected(peer.number, node.number)
        if not reached or node.loop.rng.random() >= FETCHED:
            continue
        assert isinstance(peer.store, ByteStore)
        for index, term in store.lost(group):
            entry = peer.store.held(group, index, term)
            if entry is not None and store.mend(group, entry):
                node.coverage.note("mended entries")
        if store.lost(group):
            _take_snapshot(store, peer.store, group)
    store.flush()
    return False


def _take_snapshot(store: ByteStore, source: ByteStore, group: int) -> None:
    """Install a peer's snapshot that lies behind everything that is still lost."""
    lost = [index for index, _ in store.lost(group)]
    if not source.shared.known(group):
        return
    snapshot = source.read_snapshot(group)
    log = store.log(group)
    if snapshot is None or snapshot.index < max(lost) or snapshot.index < log.first_index():
        return
    behind = [index for index in lost if index >= log.first_index()]
    state = store.hard_state(group)
    trusted = min([state.commit, *(index - 1 for index in behind)])
    bodies = [source.entry(group, i) for i in store.missing(group, snapshot.live, trusted)]
    if any(index in snapshot.live for index in lost if index < log.first_index()):
        return
    if bodies:
        store.add_incoming(group, bodies)
    if state.term < snapshot.term:
        store.append(group, HardState(snapshot.term, 0, state.commit), [], True, None)
    keeps = log.term_at(snapshot.index) == snapshot.term
    store.install_snapshot(group, snapshot, keeps)
    store.append(group, store.hard_state(group), [], True, None)
