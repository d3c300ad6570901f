"""The explorer must find bugs: each injected one, in a stated workload, within a stated budget."""

from __future__ import annotations

import pytest

from headrace_simulation.crash_explorer.explorer import Bounds, Explorer
from headrace_simulation.crash_explorer.workload import WORKLOADS

STATES_MAX = 1500  # less than a second

# By name: module of the log, its text, and what replaces it.
PATCHES = {
    "acknowledged_before_sync": [
        (
            "files",
            "    done = files.write_through(fd, pieces, offset)\n",
            '    done = files.write(fd, b"".join(pieces), offset)\n',
        )
    ],
    "short_write_not_synced": [
        ("files", "        done += taken\n    files.sync(fd)\n", "        done += taken\n")
    ],
    "every_other_batch_not_synced": [
        (
            "files",
            "    done = files.write_through(fd, pieces, offset)\n",
            "    if offset % 1024:\n"
            "        done = files.write_through(fd, pieces, offset)\n"
            "    else:\n"
            '        done = files.write(fd, b"".join(pieces), offset)\n',
        )
    ],
    "failed_sync_taken_for_success": [
        (
            "files",
            "    done = files.write_through(fd, pieces, offset)\n",
            "    try:\n"
            "        done = files.write_through(fd, pieces, offset)\n"
            "    except OSError:\n"
            "        done = size\n",
        )
    ],
    "failed_sync_tried_again": [
        (
            "files",
            "    done = files.write_through(fd, pieces, offset)\n",
            "    try:\n"
            "        done = files.write_through(fd, pieces, offset)\n"
            "    except OSError:\n"
            "        files.sync(fd)\n"
            "        done = size\n",
        )
    ],
    "new_name_not_synced": [
        (
            "segment",
            "self.path)\n            self.files.sync_directory(self.directory)\n",
            "self.path)\n",
        )
    ],
    "named_before_what_is_reserved_is_durable": [
        (
            "segment",
            "                self.filled = stop\n                break\n",
            "                return\n",
        )
    ],
    "named_before_its_zeros_are_durable": [("segment", "        self.files.sync(self._fd)\n", "")],
    "hard_state_behind_its_entries": [
        (
            "write_job",
            "        job.add(encode_state(salt, group.era, group.group, state))\n"
            "        job.lead = STATE_BYTES\n"
            "    at: i64 = 0\n",
            "        pass\n    at: i64 = 0\n",
        ),
        (
            "write_job",
            "        at = _fill(job, salt, entries, at, bytes_max)\n    job.token = token\n",
            "        at = _fill(job, salt, entries, at, bytes_max)\n"
            "    if state is not None:\n"
            "        job.add(encode_state(salt, group.era, group.group, state))\n"
            "    job.token = token\n",
        ),
    ],
    "checksums_not_checked": [
        ("record", "end - start if actual == expected else -1", "end - start")
    ],
    "torn_batch_stays": [
        ("repair", "    if torn is not None:\n        _zero", "    if False:\n        _zero")
    ],
    "repair_not_synced": [
        (
            "repair",
            "            write_all(files, fd, [chunk], len(chunk), position)\n",
            "            files.write(fd, chunk, position)\n",
        )
    ],
    "read_but_never_synced": [
        (
            "repair",
            "    if last is not None:\n        _write_again",
            "    if False:\n        _write_again",
        )
    ],
    "removals_of_files_not_synced": [("repair", "    files.sync_directory(directory)\n", "")],
    "removal_forgotten_in_recovery": [
        ("record_replay", "            self.removed[group] = Tombstone(index, end, location)\n", "")
    ],
    "start_not_synced": [
        ("identity", "write_all(store, fd, [data], len(data), 0)", "store.write(fd, data, 0)")
    ],
    "start_not_named": [("identity", "        store.sync_directory(directory)\n", "")],
    "eras_do_not_rise": [
        (
            "group_log",
            "            self.truncate(first)\n            self.era += 1\n",
            "            self.truncate(first)\n",
        )
    ],
    "files_removed_before_it_is_said": [
        (
            "writer",
            "began: i64 = monotonic_ns()\n            write_all(",
            "began: i64 = self._remove() or monotonic_ns()\n            write_all(",
        )
    ],
    "long_record_placed_before_its_end": [
        (
            "sliced_write",
            "        return self.written == self.job.size\n",
            "        return self.written + 600 >= self.job.size\n",
        )
    ],
    "slices_not_synced": [
        (
            "writer",
            "        write_all(self.files, self.position.fd, pieces, size, offset)\n",
            '        self.files.write(self.position.fd, b"".join(pieces), offset)\n',
        )
    ],
    "group_passes_its_own_long_record": [
        ("write_queue", "                held.update(job.ordered)\n", "                pass\n"),
        ("write_queue", "set(behind.ordered) if behind is not None else set()", "set()"),
    ],
    "dead_before_a_long_record_is_durable": [
        ("write_queue", "                _hand_on(job, behind)\n", "                pass\n")
    ],
    "reserved_bytes_taken_for_batches": [
        ("record", "batch.follows = batch.end = end + reserved", "batch.follows = batch.end = end")
    ],
    "removed_files_still_listed": [
        (
            "writer",
            "if s.sequence not in gone]\n        self._removing = []\n",
            "if gone]\n        self._removing = []\n",
        )
    ],
    "removed_before_the_copy_is_durable": [
        (
            "collector",
            "        job.moved.append(Moved(record_type, group, index, location, size))\n",
            "        job.moved.append(Moved(record_type, group, index, location, size))\n"
            "        self._table.ledger.drop(location >> 32, size)\n",
        ),
        ("group_table", "                self.ledger.drop(moved.location >> 32, moved.size)\n", ""),
    ],
    "dead_before_its_successor_is_durable": [
        (
            "accounting",
            "            sequence: i64 = location >> 32\n"
            "            self.dying[sequence] = self.dying.get(sequence, 0) + size\n",
            "            self.drop(location >> 32, size)\n",
        )
    ],
    "copies_cut_the_log": [
        (
            "group_recovery",
            "        if copy:\n"
            "            self._stray(era, index, term, location, length, kind)\n"
            "            return\n",
            "        if copy and self.run_eras and self.first <= index <= self.last:\n"
            "            self._cut(index)\n",
        )
    ],
    "snapshot_acknowledged_with_its_first_part": [
        (
            "snapshot_store",
            "            job = WriteJob(group, None, JOB_PART)\n",
            "            token = self.token if self._number == 0 else None\n"
            "            job = WriteJob(group, token, JOB_PART)\n",
        ),
        (
            "snapshot_store",
            "            job = WriteJob(group, self.token, JOB_SNAPSHOT)\n",
            "            token = None if len(stored.parts) else self.token\n"
            "            job = WriteJob(group, token, JOB_SNAPSHOT)\n",
        ),
    ],
    "tombstone_forgotten_too_early": [
        (
            "collector",
            "            if tomb.origin <= sequence <= tomb.end and sequence != use.sequence:\n",
            "            if False:\n",
        )
    ],
    "entries_an_install_cut_off_return": [
        (
            "group_resolution",
            "stored is not None and era < found.snapshot_era and index > stored.kept",
            "False",
        )
    ],
    "earlier_incarnation_returns": [
        (
            "group_recovery",
            "        if self.run_eras and self.run_eras[-1] < era:\n            self.clear_run()\n",
            "",
        ),
        ("group_resolution", "        if era < found.base_era:\n            return True\n", ""),
    ],
}


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("acknowledged_before_sync", "batches"),
        ("short_write_not_synced", "short_writes"),
        ("new_name_not_synced", "rotations"),
        ("named_before_what_is_reserved_is_durable", "rotations"),
        ("named_before_its_zeros_are_durable", "rotations"),
        ("hard_state_behind_its_entries", "long_appends"),
        ("repair_not_synced", "batches"),
        ("read_but_never_synced", "batches"),
        ("removals_of_files_not_synced", "rotations"),
        ("every_other_batch_not_synced", "rotations"),
        ("failed_sync_taken_for_success", "failed_calls"),
        ("failed_sync_tried_again", "failed_calls"),
        ("removal_forgotten_in_recovery", "removals"),
        ("eras_do_not_rise", "truncations"),
        ("files_removed_before_it_is_said", "deletions"),
        ("removed_files_still_listed", "deletions"),
        ("removed_before_the_copy_is_durable", "moves"),
        ("dead_before_its_successor_is_durable", "replaced_and_collected"),
        ("copies_cut_the_log", "moves_and_truncations"),
        ("snapshot_acknowledged_with_its_first_part", "long_snapshots"),
        ("tombstone_forgotten_too_early", "moves_of_tombstones"),
        ("entries_an_install_cut_off_return", "installs"),
        ("earlier_incarnation_returns", "rebirths"),
        ("checksums_not_checked", "batches"),
        ("long_record_placed_before_its_end", "slices"),
        ("slices_not_synced", "slices"),
        ("group_passes_its_own_long_record", "slices"),
        ("dead_before_a_long_record_is_durable", "slices_freed"),
        ("reserved_bytes_taken_for_batches", "slices"),
        ("start_not_synced", "restarts"),
        ("start_not_named", "restarts"),
    ],
)
def test_bug_of_the_log_is_found(mutant, name: str, workload: str) -> None:
    explorer = Explorer(mutant(name, *PATCHES[name]), WORKLOADS[workload], 0, Bounds(STATES_MAX))
    outcome = explorer.run()
    assert outcome.violation is not None, f"not found in {outcome.states} states"
    again = Explorer(explorer.subject, WORKLOADS[workload], 0, Bounds())
    places = [crash.place() for crash in outcome.violation.crashes]
    repeated = again.repeat(places).violation
    assert repeated is not None
    assert repeated.problem == outcome.violation.problem


@pytest.mark.parametrize(
    "workload", ["batches", "restarts", "truncations", "mixed_faults", "slices_mixed_faults"]
)
def test_log_stands_what_a_torn_batch_leaves_behind(mutant, workload: str) -> None:
    """Zeros where a torn batch stood are not relied on: its records are told from later ones."""
    patched = mutant("torn_batch_stays", *PATCHES["torn_batch_stays"])
    outcome = Explorer(patched, WORKLOADS[workload], 0, Bounds(STATES_MAX)).run()
    assert outcome.violation is None
    assert outcome.states > 50


@pytest.mark.parametrize("workload", ["rotations", "moves", "installs", "slices_collected"])
def test_unpatched_copy_is_whole(mutant, workload: str) -> None:
    outcome = Explorer(mutant("unchanged"), WORKLOADS[workload], 0, Bounds(STATES_MAX)).run()
    assert outcome.violation is None
    assert outcome.states + outcome.nested_states == STATES_MAX


def test_patch_without_its_anchor_is_refused(mutant) -> None:
    with pytest.raises(AssertionError, match="0 times"):
        mutant("nowhere", ("writer", "no such text", ""))
