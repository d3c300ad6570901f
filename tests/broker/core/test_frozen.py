"""A queue's messages as they stood at one moment, whatever becomes of the queue."""

from __future__ import annotations

import random

import pytest
from tests.broker.core.conftest import ANNA, QueueLog, batch
from tests.broker.core.lease_log import lease_log

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.snapshot.frozen import DEAD, DELAYED, READY, UNSETTLED, FrozenQueue
from headrace_broker.core.queue.snapshot.restoring import read_snapshot
from headrace_broker.core.queue.state.page import PAGE_BATCHES

Row = tuple[object, ...]


def row(message: Acquired, state: int) -> Row:
    return (
        message.message_id,
        state,
        message.entry_index,
        message.position,
        message.byte_count,
        message.acquired_count,
        message.delivery_count,
        message.arrived_ms,
        message.expires_ms,
        message.priority,
        message.due_ms,
        message.key,
    )


def expected(machine: QueueMachine) -> list[Row]:
    """All that a queue holds, taken out of its snapshot one by one."""
    state = read_snapshot(machine.snapshot())
    rows = []
    for lane in [*state.ready.lanes, *state.ready.fair.of_values()]:
        for page in lane.pages:
            for each in page.waiting():
                rows += [
                    row(each.message(position, lane.priority, lane.key), READY)
                    for position in range(each.next, each.stop)
                ]
        rows += [row(message, READY) for message in lane.loose.in_order()]
    rows += [row(message, READY) for message in state.ready.groups.loose.in_order()]
    for session in state.sessions.values():
        for consumer in session.consumers.values():
            rows += [row(message, UNSETTLED) for message in consumer.unsettled.values()]
    for group in state.leases.groups.values():
        for lease in group.leases.values():
            rows += [row(message, UNSETTLED) for message in lease.messages]
    for leaving in state.leases.leaving:
        if leaving.operation != command.ACCEPT:
            rows += [row(message, UNSETTLED) for message in leaving.messages[leaving.next :]]
    rows += [row(message, DELAYED) for message in state.delayed.messages.values()]
    rows += [row(dead.message, DEAD) for dead in state.dead.values()]
    return sorted(rows, key=lambda each: each[0])  # type: ignore[arg-type, return-value]


def read(frozen: FrozenQueue, most: int, byte_count: int = 1 << 40) -> list[Row]:
    rows: list[Row] = []
    after = 0
    while True:
        run = frozen.read(after, most, byte_count)
        if not run.messages:
            return rows
        rows += [row(*each) for each in zip(run.messages, run.states, strict=True)]
        after = run.messages[-1].message_id


@pytest.mark.parametrize("seed", range(30))
def test_what_is_read_is_what_stood_there_whatever_happens_meanwhile(seed) -> None:
    choice = random.Random(seed)
    entries = lease_log(seed, 160)
    machine = QueueMachine()
    moment = choice.randint(20, len(entries) - 1)
    for index, entry in enumerate(entries[:moment], 1):
        machine.apply(index, entry)
    wanted = expected(machine)
    frozen = machine.freeze()
    assert read(frozen, 7) == wanted
    for index, entry in enumerate(entries[moment:], moment + 1):
        machine.apply(index, entry)
        if wanted and choice.random() < 0.2:
            start = choice.randrange(len(wanted))
            after = wanted[start][0]
            assert isinstance(after, int)
            run = frozen.read(after, 5, 1 << 40)
            found = [row(*each) for each in zip(run.messages, run.states, strict=True)]
            assert found == wanted[start + 1 : start + 6]
    assert read(frozen, 1) == wanted
    assert read(frozen, 1 << 30) == wanted
    assert frozen.count == len(wanted)
    assert frozen.byte_count == sum(each[4] for each in wanted)  # type: ignore[misc]
    kinds = {each[1] for each in wanted}
    assert kinds <= {READY, UNSETTLED, DELAYED, DEAD}


def test_the_logs_have_messages_of_all_states() -> None:
    """Otherwise the test above would say less than it seems to."""
    kinds: set[object] = set()
    for seed in range(30):
        machine = QueueMachine()
        for index, entry in enumerate(lease_log(seed, 120), 1):
            machine.apply(index, entry)
            if index % 20 == 0:
                kinds |= {each[1] for each in expected(machine)}
    assert kinds == {READY, UNSETTLED, DELAYED, DEAD}


def test_long_queue_is_drained_while_it_is_read(queue: QueueLog) -> None:
    total = 3 * PAGE_BATCHES + 17
    for number in range(total):
        queue.enqueue(ANNA, number * 2 + 1, 2)
    frozen = queue.machine.freeze()
    first = frozen.read(0, 10, 1 << 40)
    assert [message.message_id for message in first.messages] == list(range(1, 11))
    queue.apply(command.encode_purge(ANNA, 1))
    assert queue.machine.ready_count == 0
    assert [each[0] for each in read(frozen, 1000)] == list(range(1, 2 * total + 1))


def test_bytes_end_a_run_behind_the_message_that_exceeds_them(queue: QueueLog) -> None:
    queue.apply(command.encode_enqueue(ANNA, 1, batch(*[bytes(100)] * 5)))
    frozen = queue.machine.freeze()
    assert len(frozen.read(0, 100, 250).messages) == 3
    assert len(frozen.read(3, 100, 250).messages) == 2
    assert frozen.read(5, 100, 250).messages == []
    assert (frozen.count, frozen.byte_count, frozen.last_id) == (5, 500, 5)
