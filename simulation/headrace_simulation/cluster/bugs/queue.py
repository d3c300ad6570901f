"""Bugs of the queue's state machine and of its snapshots."""

from __future__ import annotations

import time
from typing import Any, Final

from headrace_broker.core.queue.command.command import ACCEPT, REJECT, RELEASE, Enqueue, stamp_of
from headrace_broker.core.queue.machine import arrival, leaving
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.snapshot.restoring import read_snapshot
from headrace_broker.core.queue.snapshot.snapshot import live_indexes
from headrace_broker.core.queue.state.consumer import ATTACHED, Consumer
from headrace_broker.core.queue.state.ready_list import ReadyList
from headrace_broker.core.queue.state.watermark import Watermark
from headrace_broker.runtime.cluster.steady_clock import SteadyClock
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_simulation.cluster.bugs.bug import Mutation, after_restore, put, put_all


def _unsettled_forgotten() -> None:
    def forget(state: Any) -> None:
        for session in state.sessions.values():
            for consumer in session.consumers.values():
                consumer.unsettled.clear()

    after_restore(read_snapshot, forget)


def _publishes_forgotten() -> None:
    def forget(state: Any) -> None:
        for session in state.sessions.values():
            session.publish_seq = 0

    after_restore(read_snapshot, forget)


def _no_entries_named() -> None:
    put_all(live_indexes, lambda original: lambda state: original(state)[:0])


def _not_restored() -> None:
    put(QueueHost, "restore", lambda _: lambda self, state: self.log.replaced())


def _settling(operation: int, instead: int) -> None:
    def made(original: Any) -> Any:
        def settle(state: Any, consumer: Any, item: Any, effects: Any) -> Any:
            if item.operation == operation:
                item.operation = instead
            return original(state, consumer, item, effects)

        return settle

    put_all(leaving.settle, made)


def _dropped_dead() -> None:
    put_all(leaving.bury, lambda _: lambda state, messages, reason, effects: None)


def _dropped_at_end() -> None:
    def release_all(state: Any, consumer: Any, failed: bool, effects: Any) -> int:
        del failed, effects
        messages = list(consumer.unsettled.values())
        consumer.unsettled.clear()
        state.release(consumer, messages)
        return len(messages)

    put_all(leaving.release_all, lambda _: release_all)


def _unmarked() -> None:
    def made(original: Any) -> Any:
        def again(message: Any, failed: bool) -> Acquired:
            found: Acquired = original(message, failed)
            found.acquired_count = message.acquired_count
            return found

        return again

    put(leaving, "_again", made)


def _enqueueing(change: Any) -> None:
    """Change what a session is known to have published before a command is taken."""

    def made(original: Any) -> Any:
        def enqueue(state: Any, index: int, data: bytes, command: Enqueue, effects: Any) -> Any:
            known = state.sessions.get(command.session)
            if known is not None:
                change(known, command)
            return original(state, index, data, command, effects)

        return enqueue

    put_all(arrival.enqueue, made)


def _repetitions() -> None:
    def change(known: Any, command: Enqueue) -> None:
        known.publish_seq = min(known.publish_seq, command.seq - 1)

    _enqueueing(change)


def _gaps() -> None:
    def change(known: Any, command: Enqueue) -> None:
        known.publish_seq = max(known.publish_seq, command.seq - 1)

    _enqueueing(change)


def _expiring(change: Any) -> None:
    def made(original: Any) -> Any:
        return lambda from_ms, ttl_ms: original(from_ms, change(ttl_ms))

    put(arrival, "_expiry", made)


def _no_limit() -> None:
    def credit(self: Consumer) -> int:
        return 100 if self.state == ATTACHED else 0

    put(Consumer, "credit", lambda _: credit)


def _wall_clock() -> None:
    put(SteadyClock, "queue_ms_at", lambda _: lambda self, boot_ms: self.unix_ms())


def _nodes_stay() -> None:
    put(QueueMachine, "_node_down", lambda _: lambda self, command, effects: None)


