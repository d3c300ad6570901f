"""The end of recovery for one group: which of the records found make up its log."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import ENTRY_CONFIG, HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.storage.group.group_log import STATE_BYTES, StoredGroup
from headrace_raftlog.storage.group.lost_entries import drop_incoming, lose
from headrace_raftlog.storage.group.snapshot_record import StoredSnapshot
from headrace_raftlog.storage.recovery.group_recovery import DiscontinuousEntries, FoundGroup
from headrace_raftlog.storage.segment.record import HEADER_BYTES
from headrace_raftlog.storage.segment.sparse_index import LENGTH_MASK, SparseIndex
from headrace_raftlog.storage.writing.snapshot_store import read_data


@final
class Resolution:
    """Builder of a group's index from the findings of recovery."""

    def __init__(self, found: FoundGroup, view: StoredGroup) -> None:
        self.view = view  # the group's index
        self.problem = found.problem  # why the group cannot be served, '' when all is there
        # location that the problem is seen at, 0 for none in particular
        self.problem_at: i64 = found.problem_at
        self._found = found
        self._kept: i64 = 0

    def run(self) -> None:
        """Fill the view; with a problem it is of no use."""
        found, view = self._found, self.view
        view.era = found.era
        view.origin = found.origin
        view.member = found.member
        view.membership = found.membership
        view.base_at = found.base_at
        view.base_bytes = found.base_bytes
        view.state_at = found.state_at
        view.state_lost = found.state_lost
        live: array[int] = array("Q")
        if found.snapshot is not None:
            live = self._take_snapshot(found.snapshot)
        if not self.problem:
            self._take_live(live)
        if not self.problem:
            self._take_log()
        if not self.problem:
            self._take_lost()
        commit: i64 = max(view.snapshot_index, min(found.state.commit, view.last))
        view.hard_state = HardState(found.state.term, found.state.vote, commit)

    def _take_lost(self) -> None:
        """Note which entries are known by their headers alone; judge what else was not intact.

        A membership has to be read before the group can be served. A lost base, or a lost
        snapshot, is none that counts when what is there reaches as far.
        """
        found, view = self._found, self.view
        configs: set[int] = set(view.configs) if view.configs is not None else set()
        for index, location in found.lost:
            if view.incoming is not None and view.incoming_at(index) == location:
                drop_incoming(view, index)
            elif view.location_of(index) == location:
                lose(view, index)
                if index in configs:
                    self.problem = f"entry {index} of group {found.group}, a membership, is damaged"
                    self.problem_at = location
        if found.lost_base_era > found.base_era:
            self.problem = found.lost_reason
        for era, index, term in found.lost_snapshots:
            covered = index <= view.snapshot_index or view.term_at(index) == term
            if found.base_era <= era and (era > view.era or not covered):
                self.problem = found.lost_reason

    def _take_snapshot(self, stored: StoredSnapshot) -> array[int]:
        found, view = self._found, self.view
        parts = found.parts.get(stored.serial, {})
        for number in range(len(stored.parts)):
            at = parts.get(number)
            if at is None:
                self.problem = (
                    f"part {number} of the snapshot of group {found.group} at entry "
                    f"{stored.index} is missing"
                )
                self.problem_at = stored.location
                return array("Q")
            stored.parts[number] = at[0]
            stored.part_bytes[number] = at[1]
        view.snapshot = stored
        view.snapshot_index = stored.index
        view.snapshot_term = stored.term
        view.last = stored.index
        try:
            data = read_data(view)
        except CorruptLogError as error:
            self.problem = error.reason
            self.problem_at = stored.location
            return array("Q")
        view.membership = data.membership
        return data.live

    def _is_void(self, era: i64, index: i64) -> bool:
        """Return whether a later era cut an entry off, as far as base and snapshot tell."""
        found = self._found
        if era < found.base_era:
            return True
        stored = found.snapshot
        return stored is not None and era < found.snapshot_era and index > stored.kept

    def _run_era(self, index: i64) -> i64:
        found = self._found
        return found.run_eras[bisect_right(found.run_starts, index) - 1]

    def _take_live(self, live: array[int]) -> None:
        """Find the entries up to the snapshot that are needed; fetched ones are always right."""
        found, view = self._found, self.view
        fetched = best_by_index(found.incoming, found.base_era)
        strays = self._best_strays(live)
        sparse = SparseIndex()
        incoming, own = found.incoming, found.strays
        for index in live:
            at: i64 = fetched.get(index, -1)
            if at >= 0 and incoming is not None:
                sparse.add(index, incoming.locations[at], incoming.lengths[at])
                continue
            at = strays.get(index, -1)
            era: i64 = own.eras[at] if at >= 0 and own is not None else -1
            if found.first <= index <= found.last:
                run_era: i64 = self._run_era(index)
                place: i64 = index - found.first
                if (
                    run_era > era
                    or (
                        run_era == era
                        and own is not None
                        and i64(found.locations[place]) > i64(own.locations[at])
                    )
                ) and not self._is_void(run_era, index):
                    sparse.add(index, found.locations[place], found.lengths[place])
                    continue
            if at >= 0 and own is not None:
                sparse.add(index, own.locations[at], own.lengths[at])
                continue
            self.problem = f"live entry {index} of group {found.group} is missing"
            return
        view.live = sparse if sparse.indexes else None
        self._take_incoming(fetched)

    def _take_incoming(self, fetched: dict[int, int]) -> None:
        """Keep the bodies that were fetched for a future install."""
        incoming, view = self._found.incoming, self.view
        if incoming is None:
            return
        sparse = SparseIndex()
        for index in sorted(fetched):
            at = fetched[index]
            if index > view.snapshot_index:
                sparse.add(index, incoming.locations[at], incoming.lengths[at])
        view.incoming = sparse if sparse.indexes else None

    def _best_strays(self, live: array[int]) -> dict[int, int]:
        """Return the place of the stray that counts for each live index."""
        strays = self._found.strays
        out: dict[int, int] = {}
        if strays is None:
            return out
        wanted = set(live)
        for at in range(len(strays.indexes)):
            index: i64 = strays.indexes[at]
            era: i64 = strays.eras[at]
            if index not in wanted or self._is_void(era, index):
                continue
            known: i64 = out.get(index, -1)
            if known < 0 or strays.beats(at, known):
                out[index] = at
        return out

    def _take_log(self) -> None:
        """Find the entries behind the snapshot: one of the newest era for each index.

        Eras never fall along a log, so the first entry whose era does was cut off, and so was
        everything behind it.
        """
        found, view = self._found, self.view
        first: i64 = view.snapshot_index + 1
        strays = found.strays
        if strays is None and self._take_run(first):
            return
        best: dict[int, int] = {}
        top: i64 = found.last
        if strays is not None:
            for at in range(len(strays.indexes)):
                index: i64 = strays.indexes[at]
                era: i64 = strays.eras[at]
                if index < first or self._is_void(era, index):
                    continue
                top = max(top, index)
                known: i64 = best.get(index, -1)
                if known < 0 or strays.beats(at, known):
                    best[index] = at
        newest: i64 = -1
        configs = set(found.configs)
        index = first
        while index <= top:
            at = best.get(index, -1)
            era = strays.eras[at] if at >= 0 and strays is not None else -1
            run_era: i64 = -1
            if found.first <= index <= found.last:
                run_era = self._run_era(index)
                if self._is_void(run_era, index):
                    run_era = -1
            if era < 0 and run_era < 0:
                self._check_rest(index, top, newest, best)
                return
            if max(era, run_era) < newest:
                return
            newest = max(era, run_era)
            place: i64 = index - found.first
            if run_era > era or (
                run_era == era
                and strays is not None
                and i64(found.locations[place]) > i64(strays.locations[at])
            ):
                run: i64 = bisect_right(found.run_starts, index) - 1
                kind: i64 = ENTRY_CONFIG if index in configs else 0
                view.push(
                    index,
                    found.run_terms[run],
                    run_era,
                    found.locations[place],
                    found.lengths[place],
                    kind,
                )
            elif strays is not None:
                view.push(
                    index,
                    strays.terms[at],
                    era,
                    strays.locations[at],
                    strays.lengths[at],
                    strays.kinds[at],
                )
            index += 1

    def _check_rest(self, gap: i64, top: i64, newest: i64, best: dict[int, int]) -> None:
        """Judge what lies behind a gap: cut off long ago, or proof that something is missing."""
        found = self._found
        strays = found.strays
        for index in range(gap + 1, top + 1):
            at: i64 = best.get(index, -1)
            era: i64 = strays.eras[at] if at >= 0 and strays is not None else -1
            if found.first <= index <= found.last:
                run_era: i64 = self._run_era(index)
                if not self._is_void(run_era, index):
                    era = max(era, run_era)
            if era >= newest and era >= 0:
                self.problem = f"entry {gap} of group {found.group} is missing before {index}"
                return

    def _take_run(self, first: i64) -> bool:
        """Accept the run as it is, if nothing else was found; return False if it does not fit."""
        found, view = self._found, self.view
        if found.last < first or not found.run_eras:
            return True
        if found.first > first or self._is_void(self._run_era(first), first):
            return False
        stored = found.snapshot
        if stored is not None and self._run_era(first) < found.snapshot_era:
            return False
        cut: i64 = first - found.first
        view.locations = found.locations[cut:] if cut else found.locations
        view.lengths = found.lengths[cut:] if cut else found.lengths
        start: i64 = bisect_right(found.run_starts, first) - 1
        for at in range(start, len(found.run_starts)):
            view.runs += [max(found.run_starts[at], first), found.run_terms[at], found.run_eras[at]]
        configs = [index for index in found.configs if index >= first]
        view.configs = configs if configs else None
        view.last = found.last
        return True


