"""Rebuilding one group's index from records in whatever order and selection they are left.

Files are removed once nothing in them is needed, so of the records that are not needed any subset
may still be there, and needed ones may have been moved behind newer ones. What counts follows from
eras: within an era a log only grows, and the first entry of a new one cuts off the older eras'
entries from its index on. `LOG.md` says why that is enough.
"""

from __future__ import annotations

from array import array
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import ENTRY_CONFIG, HardState
from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_raftlog.storage.group.snapshot_record import StoredSnapshot


@final
class DiscontinuousEntries:
    """Entries that do not continue the log where they were found: 34 bytes each."""

    def __init__(self) -> None:
        self.indexes: array[int] = array("Q")  # in the order found, like all that follow
        self.locations: array[int] = array("Q")  # packed locations
        self.lengths: array[int] = array("I")  # bytes of the blobs
        self.terms: array[int] = array("Q")
        self.eras: array[int] = array("I")  # eras of the records
        self.kinds: array[int] = array("B")  # kinds of the entries

    def add(self, era: i64, index: i64, term: i64, location: i64, length: i64, kind: i64) -> None:
        """Keep one."""
        self.indexes.append(index)
        self.locations.append(location)
        self.lengths.append(length)
        self.terms.append(term)
        self.eras.append(era)
        self.kinds.append(kind)

    def beats(self, at: i64, other: i64) -> bool:
        """Return whether one of two records of an index counts: of the later era, then place."""
        era: i64 = self.eras[at]
        known: i64 = self.eras[other]
        if era != known:
            return era > known
        return i64(self.locations[at]) > i64(self.locations[other])


