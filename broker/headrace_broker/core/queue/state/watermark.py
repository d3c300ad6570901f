"""Deferred confirms of a queue: those of publishes that arrived above the watermark.

Source: "Producer throttling (flow control) for AMQP 0-10", Apache Qpid: `saturated`, the messages
that are pending completion, and what a dequeue completes.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Completed, ConfirmsDeferred, Effect
from headrace_broker.core.queue.state.session import DeferredCommand, Session
from headrace_broker.model.limits import DEFERRED_COMMANDS_MAX, DEFERRED_MESSAGES_MAX
from headrace_broker.model.ranges import count_rows


@final
class Watermark:
    """The queue's list of messages that are pending completion.

    A message is here at most as long as the queue holds it. Past DEFERRED_COMMANDS_MAX or
    DEFERRED_MESSAGES_MAX the oldest are completed though the queue is saturated: they have waited
    longest, and their publishers' windows move on slowly.
    """

    def __init__(self) -> None:
        self.saturated = False  # over its high watermark since, and not down at the low one
        self.commands: dict[int, DeferredCommand] = {}  # by log position, in order of arrival
        self.count: i64 = 0  # messages in them
        self._fresh: DeferredCommand | None = None  # of the current command: not reported yet
        self._fresh_at: i64 = 0
        self._told: Session | None = None  # to be told its deferred confirms
        self._told_from: i64 = 0
        self._told_at: i64 = 0
        self._completed: dict[int, list[int]] = {}  # by session, in rows; empty between commands

    def keep(self, index: i64, command: DeferredCommand) -> None:
        """Keep the command of the highest log position; the caller sets `count`."""
        self.commands[index] = command
        command.session.deferred[index] = command

    # While a command is carried out

    def defer(self, index: i64, session: Session, base: i64, start: i64, stop: i64) -> None:
        """Defer positions `start` to `stop` - 1 of an entry, unless it proves too early.

        `base` plus a position is its number on the session's publish lane.
        """
        fresh = DeferredCommand(session, base)
        fresh.seqs.append(base + start, base + stop)
        self.keep(index, fresh)
        self.count += stop - start
        self._fresh = fresh
        self._fresh_at = index

    def announce(self, session: Session, first: i64, effects: list[Effect]) -> None:
        """Send the session the deferred confirms from publish `first` on.

        It is told before the next effect, once all that leaves by this command has left.
        """
        self._told = session
        self._told_from = first
        self._told_at = len(effects)

    def leave(self, index: i64, start: i64, stop: i64) -> None:
        """Complete the positions `start` to `stop` - 1 of an entry: they have left the queue."""
        command = self.commands.get(index)
        if command is None:
            return
        gone = command.seqs.remove(command.base + start, command.base + stop)
        if not gone:
            return
        self.count -= count_rows(gone)
        if command is not self._fresh:
            self._complete(command.session, gone)
            if not command.seqs:
                self._drop(index, command)

    def forget(self, session: Session) -> None:
        """Drop the session's deferred confirms."""
        for index, command in session.deferred.items():
            self.count -= command.seqs.count
            del self.commands[index]
        session.deferred.clear()
        self._completed.pop(session.number, None)

    # At its end

    def end(self, effects: list[Effect]) -> None:
        """Send deferred and completed confirms, now that `saturated` is final."""
        fresh = self._fresh
        if fresh is not None:
            self._fresh = None
            if not self.saturated or not fresh.seqs:
                self.count -= fresh.seqs.count
                self._drop(self._fresh_at, fresh)
            else:
                self._make_room()
        told = self._told
        if told is not None:
            self._told = None
            rows = told.deferred_from(self._told_from) if self.saturated else []
            if rows:
                effects.insert(self._told_at, ConfirmsDeferred(told.number, rows))
        if not self.saturated and self.commands:
            self._complete_all()
        if self._completed:
            completed = self._completed
            self._completed = {}
            for number, rows in completed.items():
                effects.append(Completed(number, rows))

    def _make_room(self) -> None:
        while len(self.commands) > 1 and (
            len(self.commands) > DEFERRED_COMMANDS_MAX or self.count > DEFERRED_MESSAGES_MAX
        ):
            index = next(iter(self.commands))
            command = self.commands[index]
            self.count -= command.seqs.count
            self._complete(command.session, command.seqs.bounds)
            self._drop(index, command)

    def _complete_all(self) -> None:
        for command in self.commands.values():
            self._complete(command.session, command.seqs.bounds)
            command.session.deferred.clear()
        self.commands.clear()
        self.count = 0

    def _complete(self, session: Session, rows: list[int]) -> None:
        done = self._completed.get(session.number)
        if done is None:
            self._completed[session.number] = list(rows)
        elif done[-1] == rows[0]:
            done[-1] = rows[1]
            done.extend(rows[2:])
        else:
            done.extend(rows)

    def _drop(self, index: i64, command: DeferredCommand) -> None:
        del self.commands[index]
        del command.session.deferred[index]