def _settled_kept() -> None:
    def take_range(unsettled: dict[int, Any], first: int, last: int) -> list[Any]:
        return [message for number, message in unsettled.items() if first <= number <= last]

    put(leaving, "_take_range", lambda _: take_range)


def _overtaking() -> None:
    def made(original: Any) -> Any:
        def take(self: Any, wanted: int, into: list[Any], now_ms: int) -> Any:
            start = len(into)
            found = original(self, wanted, into, now_ms)
            into[start:] = reversed(into[start:])
            return found

        return take

    put(ReadyList, "take", made)


def _own_clocks() -> None:
    put_all(stamp_of, lambda _: lambda data: time.time_ns() // 1_000_000)


def _given_up() -> None:
    def made(original: Any) -> Any:
        def enqueue(*args: Any) -> bool:
            original(*args)
            return False

        return enqueue

    put_all(arrival.enqueue, made)


def _dead_unkept() -> None:
    def made(original: Any) -> Any:
        def bury(state: Any, messages: Any, reason: int, effects: Any) -> None:
            original(state, messages, reason, effects)
            state.dead.clear()
            state.dead_bytes = 0

        return bury

    put_all(leaving.bury, made)


def _newest_dropped() -> None:
    def made(original: Any) -> Any:
        def take_lowest(self: Any, by_bytes: bool) -> Any:
            newest = self.browse(0, 1 << 30)[-1]
            return self.pop(newest.message_id) or original(self, by_bytes)

        return take_lowest

    put(ReadyList, "take_lowest", made)


def _failures_uncounted() -> None:
    def made(original: Any) -> Any:
        return lambda message, failed: original(message, False)

    put(leaving, "_again", made)


def _dead_unsent() -> None:
    def made(original: Any) -> Any:
        return lambda state, messages, reason, effects: original(state, messages, reason, [])

    put_all(leaving.bury, made)


def _no_credit() -> None:
    def made(original: Any) -> Any:
        def settle(state: Any, *args: Any) -> Any:
            state.enter_rotation = lambda consumer: None
            found = original(state, *args)
            del state.enter_rotation
            return found

        return settle

    put_all(leaving.settle, made)


def _length_ignored() -> None:
    put_all(leaving.is_over, lambda _: lambda state: False)


def _deferred_forgotten() -> None:
    def forget(state: Any) -> None:
        for session in state.sessions.values():
            state.watermark.forget(session)

    after_restore(read_snapshot, forget)


def _never_saturated() -> None:
    put(Watermark, "defer", lambda _: lambda self, index, session, base, start, stop: None)


def _untold() -> None:
    put(Watermark, "announce", lambda _: lambda self, session, first, effects: None)


def _not_completed() -> None:
    put(Watermark, "_complete_all", lambda _: lambda self: None)


def _leaving_not_completed() -> None:
    put(Watermark, "leave", lambda _: lambda self, index, start, stop: None)


def _sessions_remembered() -> None:
    def made(original: Any) -> Any:
        def forget(state: Any, session: Any, *rest: Any) -> Any:
            released = original(state, session, *rest)
            state.sessions[session.number] = session
            return released

        return forget

    put_all(leaving.forget_session, made)


MUTATIONS: Final = (
    Mutation(
        "watermarks-ignored",
        "no confirm is deferred, however full a queue is",
        *("limits", 5, _never_saturated),
    ),
    Mutation(
        "snapshots-forget-deferred",
        "a snapshot leaves out which confirms are deferred",
        *("limits", 20, _deferred_forgotten),
    ),
    Mutation(
        "deferred-confirms-untold",
        "sessions are not told which confirms a queue defers",
        *("limits", 5, _untold),
    ),
    Mutation(
        "low-watermarks-free-nothing",
        "deferred confirms stay deferred at the low watermark",
        *("limits", 20, _not_completed),
        is_found=False,
    ),
    Mutation(
        "leaving-frees-nothing",
        "deferred confirms stay deferred when their messages have left",
        *("limits", 20, _leaving_not_completed),
        is_found=False,
    ),
    Mutation(
        "snapshots-forget-unsettled",
        "a snapshot leaves out what consumers have",
        *("process", 20, _unsettled_forgotten),
    ),
    Mutation(
        "snapshots-forget-publishes",
        "a snapshot leaves out what sessions have published",
        *("process", 20, _publishes_forgotten),
    ),
    Mutation(
        "snapshots-name-no-entries",
        "entries with live messages behind a snapshot are given up",
        *("process", 20, _no_entries_named),
    ),
    Mutation(
        "snapshots-not-restored",
        "a queue stays as it is when a snapshot is installed",
        *("process", 20, _not_restored),
    ),
    Mutation(
        "accepts-give-back",
        "what a consumer accepts is given back",
        *("calm", 5, lambda: _settling(ACCEPT, RELEASE)),
    ),
    Mutation(
        "releases-accept",
        "what a consumer gives back is accepted",
        *("calm", 5, lambda: _settling(RELEASE, ACCEPT)),
    ),
    Mutation("rejects-drop", "what is rejected is dropped", "calm", 5, _dropped_dead),
    Mutation(
        "ends-of-consumers-drop",
        "what a consumer has when it ends is dropped",
        *("calm", 5, _dropped_at_end),
    ),
    Mutation(
        "redeliveries-unmarked",
        "what comes again is not marked as redelivered",
        *("calm", 5, _unmarked),
    ),
    Mutation(
        "repeated-publishes-taken",
        "a queue takes publishes again that were sent again",
        *("process", 20, _repetitions),
    ),
    Mutation(
        "gaps-taken",
        "a queue takes publishes behind some that were lost, and confirms all",
        *("network", 30, _gaps),
        is_found=False,
    ),
    Mutation(
        "messages-expire-early",
        "a time to live is a thousandth of what it should be",
        *("calm", 5, lambda: _expiring(lambda ttl_ms: ttl_ms // 1000)),
    ),
    Mutation("prefetch-ignored", "a consumer gets more than it asked for", "calm", 5, _no_limit),
    Mutation(
        "queues-follow-wall-clock",
        "time in a queue jumps with its leader's wall clock",
        *("clocks", 20, _wall_clock),
    ),
    Mutation(
        "dead-nodes-keep-messages",
        "a queue leaves what consumers of a dead node have with them",
        *("process", 20, _nodes_stay),
        is_found=False,
    ),
    Mutation(
        "settled-messages-kept",
        "a settled message stays with its consumer, and comes back at its end",
        *("calm", 5, _settled_kept),
    ),
    Mutation(
        "messages-overtake",
        "messages that are handed out together come the last one first",
        *("calm", 5, _overtaking),
    ),
    Mutation(
        "replicas-use-own-clocks",
        "replicas take the time from their own clocks, not from the log",
        *("clocks", 10, _own_clocks),
    ),
    Mutation(
        "entries-given-up-at-once",
        "entries with live messages count as dead",
        *("process", 20, _given_up),
        is_found=False,
    ),
    Mutation(
        "dead-letters-unkept",
        "dead letters are not kept until they have arrived",
        *("process", 20, _dead_unkept),
        is_found=False,
    ),
    Mutation(
        "messages-never-expire",
        "a time to live does not count",
        *("limits", 5, lambda: _expiring(lambda ttl_ms: -1)),
    ),
    Mutation(
        "newest-dropped",
        "a queue that is too long drops its newest messages",
        *("limits", 5, _newest_dropped),
    ),
    Mutation("lengths-ignored", "no queue is too long", "limits", 5, _length_ignored),
    Mutation(
        "failed-deliveries-uncounted",
        "what failed comes again for ever",
        *("limits", 5, _failures_uncounted),
    ),
    Mutation(
        "releases-reject",
        "what a consumer gives back is dead-lettered",
        *("calm", 5, lambda: _settling(RELEASE, REJECT)),
    ),
    Mutation("dead-letters-unsent", "dead letters are kept and not sent", "calm", 5, _dead_unsent),
    Mutation(
        "settles-give-no-credit",
        "a consumer that had all it may have gets no more when it settles",
        *("steady", 20, _no_credit),
    ),
    Mutation(
        "queues-remember-sessions",
        "a queue keeps the state of sessions that are closed",
        *("churn", 2, _sessions_remembered),
    ),
)