def best_by_index(strays: DiscontinuousEntries | None, base_era: i64) -> dict[int, int]:
    """Return the newest place of each index among entries fetched from peers."""
    out: dict[int, int] = {}
    if strays is not None:
        for at in range(len(strays.indexes)):
            if strays.eras[at] >= base_era:
                out[strays.indexes[at]] = at
    return out


def count_live(view: StoredGroup) -> None:
    """Enter everything that a recovered group needs into the accounts."""
    ledger = view.ledger
    if view.state_at:
        ledger.add(view.state_at, STATE_BYTES)
    if view.base_at:
        ledger.add(view.base_at, view.base_bytes)
    stored = view.snapshot
    if stored is not None:
        ledger.add(stored.location, stored.length)
        for part in range(len(stored.parts)):
            ledger.add(stored.parts[part], stored.part_bytes[part])
    count_entries(view, view.locations, view.lengths)
    for sparse in (view.live, view.incoming):
        if sparse is not None:
            count_entries(view, sparse.locations, sparse.lengths)


def count_entries(view: StoredGroup, locations: array[int], lengths: array[int]) -> None:
    """Enter entries into the accounts, one sum for those of the same segment in a row."""
    sequence: i64 = 0
    total: i64 = 0
    for at in range(len(locations)):
        location: i64 = locations[at]
        if location >> 32 != sequence:
            if total:
                view.ledger.add(sequence << 32, total)
            sequence = location >> 32
            total = 0
        total += HEADER_BYTES + (i64(lengths[at]) & LENGTH_MASK)
    if total:
        view.ledger.add(sequence << 32, total)
