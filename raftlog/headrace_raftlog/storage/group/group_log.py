"""One group's part of the shared log, as its core and its host read it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry, HardState
from headrace_raftlog.model.limits import DEAD_LOOKS_MAX, READ_CACHED_BYTES_MAX
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_raftlog.storage.group.accounting import Ledger
from headrace_raftlog.storage.group.snapshot_record import StoredSnapshot
from headrace_raftlog.storage.segment.disk_reads import tell_nobody
from headrace_raftlog.storage.segment.entry_run import read_run
from headrace_raftlog.storage.segment.record import HEADER_BYTES
from headrace_raftlog.storage.segment.segment import SegmentReader
from headrace_raftlog.storage.segment.sparse_index import HINTED, LENGTH_MASK, SparseIndex

STATE_BYTES: Final = HEADER_BYTES + 8  # a hard state's whole record


@final
class StoredGroup(GroupLog):
    """Index of one group's records: 12 bytes an entry behind the snapshot, 20 before it.

    A location packs segment sequence and offset (32 bits each); it is 0 while the entry is not
    known to be durable, and the entry is then in memory. Belongs to the event loop's thread.
    """

    def __init__(self, group: i64, reader: SegmentReader, ledger: Ledger) -> None:
        self.group = group  # incarnation id
        self.member: i64 = 0  # own member id, 0 for a group that was never begun
        self.hard_state = HardState(0, 0, 0)  # newest one, appended or recovered
        self.membership: Membership = NOBODY  # who belonged to the group at `snapshot_index`
        # everything up to here is in the snapshot; 0 while there is none
        self.snapshot_index: i64 = 0
        self.snapshot_term: i64 = 0  # term of the entry there
        # where the newest effective snapshot lies, or None
        self.snapshot: StoredSnapshot | None = None
        self.era: i64 = 0  # stands in every record written now; rises when entries are cut off
        # no segment before this one holds records of the group; 0 while it has none
        self.origin: i64 = 0
        self.state_at: i64 = 0  # location of the newest durable hard state, 0 for none
        self.base_at: i64 = 0  # location of the record that began the group, 0 for none
        self.base_bytes: i64 = 0  # length of that record
        # another incarnation of the group took this one's place, or it was removed
        self.retired = False
        self.reader = reader
        self.ledger = ledger  # accounts of the segments
        self.last: i64 = 0  # see `last_index`
        self.locations: array[int] = array("Q")  # of the entries behind the snapshot
        self.lengths: array[int] = array("I")  # of their blobs, with the bit HINTED
        # of each run of entries of one term and era: index of the first, term, era
        self.runs: list[int] = []
        self.recent: dict[int, Entry] = {}  # entries in memory
        self.live: SparseIndex | None = None  # entries kept up to `snapshot_index`; None for none
        # entries fetched from a peer ahead of an install; None for none
        self.incoming: SparseIndex | None = None
        # those of them that are not durable; None for none
        self.fetched: dict[int, Entry] | None = None
        # indexes behind the snapshot of entries of kind ENTRY_CONFIG; None for none
        self.configs: list[int] | None = None
        self.read_at: i64 = 0  # location behind the entry that was prepared last
        # called with the group when `at_hand` may say more than before
        self.on_read: Callable[[int], None] = tell_nobody
        self._on_read: Callable[[], None] | None = None  # the same without arguments, once needed
        # by index, where the records stand that are not intact: of these entries only term and
        # length are known. None for none.
        self.lost: dict[int, int] | None = None
        # whether `hard_state` was put in the place of one whose vote is not readable
        self.state_lost = False

    def first_index(self) -> i64:
        """Return the index behind the snapshot: the lowest that `entries` can give."""
        return self.snapshot_index + 1

    def last_index(self) -> i64:
        """Return the highest appended index, durable or not; the snapshot's when none follows."""
        return self.last

    def term_at(self, index: i64) -> i64:
        """Return the term of `index`; 0 for index 0; -1 where it is not known."""
        if index <= self.snapshot_index:
            if index == self.snapshot_index:
                return self.snapshot_term
            return 0 if index == 0 else -1
        if index > self.last:
            return -1
        return self.runs[self._run_of(index) + 1]

    def config_entries(self) -> list[Entry]:
        """Return the entries of kind ENTRY_CONFIG from `first_index()` on, in order."""
        configs = self.configs
        return [self.entry(index) for index in configs] if configs is not None else []

    def live_indexes(self) -> array[int]:
        """Return the indexes up to `snapshot_index` of kept entries, ascending."""
        live = self.live
        return live.indexes if live is not None else array("Q")

    def entry(self, index: i64) -> Entry:
        """Return one entry, from memory or disk; also a live one that the snapshot left out.

        Raises:
            KeyError: there is no such entry.
            CorruptLogError: its record fails its checksum.
            OSError: its file cannot be read.
        """
        hit = self.recent.get(index)
        if hit is not None:
            return hit
        location: i64 = self.location_of(index)
        if location == 0:
            raise KeyError(f"group {self.group} keeps no entry {index}")
        cache = self.reader.cache
        hit = cache.find(location)
        if hit is None:
            out: list[Entry] = []
            self._read(location, HEADER_BYTES + self.length_of(index), index, index + 1, out)
            hit = out[0]
            cache.keep(location, hit)
        return hit

    def entry_at_hand(self, index: i64, done: Callable[[], None]) -> Entry | None:
        """Return what `entry` does where that needs no disk; else None, and begin to read it.

        Args:
            index: as for `entry`, which also says what is raised.
            done: called in a later turn of the loop, when it was read or could not be.
        """
        hit = self.recent.get(index)
        if hit is not None:
            return hit
        return self.entry(index) if self.prepare(index, done) else None

    def entries(self, low: i64, high: i64, bytes_max: i64) -> list[Entry]:
        """Return entries from `low` up to and without `high`, cut by bytes but never empty.

        Raises:
            KeyError: `low` is below `first_index()` or beyond `last_index()`.
            CorruptLogError: a stored record fails its checksum.
            OSError: a file cannot be read.
        """
        first: i64 = self.snapshot_index + 1
        if low < first or low > self.last or high <= low:
            raise KeyError(
                f"group {self.group} has entries {first} to {self.last}, "
                f"asked for {low} up to {high}"
            )
        out: list[Entry] = []
        stop = self._cut(low, min(high, self.last + 1), bytes_max)
        index: i64 = low
        while index < stop:
            hit = self.recent.get(index)
            if hit is not None:
                out.append(hit)
                index += 1
            else:
                index = self._load(index, stop, out)
        return out

    def prepare(self, index: i64, done: Callable[[], None]) -> bool:
        """Read an entry ahead, so that `entry` does not wait for the disk.

        Returns:
            Whether `entry` may be called now; else `done` is called in a later turn of the loop.
        """
        location: i64 = 0 if index in self.recent else self.location_of(index)
        if location == 0 or self.reader.cache.find(location) is not None:
            return True
        return self._prepare(location, self.record_bytes_of(index), done)

    def at_hand(self, low: i64, high: i64, bytes_max: i64) -> i64:
        """See `GroupLog.at_hand`; `on_read` is called when missing entries were read."""
        stop = self._cut(low, high, bytes_max)
        for index in range(low, stop):
            if index not in self.recent:
                done = self._on_read
                if done is None:
                    done = self._on_read = partial(self.on_read, self.group)
                if not self._prepare(self.location_of(index), self.record_bytes_of(index), done):
                    return index
        return stop

    def _cut(self, low: i64, high: i64, bytes_max: i64) -> i64:
        """Return the index up to which entries from `low` have that many bytes; one always fits."""
        first: i64 = self.snapshot_index + 1
        left: i64 = bytes_max
        for index in range(low, high):
            left -= i64(self.lengths[index - first]) & LENGTH_MASK
            if left < 0 and index > low:
                return index
        return high

    def _prepare(self, location: i64, size: i64, done: Callable[[], None]) -> bool:
        if size > READ_CACHED_BYTES_MAX:
            return self.reader.prepare_record(location, size, self.group, done)
        newest: i64 = self.ledger.newest
        held = self.reader.prepare(location, size, self.read_at, newest, self.group, done)
        self.read_at = location + size
        return held

    def _load(self, low: i64, high: i64, out: list[Entry]) -> i64:
        """Read the entries from `low` that lie one behind the other on disk; return the next."""
        at: i64 = low - self.snapshot_index - 1
        location: i64 = self.locations[at]
        size: i64 = HEADER_BYTES + (i64(self.lengths[at]) & LENGTH_MASK)
        stop: i64 = low + 1
        while stop < high and stop not in self.recent and size <= READ_CACHED_BYTES_MAX:
            at += 1
            more: i64 = HEADER_BYTES + (i64(self.lengths[at]) & LENGTH_MASK)
            if i64(self.locations[at]) != location + size or more > READ_CACHED_BYTES_MAX:
                break
            size += more
            stop += 1
        self._read(location, size, low, stop, out)
        return stop

    def _read(self, location: i64, size: i64, low: i64, stop: i64, out: list[Entry]) -> None:
        logged: i64 = self.snapshot_index
        terms = [self.term_at(at) if at > logged else 0 for at in range(low, stop)]
        read_run(self.reader, self.group, location, size, low, terms, out)

    def location_of(self, index: i64) -> i64:
        """Return where an entry of the log, or a live one before it, is durable; 0 for nowhere."""
        if index > self.snapshot_index:
            return (
                i64(self.locations[index - self.snapshot_index - 1]) if (index <= self.last) else 0
            )
        live = self.live
        at: i64 = live.find(index) if live is not None else -1
        return i64(live.locations[at]) if live is not None and at >= 0 else 0

    def length_of(self, index: i64) -> i64:
        """Return the blob's length of an entry that is there."""
        return self.stored_length(index) & LENGTH_MASK

    def record_bytes_of(self, index: i64) -> i64:
        """Return the length of the record of an entry that is there."""
        return HEADER_BYTES + self.length_of(index)

    def is_hinted(self, index: i64) -> bool:
        """Return whether the application reads an entry, which is there, no more."""
        return self.stored_length(index) & HINTED != 0

    def stored_length(self, index: i64) -> i64:
        """Return the length of an entry that is there, with the bit HINTED."""
        if index > self.snapshot_index:
            return self.lengths[index - self.snapshot_index - 1]
        live = self.live
        assert live is not None
        return live.lengths[live.find(index)]

    def era_of(self, index: i64) -> i64:
        """Return the era that an entry's record was written in; the current one before the log."""
        if index <= self.snapshot_index:
            return self.era
        return self.runs[self._run_of(index) + 2]

    def _run_of(self, index: i64) -> i64:
        """Return where in `runs` that of an entry stands: mostly it is the last."""
        runs = self.runs
        last: i64 = len(runs) - 3
        if runs[last] <= index:
            return last
        return 3 * bisect_right(range(last // 3), index, key=lambda run: runs[3 * run]) - 3

    def has(self, index: i64) -> bool:
        """Return whether the entry is in the log, or live before it."""
        if index > self.snapshot_index:
            return index <= self.last
        live = self.live
        return live is not None and live.find(index) >= 0

    def hint_dead(self, index: i64) -> None:
        """Note that the application will not read an entry again; nothing if it is not there."""
        if not self.has(index) or self.is_hinted(index):
            return
        location: i64 = self.location_of(index)
        size: i64 = HEADER_BYTES + self.length_of(index)
        live = self.live
        if index > self.snapshot_index:
            self.lengths[index - self.snapshot_index - 1] |= HINTED
        elif live is not None:
            live.lengths[live.find(index)] |= HINTED
        self.ledger.hint(location, size)

    def append(self, entries: list[Entry]) -> None:
        """Make entries visible, in memory only so far; drop replaced ones.

        Args:
            entries: consecutive; the first at most one beyond the last index.

        Raises AssertionError: they would leave a gap or replace compacted entries.
        """
        first: i64 = entries[0].index
        assert self.snapshot_index < first <= self.last + 1, (
            f"group {self.group}: entry {first} behind {self.last} "
            f"(first {self.snapshot_index + 1})"
        )
        if first <= self.last:
            self.truncate(first)
            self.era += 1
        for entry in entries:
            assert entry.index == self.last + 1, f"group {self.group}: gap before {entry!r}"
            self.push(entry.index, entry.term, self.era, 0, len(entry.data), entry.kind)
            self.recent[entry.index] = entry

    def truncate(self, index: i64) -> None:
        """Drop every entry from `index` on."""
        first: i64 = self.snapshot_index + 1
        assert index >= first
        while self.last >= index:
            self.recent.pop(self.last, None)
            self.die(self.locations[self.last - first], self.lengths[self.last - first])
            self.last -= 1
        del self.locations[index - first :]
        del self.lengths[index - first :]
        while self.runs and self.runs[-3] >= index:
            del self.runs[-3:]
        configs = self.configs
        while configs and configs[-1] >= index:
            configs.pop()

    def push(self, index: i64, term: i64, era: i64, location: i64, length: i64, kind: i64) -> None:
        """Put an entry behind the last one."""
        self.locations.append(location)
        self.lengths.append(length)
        if not self.runs:  # of most groups it is the only one: a list without spare room
            self.runs = [index, term, era]
        elif self.runs[-2] != term or self.runs[-1] != era:
            self.runs += [index, term, era]
        if kind == ENTRY_CONFIG:
            if self.configs is None:
                self.configs = []
            self.configs.append(index)
        self.last = index

    def die(self, location: i64, length: i64) -> None:
        """Subtract an entry, once the newest append is durable."""
        size: i64 = HEADER_BYTES + (length & LENGTH_MASK)
        self.ledger.die(location, size)
        if length & HINTED:
            self.ledger.hint(location, -size)

    def settle(self, entries: list[Entry], location: i64) -> None:
        """Note where entries became durable; those replaced meanwhile are passed over.

        Args:
            entries: consecutive entries as appended.
            location: of the first one's record; the others follow it directly.
        """
        at: i64 = location
        first: i64 = self.snapshot_index + 1
        recent = self.recent
        self.ledger.expect(location)
        for entry in entries:
            size: i64 = HEADER_BYTES + i64(len(entry.data))
            if recent.get(entry.index) is not entry:
                self.ledger.die(at, size)
            elif entry.index >= first:
                self.locations[entry.index - first] = at
                if i64(self.lengths[entry.index - first]) & HINTED:
                    self.ledger.hint(at, size)
            else:
                self._settle_live(entry.index, at, size)
            at += size
        self.ledger.add(location, at - location)

    def _settle_live(self, index: i64, location: i64, size: i64) -> None:
        live = self.live
        assert live is not None
        at: i64 = live.find(index)
        live.locations[at] = location
        if i64(live.lengths[at]) & HINTED:
            self.ledger.hint(location, size)

    def held_of(self, entries: list[Entry]) -> i64:
        """Return how many of consecutive entries are in memory: those behind were replaced."""
        count: i64 = len(entries)
        while count > 0 and self.recent.get(entries[count - 1].index) is not entries[count - 1]:
            count -= 1
        return count

    def forget(self, first: i64, stop: i64) -> None:
        """Drop the entries of a range from memory of which an intact record is durable."""
        recent = self.recent
        lost = self.lost
        for index in range(first, stop):
            if index in recent and self.location_of(index) > 0 and (not lost or index not in lost):
                del recent[index]
        if not recent:
            self.recent = {}  # one that was emptied keeps its table

    def forget_dead(self, everything: bool) -> None:
        """Drop dead entries from memory, or all where the application reads none again.

        More than DEAD_LOOKS_MAX entries are not looked through for dead ones.
        """
        self._on_read = None
        if len(self.recent) > DEAD_LOOKS_MAX and not everything:
            return
        for index in list(self.recent):
            if self.has(index) and (everything or self.is_hinted(index)):
                self.forget(index, index + 1)

    def add_incoming(self, entries: list[Entry]) -> None:
        """Keep entries fetched from a peer until an install needs them; known ones are passed."""
        if self.incoming is None:
            self.incoming = SparseIndex()
        if self.fetched is None:
            self.fetched = {}
        for entry in entries:
            if self.incoming.find(entry.index) < 0:
                self.incoming.add(entry.index, 0, len(entry.data))
                self.fetched[entry.index] = entry

    def settle_incoming(self, entries: list[Entry], location: i64) -> None:
        """Note where fetched entries became durable."""
        at: i64 = location
        incoming, fetched = self.incoming, self.fetched
        for entry in entries:
            size: i64 = HEADER_BYTES + i64(len(entry.data))
            self.ledger.add(at, size)
            if fetched is not None and fetched.get(entry.index) is entry:
                assert incoming is not None
                incoming.locations[incoming.find(entry.index)] = at
                del fetched[entry.index]
            elif self.recent.get(entry.index) is entry and self.has(entry.index):
                self._settle_live(entry.index, at, size)
                del self.recent[entry.index]
            else:
                self.ledger.die(at, size)
            at += size
        if fetched is not None and not fetched:
            self.fetched = None

    def has_incoming(self, index: i64) -> bool:
        """Return whether a fetched entry waits for an install."""
        return self.incoming is not None and self.incoming.find(index) >= 0

    def incoming_at(self, index: i64) -> i64:
        """Return where a fetched entry is durable, 0 for nowhere."""
        incoming = self.incoming
        at: i64 = incoming.find(index) if incoming is not None else -1
        return i64(incoming.locations[at]) if incoming is not None and at >= 0 else 0

    def keeps(self, index: i64, location: i64) -> bool:
        """Return whether the record of an entry at a location is the one that is needed."""
        if index > self.snapshot_index:
            return self.location_of(index) == location or self.incoming_at(index) == location
        return self.location_of(index) == location

    def move_entry(self, index: i64, old: i64, location: i64) -> bool:
        """Note that an entry has a durable copy; return False when the old one is not needed."""
        sparse = self.live
        if index > self.snapshot_index:
            at: i64 = index - self.snapshot_index - 1
            if index <= self.last and i64(self.locations[at]) == old:
                self._move_hint(self.lengths[at], old, location)
                self.locations[at] = location
                self._found_again(index, old)
                return True
            sparse = self.incoming
        at = sparse.find(index) if sparse is not None else -1
        if sparse is None or at < 0 or i64(sparse.locations[at]) != old:
            return False
        self._move_hint(sparse.lengths[at], old, location)
        sparse.locations[at] = location
        self._found_again(index, old)
        return True

    def _found_again(self, index: i64, old: i64) -> None:
        """Note that a lost entry has an intact record again, and need not stay in memory."""
        lost = self.lost
        if lost is not None and lost.get(index) == old:
            del lost[index]
            self.recent.pop(index, None)
            if not lost:
                self.lost = None

    def _move_hint(self, length: i64, old: i64, location: i64) -> None:
        if length & HINTED:
            size: i64 = HEADER_BYTES + (length & LENGTH_MASK)
            self.ledger.hint(old, -size)
            self.ledger.expect(location)
            self.ledger.hint(location, size)
