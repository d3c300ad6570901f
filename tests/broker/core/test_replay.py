"""A log says everything: replayed, cut by snapshots, or in another process, it gives one state."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.broker.core.archive_log import archive_log
from tests.broker.core.conftest import ANNA, PUBLISHER, QueueLog, random_log, replay, rich_log
from tests.broker.core.lease_log import lease_log

from headrace_broker.core.queue.command import command, leader_command, lease_command
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import REASON_REJECTED, Rejected
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.core.queue.snapshot.restoring import SnapshotError
from headrace_broker.core.queue.state.archive_effect import ARCHIVE_STATUS_NAMES
from headrace_broker.core.queue.state.archive_row import (
    OUTCOME_DEAD_LETTERED,
    OUTCOME_PURGED,
    OUTCOME_REMOVED,
    OUTCOMES,
)
from headrace_broker.core.queue.state.lease_effect import LEASE_STATUS_NAMES

REPLAY = """
import sys, hashlib
from pathlib import Path
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
machine = QueueMachine()
told = hashlib.sha256()
for index, line in enumerate(Path(sys.argv[1]).read_text().split("\\n"), 1):
    told.update(repr(machine.apply(index, bytes.fromhex(line))).encode())
print(machine.digest().hex(), told.hexdigest())
"""


def test_random_logs_reach_every_kind_of_effect() -> None:
    told = replay(QueueMachine(), random_log(1, 3000))
    kinds = {text.split("(")[0] for text in told}
    assert kinds >= {"Enqueued", "Controlled", "Deliver", "Got", "Gap", "Detached"}
    assert kinds >= {"EntryDead", "Unused", "Rejected"}


def test_rich_logs_reach_the_other_kinds_of_effect() -> None:
    kinds = {
        text.split("(")[0]
        for seed in range(6)
        for text in replay(QueueMachine(), rich_log(seed, 600))
    }
    assert kinds >= {"DeadLettered", "DeadLetterKept", "PublishRejected", "TimedOut", "Deliver"}


def test_logs_with_leases_reach_every_answer_to_groups() -> None:
    told = [text for seed in range(8) for text in replay(QueueMachine(), lease_log(seed, 600))]
    statuses = {text.split(", ")[1] for text in told if text.startswith("LeaseAnswer(")}
    bounded = {"groups_full", "leases_full"}
    assert statuses == set(LEASE_STATUS_NAMES.values()) - bounded
    assert any(text.startswith("LeaseGone(") for text in told)
    assert max(leased_at_the_end(seed) for seed in range(8)) > 0


def test_logs_with_an_archive_reach_most_outcomes_and_all_answers() -> None:
    told: list[str] = []
    outcomes = set()
    for seed in (11, 14, 16):
        machine = QueueMachine()
        for index, data in enumerate(archive_log(seed, 700), 1):
            told += map(repr, machine.apply(index, data))
            first = machine.archive().first
            outcomes |= {int(row.outcome) for row in machine.archived(first, 10**6)}
    rare = {OUTCOME_PURGED, OUTCOME_REMOVED, OUTCOME_DEAD_LETTERED + REASON_REJECTED}
    assert outcomes >= set(OUTCOMES) - rare
    statuses = {text.split(", ")[1] for text in told if text.startswith("ArchiveAnswer(")}
    assert statuses == set(ARCHIVE_STATUS_NAMES.values()) - {"groups_full"}


def leased_at_the_end(seed: int) -> int:
    machine = QueueMachine()
    replay(machine, lease_log(seed, 100))
    return machine.leased_count


LOGS = pytest.mark.parametrize("make_log", [random_log, rich_log, lease_log, archive_log])


@LOGS
def test_another_hash_seed_in_another_process_gives_the_same_state(
    tmp_path: Path, make_log: Callable[[int, int], list[bytes]]
) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(data.hex() for data in make_log(2, 1500)))
    answers = set()
    for seed in ("1", "4242"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        done = subprocess.run(
            [sys.executable, "-c", REPLAY, str(log)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        answers.add(done.stdout)
    assert len(answers) == 1
    assert len(answers.pop()) > 64


@LOGS
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), cut=st.integers(0, 300))
@example(seed=24301, cut=119)  # a plain lane that takes turns, and is the longest
def test_a_snapshot_and_the_rest_of_the_log_are_the_whole_log(
    make_log: Callable[[int, int], list[bytes]], seed: int, cut: int
) -> None:
    entries = make_log(seed, 300)
    whole = QueueMachine()
    before = replay(whole, entries[:cut])
    restored = QueueMachine.restore(whole.snapshot())
    assert restored.digest() == whole.digest()
    assert restored.live_entries() == whole.live_entries()
    assert figures(restored) == figures(whole)
    assert replay(restored, entries, cut) == replay(whole, entries, cut)
    assert restored.digest() == whole.digest()
    assert figures(restored) == figures(whole)
    assert len(before) >= cut


def figures(machine: QueueMachine) -> tuple[int, ...]:
    return (
        machine.ready_count,
        machine.ready_bytes,
        machine.unsettled_count,
        machine.unsettled_bytes,
        machine.consumer_count,
        machine.delayed_count,
        machine.dead_count,
        machine.oldest_ms(),
        machine.leased_count,
        machine.archive().since_ms,
        machine.archive().byte_count,
        machine.archive().first_ms,
        machine.archive().last_ms,
    )


@LOGS
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_every_entry_dies_once_and_only_when_nothing_of_it_is_left(
    make_log: Callable[[int, int], list[bytes]], seed: int
) -> None:
    entries = make_log(seed, 200)
    machine = QueueMachine()
    told = replay(machine, entries)
    deaths = [text for text in told if text.startswith("EntryDead")]
    assert len(set(deaths)) == len(deaths)
    alive = [n for n in range(1, len(entries) + 1) if f"EntryDead({n})" not in deaths]
    assert list(machine.live_entries()) == alive
    # The log drained: everything else dies.
    index = len(entries)
    for data in drain(machine):
        index += 1
        deaths.extend(t for t in map(repr, machine.apply(index, data)) if t.startswith("EntryDead"))
    assert machine.ready_count == machine.unsettled_count == 0
    assert machine.delayed_count == machine.dead_count == 0
    assert sorted(deaths) == sorted(f"EntryDead({position})" for position in range(1, index + 1))


def drain(machine: QueueMachine) -> list[bytes]:
    """Commands after which nothing is left in the queue."""
    ends = [command.encode_node_down(node, 9) for node in (1, 2, 3)]
    dead = [number for message, _ in machine.kept_dead(10**6) for number in [message.message_id]]
    ends += [command.encode_purge(1 << 60, 1)]
    if machine.version > 1:
        ends += [leader_command.encode_forget(list(range(1, machine.last_id + 1)))]
    assert not dead or machine.version > 1
    if machine.version > 2:
        names = [group.name for group in machine.lease_groups()]
        closes = [lease_command.encode_close_group(1, name, 0) for name in names]
        ends = [*closes, *ends]
    if machine.version > 3:
        keeps_nothing = QueueSettings()
        keeps_nothing.archive_max_messages = 0
        ends += [leader_command.encode_configure(4, keeps_nothing)]
    return [bytes(8) + encoded for encoded in ends]


@settings(max_examples=200)
@given(data=st.binary(max_size=120), seed=st.integers(0, 20))
def test_random_bytes_are_answered_and_change_nothing(data: bytes, seed: int) -> None:
    machine = QueueMachine()
    replay(machine, archive_log(seed, 40))
    before = machine.digest()
    effects = machine.apply(41, data)
    if isinstance(effects[0], Rejected):
        assert machine.digest() == before
        assert len(effects) == 2


@settings(max_examples=200)
@given(
    seed=st.integers(0, 20),
    changes=st.lists(
        st.tuples(st.integers(0, 39), st.integers(0, 200), st.integers(0, 255)), max_size=30
    ),
)
def test_a_log_with_flipped_bytes_is_applied_without_an_exception(
    seed: int, changes: list[tuple[int, int, int]]
) -> None:
    entries = [bytearray(data) for data in archive_log(seed, 40)]
    for entry, offset, byte in changes:
        if entries[entry]:
            entries[entry][offset % len(entries[entry])] = byte
    machine = QueueMachine()
    replay(machine, [bytes(data) for data in entries])
    assert QueueMachine.restore(machine.snapshot()).digest() == machine.digest()


def test_a_snapshot_cut_short_anywhere_is_refused() -> None:
    machine = QueueMachine()
    replay(machine, archive_log(5, 100))
    snapshot = machine.snapshot()
    for length in range(len(snapshot)):
        with pytest.raises(SnapshotError):
            QueueMachine.restore(snapshot[:length])
    with pytest.raises(SnapshotError, match="near byte"):
        QueueMachine.restore(snapshot + b"\x00")


def test_a_snapshot_of_another_version_is_refused() -> None:
    snapshot = QueueMachine().snapshot()
    with pytest.raises(SnapshotError, match="version 1, not 2 or 3"):
        QueueMachine.restore(b"\x01" + snapshot[1:])


@settings(max_examples=300)
@given(
    seed=st.integers(0, 20),
    changes=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_a_damaged_snapshot_is_refused_or_restored(
    seed: int, changes: list[tuple[int, int]]
) -> None:
    machine = QueueMachine()
    replay(machine, archive_log(seed, 60))
    snapshot = bytearray(machine.snapshot())
    for offset, byte in changes:
        snapshot[offset % len(snapshot)] = byte
    try:
        restored = QueueMachine.restore(bytes(snapshot))
    except SnapshotError:
        return
    assert restored.ready_count >= 0


def emptied_log() -> list[bytes]:
    """Entries of a queue that has messages, sessions and settings of its own now and then."""
    queue = QueueLog()
    for round_ in range(1, 5):
        queue.configure(round_, delivery_limit=round_, archive=round_ == 4)
        queue.enqueue(PUBLISHER, 1, round_)
        queue.attach(ANNA, 1, 1, 5)
        queue.settle(ANNA, 2, command.ACCEPT, (1, 1, round_))
        queue.apply(command.encode_close(ANNA))
        queue.now_ms += 10
        queue.apply(command.encode_close(PUBLISHER))
    return queue.entries


@pytest.mark.parametrize("log", [random_log, rich_log, lease_log, archive_log])
def test_queues_that_share_what_they_have_go_on_as_those_that_do_not(
    log: Callable[[int, int], list[bytes]],
) -> None:
    entries = [*emptied_log(), *log(3, 300)]
    sharing, other = QueueMachine(), QueueMachine.restore(QueueMachine().snapshot())
    for index, data in enumerate(entries, 1):
        assert repr(sharing.apply(index, data)) == repr(other.apply(index, data))
        sharing.share()
        assert sharing.snapshot() == other.snapshot()
        assert (sharing.last_id, sharing.now_ms) == (other.last_id, other.now_ms)


def test_queues_that_have_nothing_share_their_states() -> None:
    machines = [QueueMachine(), QueueMachine()]
    shared = []
    for index, data in enumerate(emptied_log(), 1):
        for machine in machines:
            machine.apply(index, data)
            machine.share()
        shared.append(machines[0]._state is machines[1]._state)
    rounds = [shared[at : at + 6] for at in range(0, len(shared), 6)]
    assert rounds[:3] == [[True, False, False, False, False, True]] * 3
    assert not any(rounds[3]), "an archive is something"


def test_settings_that_a_version_does_not_know_are_not_shared() -> None:
    settings = QueueSettings()
    settings.publisher_retention_ms = 777
    told = bytearray(leader_command.encode_configure(5, settings))
    told[2] = 2  # the version, which knows nothing of it
    odd, plain = QueueMachine(), QueueMachine()
    odd.apply(1, command.stamp_command(5, bytes(told)))
    none = leader_command.encode_configure(2, QueueSettings())
    plain.apply(1, command.stamp_command(5, none))
    assert odd.settings.publisher_retention_ms == 777
    assert plain.settings.publisher_retention_ms == QueueSettings().publisher_retention_ms
