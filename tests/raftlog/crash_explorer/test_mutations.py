"""The explorer must find bugs: each injected one, in a stated workload, within a stated budget."""

from __future__ import annotations

import pytest

from headrace_raftlog.crash_explorer.explorer import Bounds, Explorer
from headrace_raftlog.crash_explorer.workload import WORKLOADS

STATES_MAX = 1500  # less than a second

# By name: module of the log, its text, and what replaces it.
PATCHES = {
    "acknowledged_before_sync": [
        (
            "writer",
            "    done = files.write_through(fd, pieces, offset)\n",
            '    done = files.write(fd, b"".join(pieces), offset)\n',
        )
    ],
    "short_write_not_synced": [
        ("writer", "        done += taken\n    files.sync(fd)\n", "        done += taken\n")
    ],
    "new_name_not_synced": [
        (
            "segment",
            "self.path)\n            self.files.sync_directory(self.directory)\n",
            "self.path)\n",
        )
    ],
    "named_before_its_zeros_are_durable": [
        ("segment", "        self.files.sync(self._fd)\n", ""),
    ],
    "hard_state_behind_its_entries": [
        (
            "write_job",
            "    if state is not None:\n        job.pieces",
            "    if False:\n        job.pieces",
        ),
        (
            "write_job",
            "    job.token = token\n    return jobs\n",
            "    job.token = token\n"
            "    if state is not None:\n"
            "        job.pieces.append(encode_state(salt, group.group, state))\n"
            "        job.size += len(job.pieces[-1])\n"
            "        job.count += 1\n"
            "    return jobs\n",
        ),
    ],
    "torn_batch_stays": [
        ("recovery", "    if torn is not None:\n        _zero", "    if False:\n        _zero")
    ],
    "repair_not_synced": [
        (
            "recovery",
            "            write_all(files, fd, [chunk], len(chunk), position)\n",
            "            files.write(fd, chunk, position)\n",
        )
    ],
    "read_but_never_synced": [
        (
            "recovery",
            "        _write_again(files, recovery",
            "        (lambda *_: None)(files, recovery",
        )
    ],
    "removals_of_files_not_synced": [("recovery", "    files.sync_directory(directory)\n", "")],
    "every_other_batch_not_synced": [
        (
            "writer",
            "    done = files.write_through(fd, pieces, offset)\n",
            "    if offset % 1024:\n"
            "        done = files.write_through(fd, pieces, offset)\n"
            "    else:\n"
            '        done = files.write(fd, b"".join(pieces), offset)\n',
        )
    ],
    "failed_sync_taken_for_success": [
        (
            "writer",
            "    done = files.write_through(fd, pieces, offset)\n",
            "    try:\n"
            "        done = files.write_through(fd, pieces, offset)\n"
            "    except OSError:\n"
            "        done = size\n",
        )
    ],
    "failed_sync_tried_again": [
        (
            "writer",
            "    done = files.write_through(fd, pieces, offset)\n",
            "    try:\n"
            "        done = files.write_through(fd, pieces, offset)\n"
            "    except OSError:\n"
            "        files.sync(fd)\n"
            "        done = size\n",
        )
    ],
    "removal_forgotten_in_recovery": [
        ("recovery", "                self.removed.add(group_id)\n", ""),
    ],
    "replaced_entries_stay_in_recovery": [
        (
            "group_log",
            "            self.truncate(index)\n        if self._run_terms",
            "            return ''\n        if self._run_terms",
        ),
    ],
    "checksums_not_checked": [
        ("record", "end - start if actual == expected else -1", "end - start"),
    ],
    "start_not_synced": [
        ("identity", "write_all(files, fd, [data], len(data), 0)", "files.write(fd, data, 0)")
    ],
    "start_not_named": [("identity", "    files.sync_directory(directory)\n", "")],
}


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("acknowledged_before_sync", "batches"),
        ("short_write_not_synced", "short_writes"),
        ("new_name_not_synced", "rotations"),
        ("named_before_its_zeros_are_durable", "rotations"),
        ("hard_state_behind_its_entries", "long_appends"),
        ("torn_batch_stays", "batches"),
        ("repair_not_synced", "batches"),
        ("read_but_never_synced", "batches"),
        ("removals_of_files_not_synced", "rotations"),
        ("every_other_batch_not_synced", "rotations"),
        ("failed_sync_taken_for_success", "failed_calls"),
        ("failed_sync_tried_again", "failed_calls"),
        ("removal_forgotten_in_recovery", "removals"),
        ("replaced_entries_stay_in_recovery", "truncations"),
        ("checksums_not_checked", "batches"),
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
