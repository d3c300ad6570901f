"""Messages that died at the leader of a queue, on their way out of its log."""

from __future__ import annotations

from collections import deque
from typing import Any, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import DEAD_LETTERS_CUT_BYTES, DEAD_LETTERS_UNREAD_MAX
from headrace_broker.runtime.contract.dead_letter import DeadLetter, cut_dead_letter
from headrace_broker.runtime.contract.host_watcher import HostWatcher
from headrace_broker.runtime.contract.queue_log import QueueLog


@final
class DeadRun:
    """Messages that died together."""

    def __init__(
        self, messages: list[Acquired], reason: i64, causes: list[int], arguments: dict[str, Any]
    ) -> None:
        self.messages = messages  # in order
        self.reason = reason  # a REASON constant
        self.causes = causes  # of each, as `DeadLetter.cause`
        self.arguments = arguments  # the effective ones of the queue then
        self.at: i64 = 0  # how many of them are dead letters already, or lost


@final
class DeadLetterQueue:
    """Makes dead letters of messages that are sent at most once, in the order in which they died.

    What is in memory leaves at once. Entries that have to be read first stay in the log meanwhile,
    whatever becomes of the queue's leadership; should the replica go, or the log begin anew with
    the snapshot of another one, their messages are lost.
    """

    def __init__(self, queue: Queue, log: QueueLog, watcher: HostWatcher) -> None:
        self.unread_count: i64 = 0  # messages that wait for the disk
        self._queue = queue
        self._log = log  # of the queue
        self._watcher = watcher  # takes dead letters, and is told how many messages are lost
        self._waiting: deque[DeadRun] | None = None  # for the disk; None, as mostly, for nothing

    def accept(self, died: DeadRun) -> None:
        """Take messages that have just died: their entries are still there."""
        if not self._waiting and self._advance(died):
            return
        count: i64 = len(died.messages) - died.at
        if self.unread_count + count > DEAD_LETTERS_UNREAD_MAX:
            self._watcher.dead_letters_lost(self._queue, int(count))
            return
        for at in range(died.at, len(died.messages)):
            self._log.pin(died.messages[at].entry_index)
        self.unread_count += count
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(died)

    def end(self) -> None:
        """Lose what waits for the disk: the replica goes, and its log with it."""
        if self._waiting:
            self._waiting.clear()
            self._log.give_up(self._read)
            lost, self.unread_count = self.unread_count, 0
            self._watcher.dead_letters_lost(self._queue, int(lost))

    def _read(self) -> None:
        """Continue with an entry that was read from the disk."""
        waiting = self._waiting
        while waiting:
            died = waiting[0]
            before: i64 = died.at
            is_over = self._advance(died)
            self.unread_count -= died.at - before
            for at in range(before, died.at):
                self._log.unpin(died.messages[at].entry_index)
            if not is_over:
                return
            waiting.popleft()
        self._waiting = None

    def _advance(self, died: DeadRun) -> bool:
        """Cut dead letters up to the first whose entry is being read; return whether none is."""
        dead_letters: list[DeadLetter] = []
        byte_count: i64 = 0
        lost: i64 = 0
        index: i64 = -1
        entry: bytes | None = None
        is_gone = False
        while died.at < len(died.messages):
            message = died.messages[died.at]
            if message.entry_index != index:
                index = message.entry_index
                try:
                    entry = self._log.entry_at_hand(index, self._read)
                    is_gone = False
                except KeyError:
                    is_gone = True
            if is_gone:
                lost += 1
            elif entry is None:
                break
            else:
                dead_letter = cut_dead_letter(entry, message, died.reason)
                dead_letter.cause = died.causes[died.at]
                dead_letters.append(dead_letter)
                byte_count += dead_letter.byte_count
            died.at += 1
            if (
                byte_count >= DEAD_LETTERS_CUT_BYTES
            ):  # what finds no room goes before more is copied
                self._watcher.dead_lettered(self._queue, died.arguments, dead_letters)
                dead_letters, byte_count = [], 0
        if dead_letters:
            self._watcher.dead_lettered(self._queue, died.arguments, dead_letters)
        if lost > 0:
            self._watcher.dead_letters_lost(self._queue, int(lost))
        return died.at == len(died.messages)