@final
class FoundGroup:
    """Findings of recovery about one group so far."""

    def __init__(self, group: i64, origin: i64) -> None:
        self.group = group  # incarnation id
        self.origin = origin  # lowest segment with a record of it
        self.era: i64 = 0  # highest era found
        self.base_era: i64 = 0  # records of earlier eras are void
        self.member: i64 = 0  # own member id, 0 for none
        self.membership: Membership = NOBODY  # the founding one
        self.base_at: i64 = 0  # location of the newest record that began the group, 0 for none
        self.base_bytes: i64 = 0  # its length
        self.state = HardState(0, 0, 0)  # newest hard state
        self.state_at: i64 = 0  # its location, 0 for none
        self.state_era: i64 = 0
        # whether its vote is not readable, and its term the next one therefore
        self.state_lost = False
        # the effective record with the highest index, or None
        self.snapshot: StoredSnapshot | None = None
        self.snapshot_era: i64 = 0
        # locations and lengths of snapshot parts, by serial and number
        self.parts: dict[int, dict[int, tuple[int, int]]] = {}
        self.first: i64 = 1  # index of the first entry of the run that is being continued
        self.last: i64 = 0  # index of its last one; below `first` when there is none
        self.locations: array[int] = array("Q")  # locations of the run's entries
        self.lengths: array[int] = array("I")  # lengths of their blobs
        self.run_starts: list[int] = []  # where term or era changes in the run
        self.run_terms: list[int] = []  # terms from there on
        self.run_eras: list[int] = []  # eras from there on, ascending
        self.tip_era: i64 = -1  # era of the run's last entry, -1 when there is none
        self.tip_term: i64 = 0
        self.configs: list[int] = []  # indexes in the run of entries of kind ENTRY_CONFIG
        self.strays: DiscontinuousEntries | None = None  # entries outside the run
        self.incoming: DiscontinuousEntries | None = None  # entries fetched from a peer
        # index and location of each entry whose record is not intact but for its header
        self.lost: list[tuple[int, int]] = []
        # highest era of such a record that began the group, -1 for none
        self.lost_base_era: i64 = -1
        # era, index and term of such records that made a snapshot effective
        self.lost_snapshots: list[tuple[int, int, int]] = []
        self.lost_reason = ""  # where one of the last two kinds stands
        self.problem = ""  # what does not fit though its checksum is right; '' for nothing
        self.problem_at: i64 = 0  # location of that record

    def take_entry(
        self, era: i64, index: i64, term: i64, location: i64, length: i64, kind: i64, copy: bool
    ) -> None:
        """Take in an entry's record."""
        if era < self.base_era:
            return
        self.era = max(self.era, era)
        if copy:
            self._stray(era, index, term, location, length, kind)
            return
        if self.run_eras:
            newest: i64 = self.run_eras[-1]
            if era < newest or (era == newest and index <= self.last):
                self._stray(era, index, term, location, length, kind)
                return
            if index != self.last + 1:
                if era > newest and index <= self.last:
                    self._cut(index)
                else:
                    self.set_aside()
        if not self.run_eras:
            self.first = index
        elif self.run_terms[-1] > term and self.run_eras[-1] == era and not self.problem:
            self.problem = f"entry {index} of group {self.group} goes back to term {term}"
            self.problem_at = location
        self._push(era, index, term, location, length, kind)

    def _push(self, era: i64, index: i64, term: i64, location: i64, length: i64, kind: i64) -> None:
        self.locations.append(location)
        self.lengths.append(length)
        if not self.run_eras or self.run_terms[-1] != term or self.run_eras[-1] != era:
            self.run_starts.append(index)
            self.run_terms.append(term)
            self.run_eras.append(era)
            self.tip_era = era
            self.tip_term = term
        if kind == ENTRY_CONFIG:
            self.configs.append(index)
        self.last = index

    def _stray(
        self, era: i64, index: i64, term: i64, location: i64, length: i64, kind: i64
    ) -> None:
        if self.strays is None:
            self.strays = DiscontinuousEntries()
        self.strays.add(era, index, term, location, length, kind)

    def _cut(self, index: i64) -> None:
        """Drop the run from `index` on: all of it is of earlier eras."""
        keep: i64 = max(0, index - self.first)
        del self.locations[keep:]
        del self.lengths[keep:]
        while self.run_starts and self.run_starts[-1] >= index:
            self.run_starts.pop()
            self.run_terms.pop()
            self.run_eras.pop()
        while self.configs and self.configs[-1] >= index:
            self.configs.pop()
        self.last = max(index, self.first) - 1
        self.tip_era = self.run_eras[-1] if self.run_eras else -1
        self.tip_term = self.run_terms[-1] if self.run_terms else 0

    def set_aside(self) -> None:
        """Begin another run: what lay between is in files that are gone, or comes yet."""
        run: i64 = 0
        configs = set(self.configs)
        for at in range(len(self.locations)):
            index: i64 = self.first + at
            if run + 1 < len(self.run_starts) and self.run_starts[run + 1] == index:
                run += 1
            self._stray(
                self.run_eras[run],
                index,
                self.run_terms[run],
                self.locations[at],
                self.lengths[at],
                ENTRY_CONFIG if index in configs else 0,
            )
        self.clear_run()

    def clear_run(self) -> None:
        """Forget the run."""
        self.locations = array("Q")
        self.lengths = array("I")
        self.run_starts = []
        self.run_terms = []
        self.run_eras = []
        self.configs = []
        self.tip_era = -1
        self.last = self.first - 1

    def take_incoming(self, era: i64, index: i64, term: i64, location: i64, length: i64) -> None:
        """Take in an entry that was fetched from a peer."""
        if era >= self.base_era:
            self.era = max(self.era, era)
            if self.incoming is None:
                self.incoming = DiscontinuousEntries()
            self.incoming.add(era, index, term, location, length, 0)

    def take_state(self, era: i64, state: HardState, location: i64) -> None:
        """Take in a hard state: the last one of the newest incarnation counts."""
        if era >= self.base_era and era >= self.state_era:
            self.era = max(self.era, era)
            self.state_era = era
            self.state = state
            self.state_at = location
            self.state_lost = False

    def take_lost_state(self, era: i64, term: i64, commit: i64, location: i64) -> None:
        """Read a hard state whose vote is not readable.

        The member goes on in the next term, in which it has given no vote: its terms are durable
        before anything is done in them.
        """
        self.take_state(era, HardState(term + 1, 0, commit), location)
        self.state_lost = self.state_at == location

    def take_base(
        self, era: i64, member: i64, membership: Membership, location: i64, size: i64
    ) -> None:
        """Take in the beginning of an incarnation; earlier ones are forgotten."""
        if era < self.base_era:
            return
        self.era = max(self.era, era)
        self.base_era = era
        self.member = member
        self.membership = membership
        self.base_at = location
        self.base_bytes = size
        if self.state_era < era:
            self.state_era = 0
            self.state_at = 0
            self.state_lost = False
            self.state = HardState(0, 0, 0)
        if self.snapshot_era < era:
            self.snapshot = None
        if self.run_eras and self.run_eras[-1] < era:
            self.clear_run()

    def take_part(self, era: i64, serial: i64, number: i64, location: i64, size: i64) -> None:
        """Take in a part of a snapshot."""
        if era >= self.base_era:
            self.era = max(self.era, era)
            self.parts.setdefault(serial, {})[number] = (location, size)

    def take_snapshot(self, era: i64, stored: StoredSnapshot) -> None:
        """Take in the record that makes a snapshot effective; that of the latest era counts.

        Among those of one era it is the one with the highest index. The index alone would not do:
        an earlier incarnation may have got further, and what began this one may be found later.
        """
        if era < self.base_era:
            return
        self.era = max(self.era, era)
        known = self.snapshot
        if known is not None and (
            era < self.snapshot_era or (era == self.snapshot_era and stored.index < known.index)
        ):
            return
        self.snapshot = stored
        self.snapshot_era = era
