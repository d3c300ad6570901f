"""Groups that take messages by lease, and what becomes of these."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import ACCEPT, MODIFY_FAILED, RELEASE
from headrace_broker.core.queue.command.lease_command import (
    CloseGroup,
    LeaseCommand,
    OpenGroup,
    ReleaseLeases,
    RenewLeases,
    SettleLeases,
    TakeLease,
)
from headrace_broker.core.queue.machine.lease_ending import end_lease, let_leave
from headrace_broker.core.queue.machine.serving import has_expired
from headrace_broker.core.queue.messages.effect import Acquired, Effect
from headrace_broker.core.queue.state.lease import Lease, LeaseGroup, Leaving
from headrace_broker.core.queue.state.lease_effect import (
    EXPIRED,
    LEASE_FENCED,
    LEASE_GONE,
    LEASE_GROUPS_FULL,
    LEASE_IN_USE,
    LEASE_OK,
    LEASE_OUT_OF_ORDER,
    LEASE_SETTLED,
    LEASE_UNKNOWN_GROUP,
    LEASES_FULL,
    RELEASED,
    LeaseAnswer,
    LeaseInfo,
)
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.core.queue.state.ready_list import KEY_GROUP
from headrace_broker.model.limits import (
    LEASE_BYTES_MAX,
    LEASE_GROUPS_MAX,
    LEASE_MESSAGES_MAX,
    LEASED_MESSAGES_MAX,
    LEASES_MAX,
)


def apply_command(state: QueueState, command: LeaseCommand, effects: list[Effect]) -> None:
    """Carry out a command of a group, or say why not."""
    group = state.leases.groups.get(command.name)
    if isinstance(command, OpenGroup):
        _open(state, group, command, effects)
    elif group is None:
        status = LEASE_OK if isinstance(command, CloseGroup) else LEASE_UNKNOWN_GROUP
        effects.append(LeaseAnswer(command.request, status, None))
    elif command.epoch != group.epoch and not (
        isinstance(command, CloseGroup) and command.epoch == 0
    ):
        effects.append(LeaseAnswer(command.request, LEASE_FENCED, group.info()))
    elif isinstance(command, TakeLease):
        _lease(state, group, command, effects)
    elif isinstance(command, RenewLeases):
        _renew(state, group, command, effects)
    elif isinstance(command, SettleLeases):
        _settle(state, group, command, effects)
    elif isinstance(command, ReleaseLeases):
        _release(state, group, command, effects)
    elif isinstance(command, CloseGroup):
        _close(state, group, command, effects)
    state.leases.find_due()


def look(state: QueueState, name: bytes, epoch: i64, number: i64) -> tuple[i64, list[Acquired]]:
    """Return the messages of a lease, not to be changed, or why there are none."""
    group = state.leases.groups.get(name)
    if group is None:
        return LEASE_UNKNOWN_GROUP, []
    if epoch != group.epoch:
        return LEASE_FENCED, []
    lease = group.leases.get(number)
    if lease is not None:
        return LEASE_OK, lease.messages
    if number >= group.next_number:
        return LEASE_OUT_OF_ORDER, []
    return (LEASE_SETTLED if number <= group.settled else LEASE_GONE), []


def _open(
    state: QueueState, group: LeaseGroup | None, command: OpenGroup, effects: list[Effect]
) -> None:
    leases = state.leases
    if group is None:
        if len(leases.groups) >= LEASE_GROUPS_MAX:
            effects.append(LeaseAnswer(command.request, LEASE_GROUPS_FULL, None))
            return
        group = leases.make(command.name)
    epoch = group.openers.get(command.opener)
    if epoch is None:
        leases.epochs += 1
        group.open(command.opener, leases.epochs)
    elif epoch != group.epoch:  # asked again after another owner has opened it
        effects.append(LeaseAnswer(command.request, LEASE_FENCED, group.info()))
        return
    _put_off(state, group, command.ttl_ms)
    _answer(state, command, LEASE_OK, group, 0, effects)


def _put_off(state: QueueState, group: LeaseGroup, ttl_ms: i64) -> None:
    """Let what a group holds live at least so long."""
    if group.leases:
        group.deadline_ms = max(group.deadline_ms, state.now_ms + ttl_ms)


def _answer(
    state: QueueState,
    command: LeaseCommand,
    status: i64,
    group: LeaseGroup,
    count: i64,
    effects: list[Effect],
) -> None:
    info = group.info()
    effects.append(LeaseAnswer(command.request, status, info, count, 0, state.ready.count))


# Leases that begin


def _lease(state: QueueState, group: LeaseGroup, command: TakeLease, effects: list[Effect]) -> None:
    number = command.number
    if number < group.next_number:
        _tell_again(state, group, command, effects)
        return
    status = _refusal(state, group, number)
    if status != LEASE_OK:
        _answer(state, command, status, group, 0, effects)
        return
    most = min(command.messages, LEASE_MESSAGES_MAX, LEASED_MESSAGES_MAX - state.leases.count)
    messages = _take(state, group, most, min(command.byte_count, LEASE_BYTES_MAX), effects)
    if messages:
        lease = Lease(number, messages)
        group.leases[number] = lease
        group.next_number = number + 1
        _hold(state, lease)
        _put_off(state, group, command.ttl_ms)
        info = group.info()
        ready = state.ready.count
        effects.append(
            LeaseAnswer(command.request, LEASE_OK, info, len(messages), lease.byte_count, ready)
        )
    else:
        _answer(state, command, LEASE_OK, group, 0, effects)


def _tell_again(
    state: QueueState, group: LeaseGroup, command: TakeLease, effects: list[Effect]
) -> None:
    """Answer for a lease that there was before."""
    number = command.number
    ready = state.ready.count
    lease = group.leases.get(number)
    gone = group.gone.get(number)
    status = LEASE_SETTLED
    count: i64 = 0
    byte_count: i64 = 0
    went: list[LeaseInfo] = []
    if lease is not None:
        status = LEASE_OK
        count = len(lease.messages)
        byte_count = lease.byte_count
    elif gone is not None and number > group.settled:
        status = LEASE_GONE
        went.append(gone)
    effects.append(
        LeaseAnswer(command.request, status, group.info(), count, byte_count, ready, went)
    )


def _refusal(state: QueueState, group: LeaseGroup, number: i64) -> i64:
    """Return why a group may not have its lease of that number now, LEASE_OK when it may."""
    if number > group.next_number:
        return LEASE_OUT_OF_ORDER
    if number - group.settled > LEASES_MAX or state.leases.count >= LEASED_MESSAGES_MAX:
        return LEASES_FULL
    if state.exclusive:
        return LEASE_IN_USE
    if state.settings.single_active and (
        state.attached_count > 0 or state.leases.count > _count_of(group)
    ):
        return LEASE_IN_USE
    return LEASE_OK


def _count_of(group: LeaseGroup) -> i64:
    count: i64 = 0
    for lease in group.leases.values():
        count += len(lease.messages)
    return count


def _take(
    state: QueueState, group: LeaseGroup, most: i64, bytes_max: i64, effects: list[Effect]
) -> list[Acquired]:
    """Take ready messages, in their order, without expired ones."""
    ready = state.ready
    taken: list[Acquired] = []
    byte_count: i64 = 0
    while len(taken) < most and byte_count < bytes_max and ready.count > 0:
        if has_expired(state, effects):
            break  # more than one command drops
        before: i64 = len(taken)
        if ready.groups.count > 0:
            message = ready.take_for(group.holder)
            if message is None:
                break  # what is left is of groups that others have
            if message.key.startswith(KEY_GROUP):
                ready.groups.hold(group.holder, message)
            taken.append(message)
        elif ready.byte_count <= bytes_max - byte_count:
            ready.take(most - before, taken, state.now_ms)
        else:
            ready.take(1, taken, state.now_ms)
        for at in range(before, len(taken)):
            byte_count += taken[at].byte_count
    return taken


def _hold(state: QueueState, lease: Lease) -> None:
    now = state.now_ms
    for message in lease.messages:
        message.acquired_ms = now
    count: i64 = len(lease.messages)
    state.leases.count += count
    state.unsettled_count += count
    state.unsettled_bytes += lease.byte_count


# Leases that go on


def _renew(
    state: QueueState, group: LeaseGroup, command: RenewLeases, effects: list[Effect]
) -> None:
    if group.leases:
        group.deadline_ms = state.now_ms + command.ttl_ms
    _answer(state, command, LEASE_OK, group, 0, effects)


# Leases that end


def _settle(
    state: QueueState, group: LeaseGroup, command: SettleLeases, effects: list[Effect]
) -> None:
    last = command.last
    if last >= group.next_number:
        _answer(state, command, LEASE_OUT_OF_ORDER, group, 0, effects)
        return
    if last > group.settled:
        group.settled_before = group.settled
        group.settled = last
        group.settled_count = 0
        for number in [number for number in group.leases if number <= last]:
            lease = group.leases.pop(number)
            group.settled_count += len(lease.messages)
            state.leases.leaving.append(Leaving(group.holder, ACCEPT, lease.messages))
        for number in [number for number in group.gone if number <= group.settled_before]:
            del group.gone[number]
    count: i64 = 0
    gone: list[LeaseInfo] = []
    if last == group.settled:
        count = group.settled_count
        gone = group.gone_between(group.settled_before, group.settled)
    status = LEASE_OK
    for each in gone:
        if each.state == EXPIRED:
            status = LEASE_GONE
    let_leave(state, effects)
    state.leases.find_due()
    ready = state.ready.count
    effects.append(LeaseAnswer(command.request, status, group.info(), count, 0, ready, gone))


def _release(
    state: QueueState, group: LeaseGroup, command: ReleaseLeases, effects: list[Effect]
) -> None:
    operation = MODIFY_FAILED if command.failed else RELEASE
    count: i64 = 0
    for number in [number for number in group.leases if number >= command.first]:
        count += end_lease(state, group, number, operation, RELEASED, effects)
    let_leave(state, effects)
    state.leases.find_due()
    _answer(state, command, LEASE_OK, group, count, effects)


def _close(
    state: QueueState, group: LeaseGroup, command: CloseGroup, effects: list[Effect]
) -> None:
    count: i64 = 0
    for number in list(group.leases):
        count += end_lease(state, group, number, RELEASE, RELEASED, effects)
    del state.leases.groups[group.name]
    let_leave(state, effects)
    ready = state.ready.count
    effects.append(LeaseAnswer(command.request, LEASE_OK, None, count, 0, ready))
