"""Bugs of leases and of delayed messages."""

from __future__ import annotations

from typing import Any, Final

from headrace_broker.core.queue.command.command import ACCEPT, RELEASE
from headrace_broker.core.queue.machine import lease_ending, leasing, leaving
from headrace_broker.core.queue.snapshot.restoring import read_snapshot
from headrace_broker.core.queue.state.delayed import DelayedMessages
from headrace_broker.core.queue.state.lease import Leases
from headrace_broker.core.queue.state.lease_effect import EXPIRED
from headrace_simulation.cluster.bugs.bug import Mutation, after_restore, put, put_all


def _leases_forgotten() -> None:
    def forget(state: Any) -> None:
        state.leases = Leases()

    after_restore(read_snapshot, forget)


def _delays_forgotten() -> None:
    def forget(state: Any) -> None:
        state.delayed.clear()

    after_restore(read_snapshot, forget)


def _expiry_drops() -> None:
    def made(original: Any) -> Any:
        def end(state: Any, group: Any, number: int, operation: int, why: int, effects: Any) -> int:
            instead = ACCEPT if why == EXPIRED and operation == RELEASE else operation
            return int(original(state, group, number, instead, why, effects))

        return end

    put_all(lease_ending.end_lease, made)


def _takeover_returns() -> None:
    def made(original: Any) -> Any:
        def open_group(state: Any, group: Any, command: Any, effects: Any) -> None:
            if group is not None and command.opener not in group.openers:
                for number in list(group.leases):
                    messages = group.leases.pop(number).messages
                    state.leases.count -= len(messages)
                    state.release(group.holder, messages)
                    leaving.give_back(state, messages, False, effects)
                group.next_number = group.settled + 1
            original(state, group, command, effects)

        return open_group

    put(leasing, "_open", made)


def _nobody_fenced() -> None:
    def made(original: Any) -> Any:
        def apply(state: Any, command: Any, effects: Any) -> None:
            group = state.leases.groups.get(command.name)
            if group is not None and hasattr(command, "epoch"):
                command.epoch = group.epoch
            original(state, command, effects)

        return apply

    put_all(leasing.apply_command, made)


def _asked_again_is_longer() -> None:
    def made(original: Any) -> Any:
        def tell_again(state: Any, group: Any, command: Any, effects: Any) -> None:
            lease = group.leases.get(command.number)
            if lease is not None:
                more = leasing._take(state, group, 1, command.byte_count, effects)  # noqa: SLF001
                lease.messages.extend(more)
                state.leases.count += len(more)
                state.unsettled_count += len(more)
                state.unsettled_bytes += sum(each.byte_count for each in more)
            original(state, group, command, effects)

        return tell_again

    put(leasing, "_tell_again", made)


def _settled_return() -> None:
    def made(original: Any) -> Any:
        def leave(state: Any, effects: Any) -> None:
            for each in state.leases.leaving:
                each.operation = RELEASE
            original(state, effects)

        return leave

    put_all(lease_ending.let_leave, made)


def _delay(change: Any) -> None:
    def made(original: Any) -> Any:
        def add(self: Any, message: Any) -> None:
            message.due_ms = change(message)
            original(self, message)

        return add

    put(DelayedMessages, "add", made)


MUTATIONS: Final = (
    Mutation(
        "snapshots-forget-leases",
        "a snapshot leaves out what groups have leased",
        *("leases", 20, _leases_forgotten),
    ),
    Mutation(
        "expired-leases-drop",
        "messages of a lease that has expired are dropped",
        *("leases", 5, _expiry_drops),
    ),
    Mutation(
        "takeovers-return-leases",
        "a new owner of a group finds none of its leases, and numbers its own alike",
        *("leases", 20, _takeover_returns),
    ),
    Mutation(
        "nobody-is-fenced",
        "an earlier owner of a group goes on beside the new one",
        *("leases", 20, _nobody_fenced),
    ),
    Mutation(
        "leases-grow",
        "a lease that is asked for again has more messages than before",
        *("leases", 20, _asked_again_is_longer),
    ),
    Mutation(
        "settled-leases-return",
        "messages of a lease that is settled come again",
        *("leases", 5, _settled_return),
    ),
    Mutation(
        "snapshots-forget-delayed",
        "a snapshot leaves out delayed messages",
        *("leases", 20, _delays_forgotten),
    ),
    Mutation(
        "delays-halved",
        "a delayed message comes after half of its time",
        *("leases", 5, lambda: _delay(lambda each: (each.due_ms + each.arrived_ms) // 2)),
    ),
    Mutation(
        "delayed-never-come",
        "a delayed message waits for ever",
        *("leases", 5, lambda: _delay(lambda each: each.due_ms + (1 << 40))),
    ),
)
