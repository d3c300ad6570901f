"""Compaction of a group's index by a snapshot: entries before it go, live ones stay."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from mypy_extensions import i64

from headrace_raftlog.model.entry import HardState
from headrace_raftlog.storage.group.group_log import STATE_BYTES, StoredGroup
from headrace_raftlog.storage.group.snapshot_record import StoredSnapshot
from headrace_raftlog.storage.segment.sparse_index import Matching, SparseIndex, ascending_run

_EMPTY: Final = SparseIndex()
_CUTS_MAX: Final = 8  # stretches up to which cutting moves less memory than copying


def lacking(group: StoredGroup, live: array[int], trusted: i64) -> list[int]:
    """Return which live indexes neither the log up to `trusted` nor fetched entries cover."""
    sparse = group.live if group.live is not None else _EMPTY
    before: i64 = bisect_right(live, group.snapshot_index)
    out = Matching(sparse.indexes, live, before).missing
    covered: i64 = max(before, bisect_right(live, min(group.last, trusted)))
    out.extend(live[covered:])
    return out if group.incoming is None else [at for at in out if not group.has_incoming(at)]


def without_dead(group: StoredGroup, live: array[int]) -> array[int]:
    """Return the live indexes of a later snapshot without those that are dead in this log."""
    sparse = group.live if group.live is not None else _EMPTY
    before: i64 = bisect_right(live, group.snapshot_index)
    dead = Matching(sparse.indexes, live, before).missing
    if not dead:
        return live
    gone = set(dead)
    return array("Q", [index for index in live if index not in gone])


def compact(group: StoredGroup, index: i64, term: i64, live: array[int]) -> None:
    """Let everything up to `index` go but the live entries, which the group has itself.

    Args:
        group: its snapshot lies before `index`.
        index: at most the last index of the log.
        term: of the entry there.
        live: ascending, up to `index`.

    Raises AssertionError: a live entry is not there.
    """
    before: i64 = bisect_right(live, group.snapshot_index)
    fresh = _kept_of_live(group, live, before)
    _keep_of_log(group, index, live, before, fresh)
    _cut_front(group, index)
    if group.incoming is not None:
        _prefer_incoming(group, fresh, group.incoming)
        _release_incoming(group, index, fresh)
    _finish(group, index, term, fresh)


def _kept_of_live(group: StoredGroup, live: array[int], count: i64) -> SparseIndex:
    """Return those entries before the log that are among the first `count` live ones."""
    old = group.live
    if old is None:
        old = SparseIndex()
    matched = Matching(old.indexes, live, count)
    lost = matched.missing
    assert not lost, f"group {group.group}: live entry {lost[0]} is not in the log"
    if len(matched.starts) <= _CUTS_MAX:
        _cut_live(group, old, matched)
        return old
    fresh = SparseIndex()
    done: i64 = 0
    for run in range(len(matched.starts)):
        start: i64 = matched.starts[run]
        stop: i64 = matched.stops[run]
        _drop_live(group, old, done, start)
        fresh.take(old.indexes, start, old.locations, old.lengths, start, stop - start)
        done = stop
    _drop_live(group, old, done, len(old.indexes))
    return fresh


def _cut_live(group: StoredGroup, old: SparseIndex, matched: Matching) -> None:
    """Cut everything between a few stretches, from the end, rather than copy them all."""
    end: i64 = len(old.indexes)
    run: i64 = len(matched.starts)
    while end > 0:
        run -= 1
        stop: i64 = matched.stops[run] if run >= 0 else 0
        if stop < end:
            _drop_live(group, old, stop, end)
            old.cut(stop, end)
        end = matched.starts[run] if run >= 0 else 0


def _keep_of_log(
    group: StoredGroup, index: i64, live: array[int], before: i64, fresh: SparseIndex
) -> None:
    """Put the live entries of the log up to `index`, from position `before` on, behind others."""
    first: i64 = group.snapshot_index + 1
    count: i64 = len(live)
    done: i64 = 0
    at: i64 = before
    while at < count:
        stop: i64 = ascending_run(live, at, count)
        place: i64 = i64(live[at]) - first
        end: i64 = place + stop - at
        assert first + end - 1 <= index, f"group {group.group}: live entry {live[stop - 1]} is late"
        _drop_log(group, first, done, place)
        fresh.take(live, at, group.locations, group.lengths, place, stop - at)
        done = end
        at = stop
    _drop_log(group, first, done, index + 1 - first)


def _drop_log(group: StoredGroup, first: i64, start: i64, stop: i64) -> None:
    """Let entries of the log go, by their positions in it."""
    recent = group.recent
    for position in range(start, stop):
        if recent:
            recent.pop(first + position, None)
        group.die(group.locations[position], group.lengths[position])


def _drop_live(group: StoredGroup, old: SparseIndex, start: i64, stop: i64) -> None:
    """Let live entries go, by their positions."""
    recent = group.recent
    for position in range(start, stop):
        if recent:
            recent.pop(old.indexes[position], None)
        group.die(old.locations[position], old.lengths[position])


def _cut_front(group: StoredGroup, index: i64) -> None:
    """Remove the entries up to `index` from the log; they are neither counted nor retained."""
    gone: i64 = index - group.snapshot_index
    group.locations = group.locations[gone:]
    group.lengths = group.lengths[gone:]
    keep: i64 = 0
    runs = group.runs
    while keep + 3 < len(runs) and runs[keep + 3] <= index + 1:
        keep += 3
    del runs[:keep]
    if index == group.last:
        group.runs = []
    elif runs[0] <= index:
        runs[0] = index + 1
    configs = group.configs
    if configs is not None:
        configs = [config for config in configs if config > index]
        group.configs = configs if configs else None


def _finish(group: StoredGroup, index: i64, term: i64, live: SparseIndex) -> None:
    group.live = live if live.indexes else None
    group.snapshot_index = index
    group.snapshot_term = term
    group.last = max(group.last, index)
    state = group.hard_state
    commit: i64 = max(index, min(state.commit, group.last))
    if state.commit != commit:
        group.hard_state = HardState(state.term, state.vote, commit)


def install(group: StoredGroup, index: i64, term: i64, live: array[int], keep_suffix: bool) -> i64:
    """Let a peer's snapshot take the place of the log, or of its beginning.

    Args:
        group: its snapshot lies before `index`.
        index: of the snapshot.
        term: of the entry there.
        live: ascending; the group has fetched or owns the entry of each.
        keep_suffix: whether entries behind `index` stay.

    Returns:
        Beyond this index, entries of earlier eras are void.

    Raises AssertionError: a live entry is neither fetched nor the group's own; nothing was changed.
    """
    incoming = group.incoming if group.incoming is not None else _EMPTY
    fetched = group.fetched
    fresh = SparseIndex()
    kept: i64 = 0
    for wanted in live:
        at: i64 = incoming.find(wanted)
        if at >= 0:
            fresh.add(wanted, incoming.locations[at], incoming.lengths[at])
        else:
            assert group.has(wanted), f"group {group.group}: live entry {wanted} was not fetched"
            fresh.add(wanted, group.location_of(wanted), group.stored_length(wanted))
            kept = wanted
    old = group.live if group.live is not None else _EMPTY
    for position in range(len(old.indexes)):
        _release(
            group, fresh, old.indexes[position], old.locations[position], old.lengths[position]
        )
    stop: i64 = min(index, group.last) if keep_suffix else group.last
    first: i64 = group.snapshot_index + 1
    for position in range(stop - group.snapshot_index):
        _release(group, fresh, first + position, group.locations[position], group.lengths[position])
    for wanted in fresh.indexes:
        if incoming.find(wanted) >= 0:
            group.recent.pop(wanted, None)
            if fetched is not None and wanted in fetched:
                group.recent[wanted] = fetched.pop(wanted)
    _release_incoming(group, index, fresh)
    if keep_suffix and group.last > index:
        _cut_front(group, index)
        kept = group.last
    else:
        group.locations, group.lengths = array("Q"), array("I")
        group.runs = []
        group.configs = None
        group.last = index
        if keep_suffix:
            kept = index
        else:
            group.era += 1
    _finish(group, index, term, fresh)
    return kept


def _release(
    group: StoredGroup, fresh: SparseIndex, index: i64, location: i64, length: i64
) -> None:
    """Take an own entry off the accounts unless it is among the live ones."""
    at: i64 = fresh.find(index)
    if at < 0:
        group.recent.pop(index, None)
    elif i64(fresh.locations[at]) == location:
        return
    group.die(location, length)


def _prefer_incoming(group: StoredGroup, fresh: SparseIndex, incoming: SparseIndex) -> None:
    """Keep the fetched body of a live entry rather than the group's own, as recovery does."""
    fetched = group.fetched
    for position in range(len(incoming.indexes)):
        index: i64 = incoming.indexes[position]
        at: i64 = fresh.find(index)
        if at < 0:
            continue
        group.die(fresh.locations[at], fresh.lengths[at])
        fresh.locations[at] = incoming.locations[position]
        fresh.lengths[at] = incoming.lengths[position]
        group.recent.pop(index, None)
        if fetched is not None and index in fetched:
            group.recent[index] = fetched.pop(index)


