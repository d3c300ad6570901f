"""The queue machine, with all that queues can be told, against the naive queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.core.archive_log import archive_log
from tests.broker.core.conftest import random_log, rich_log
from tests.broker.core.lease_log import lease_log
from tests.broker.core.naive_archive import told_row
from tests.broker.core.naive_parts import Told
from tests.broker.core.naive_queue import NaiveQueue
from tests.broker.core.prefetch_log import prefetch_log

from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages import effect as e
from headrace_broker.core.queue.state import archive_effect as ae
from headrace_broker.core.queue.state import lease_effect as le


def told_by(effects: list[e.Effect]) -> Told:
    """Bring the machine's effects into the form in which the naive queue tells them."""
    told = Told()
    for effect in effects:
        if isinstance(effect, e.Deliver):
            place = (int(effect.session), int(effect.consumer))
            told.delivered[place] = [
                (effect.first + at, m.entry_index, m.position, m.acquired_count, m.delivery_count)
                for at, m in enumerate(effect.messages)
            ]
        elif isinstance(effect, e.DeadLettered | e.DeadLetterKept):
            how = "once" if isinstance(effect, e.DeadLettered) else "kept"
            for m in effect.messages:
                told.dead.add((how, int(effect.reason), m.entry_index, m.position))
        elif isinstance(effect, e.ConfirmsDeferred | e.Completed):
            into = told.deferred if isinstance(effect, e.ConfirmsDeferred) else told.completed
            rows = zip(effect.rows[::2], effect.rows[1::2], strict=True)
            seqs = [seq for row in rows for seq in range(*row)]
            assert len(set(seqs)) == len(seqs)
            assert effect.session not in into
            into[effect.session] = set(seqs)
        else:
            answer = _answer(effect)
            if answer:
                told.answers.append(answer)
    return told


def told_group(group: le.GroupInfo) -> tuple[object, ...]:
    leases = [told_lease(lease) for lease in group.leases]
    return group.name, group.epoch, group.next_number, group.settled, group.deadline_ms, leases


def told_reader(group: ae.ArchiveGroupInfo) -> tuple[object, ...]:
    return group.name, group.epoch, group.committed, group.committed_ms


def told_lease(lease: le.LeaseInfo) -> tuple[object, ...]:
    return lease.number, lease.state, lease.count, lease.byte_count, lease.rows


def _answer(effect: e.Effect) -> tuple[object, ...]:
    if isinstance(effect, e.Enqueued):
        return "enqueued", effect.session, effect.seq
    if isinstance(effect, e.PublishRejected):
        return "refused", effect.session, effect.first, effect.last, effect.why
    if isinstance(effect, e.Controlled):
        return "controlled", effect.session, effect.seq, effect.status, effect.count
    if isinstance(effect, e.Gap):
        return "gap", effect.session, effect.lane, effect.expected
    if isinstance(effect, e.Got):
        m = effect.message
        got = (m.entry_index, m.position, m.acquired_count) if m is not None else None
        return "got", effect.session, effect.seq, got, effect.delivery, effect.ready_left
    if isinstance(effect, e.TimedOut):
        return "timed out", effect.session, effect.consumer
    if isinstance(effect, e.Detached):
        return "detached", effect.session, effect.consumer
    if isinstance(effect, le.LeaseAnswer):
        return (
            "lease",
            effect.request,
            effect.status,
            None if effect.group is None else told_group(effect.group),
            effect.count,
            effect.byte_count,
            effect.ready,
            [told_lease(lease) for lease in effect.gone],
        )
    if isinstance(effect, le.LeaseGone):
        return "lease gone", effect.name, told_lease(effect.lease)
    if isinstance(effect, ae.ArchiveAnswer):
        group = None if effect.group is None else told_reader(effect.group)
        rows = (effect.first, effect.following)
        return "archive", effect.request, effect.status, group, *rows
    return {e.Unused: ("unused",), e.Rejected: ("rejected",)}.get(type(effect), ())


@pytest.mark.parametrize("make_log", [random_log, rich_log, lease_log, archive_log, prefetch_log])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), snapshot_at=st.integers(0, 199))
def test_machine_and_naive_queue_say_the_same(
    make_log: Callable[[int, int], list[bytes]], seed: int, snapshot_at: int
) -> None:
    machine, naive = QueueMachine(), NaiveQueue()
    dead: set[int] = set()
    for index, data in enumerate(make_log(seed, 200), 1):
        effects = machine.apply(index, data)
        wanted = naive.apply(index, data)
        found = told_by(effects)
        assert found.answers == wanted.answers, index
        assert found.delivered == wanted.delivered, index
        assert found.dead == wanted.dead, index
        assert found.deferred == wanted.deferred, index
        assert found.completed == wanted.completed, index
        assert machine.saturated == naive.saturated, index
        assert machine.deferred_count == len(naive.deferred), index
        waiting = sorted((m.number, m.entry, m.position) for m in naive.waiting)
        listed = machine.available_from(0, 10**6)
        assert [(m.message_id, m.entry_index, m.position) for m in listed] == waiting, index
        archive = machine.archive()
        rows = machine.archived(archive.first, 10**6)
        naive.order_rows(int(archive.first), [told_row(row) for row in rows])
        assert [told_reader(group) for group in archive.groups] == [
            reader.told(name) for name, reader in naive.readers.items()
        ], index
        assert archive.since_ms == naive.archive_since, index
        assert archive.byte_count == sum(row.byte_count for row in rows), index
        dead |= {effect.index for effect in effects if isinstance(effect, e.EntryDead)}
        assert set(range(1, index + 1)) - dead == naive.alive(), index
        assert machine.ready_bytes == sum(m.byte_count for m in naive.waiting), index
        assert machine.busy_count() == naive.busy(), index
        assert machine.delayed_count == len(naive.delayed)
        assert machine.leased_count == naive.leased(), index
        assert [told_group(g) for g in machine.lease_groups()] == [
            group.told() for group in naive.groups.values()
        ], index
        if index == snapshot_at:
            machine = QueueMachine.restore(machine.snapshot())
