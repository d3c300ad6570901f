"""Leases that end, and what becomes of their messages."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import ACCEPT, MODIFY_FAILED, RELEASE
from headrace_broker.core.queue.machine.leaving import give_back
from headrace_broker.core.queue.messages.effect import Acquired, Effect
from headrace_broker.core.queue.state.archive_row import OUTCOME_ACKED
from headrace_broker.core.queue.state.lease import LeaseGroup, Leaving
from headrace_broker.core.queue.state.lease_effect import EXPIRED, LeaseGone
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.model.limits import LEASE_MESSAGES_MAX, LEASE_RETURNS_MAX


def end_lease(
    state: QueueState,
    group: LeaseGroup,
    number: i64,
    operation: i64,
    why: i64,
    effects: list[Effect],
) -> i64:
    """Let the messages of a lease go back, and remember which; return how many there are."""
    lease = group.leases.pop(number)
    gone = lease.gone(why)
    group.gone[number] = gone
    state.leases.leaving.append(Leaving(group.holder, operation, lease.messages))
    effects.append(LeaseGone(group.name, gone))
    return len(lease.messages)


def end_due(state: QueueState, effects: list[Effect]) -> None:
    """End leases whose deadline has passed, and continue with those that ended before."""
    leases = state.leases
    if 0 < leases.due_ms <= state.now_ms:
        for group in leases.groups.values():
            if 0 < group.deadline_ms <= state.now_ms:
                for number in list(group.leases):
                    end_lease(state, group, number, RELEASE, EXPIRED, effects)
        leases.find_due()
    if leases.leaving:
        let_leave(state, effects)


def let_leave(state: QueueState, effects: list[Effect]) -> None:
    """Return or settle messages of ended leases, as many as one command may.

    To accept a message takes no longer than a part of what it takes to give it back.
    """
    leases = state.leases
    share: i64 = LEASE_MESSAGES_MAX // LEASE_RETURNS_MAX
    room: i64 = LEASE_MESSAGES_MAX
    while leases.leaving and room >= share:
        leaving = leases.leaving[0]
        accepted = leaving.operation == ACCEPT
        if not accepted and state.budget.spent():
            break
        messages = _part(state, leaving, room if accepted else room // share)
        count: i64 = len(messages)
        leaving.next += count
        if leaving.next == len(leaving.messages):
            del leases.leaving[0]
        room -= count if accepted else count * share
        leases.count -= count
        state.release(leaving.holder, messages)
        if accepted:
            state.archive(messages, OUTCOME_ACKED, effects)
        else:
            give_back(state, messages, leaving.operation == MODIFY_FAILED, effects)
    if state.settings.single_active and leases.count == 0:
        state.choose_active()


def _part(state: QueueState, leaving: Leaving, most: i64) -> list[Acquired]:
    """Return the next messages of a lease that ended; the budget bounds those that may die."""
    start = leaving.next
    stop = min(start + most, len(leaving.messages))
    if leaving.operation == MODIFY_FAILED:
        for at in range(start, stop):
            state.budget.spend(leaving.messages[at].byte_count)
            if state.budget.spent():
                stop = at + 1
                break
    return leaving.messages[start:stop]