def _release_incoming(group: StoredGroup, index: i64, fresh: SparseIndex) -> None:
    """Keep those fetched entries that lie beyond the snapshot; the others are live now or dead."""
    incoming = group.incoming
    if incoming is None:
        return
    rest = SparseIndex()
    for position in range(len(incoming.indexes)):
        known: i64 = incoming.indexes[position]
        if known > index:
            rest.add(known, incoming.locations[position], incoming.lengths[position])
        elif fresh.find(known) < 0:
            group.die(incoming.locations[position], incoming.lengths[position])
            if group.fetched is not None:
                group.fetched.pop(known, None)
    group.incoming = rest if rest.indexes else None


def retire(group: StoredGroup) -> None:
    """Take everything of a group off the accounts: it was removed, or is begun anew."""
    group.retired = True
    for sparse in (group.live, group.incoming):
        if sparse is not None:
            for position in range(len(sparse.indexes)):
                group.die(sparse.locations[position], sparse.lengths[position])
    for position in range(len(group.locations)):
        group.die(group.locations[position], group.lengths[position])
    group.ledger.die(group.state_at, STATE_BYTES)
    group.ledger.die(group.base_at, group.base_bytes)
    if group.snapshot is not None:
        drop_snapshot(group, group.snapshot)
    group.live, group.incoming, group.fetched = None, None, None
    group.recent = {}


def drop_snapshot(group: StoredGroup, stored: StoredSnapshot) -> None:
    """Subtract a snapshot's records, once the newest append is durable."""
    stored.void = True
    group.ledger.die(stored.location, stored.length)
    for part in range(len(stored.parts)):
        group.ledger.die(stored.parts[part], stored.part_bytes[part])
