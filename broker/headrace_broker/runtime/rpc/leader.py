"""Requests to the leader of a queue, here or on another node, repeated until one answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final, Generic, TypeVar

from headrace_broker.model.definition import Queue
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.answers import Answers
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import (
    FAILED,
    NO_ANSWER,
    TOO_LARGE,
    UNKNOWN,
    Question,
    RpcError,
)

ATTEMPT_SECONDS: Final = 1.0  # wait for one node's answer before the leader is looked up again
PAUSE_SECONDS: Final = 0.1  # between attempts: an election takes some of them
ANSWER_SECONDS_MAX: Final = 10.0  # then the queue counts as not available

NOT_LEADING: Final = "not_leading"  # a refusal; its detail is the leader, 0 for unknown
NOT_NOW: Final = "not_now"  # a refusal of a leader that cannot take more now

A = TypeVar("A")


class LeaderUnavailableError(Exception):
    """No leader of the queue answered: too few of its replicas are running."""


class QueueGoneError(Exception):
    """The queue was deleted before it answered."""


class LeaderQuestion(Question[A], Generic[A], frozen=True):
    """A request to the leader of a queue."""

    group: int  # of the queue


Q = TypeVar("Q", bound=LeaderQuestion[Any])


class _Attempts:
    """Attempts to have a queue's leader answer one question."""

    def __init__(self, queue: Queue) -> None:
        self.had_turn = False  # it could be asked
        self.redirected = 0  # node that the last one named as the leader, 0 for none
        self._queue = queue
        self._failures = 0
        self._last = ""  # why the last one who was asked gave no answer

    def note(self, target: int, error: RpcError) -> float:
        """Note that a node gave no answer; return the seconds until the next attempt.

        Raises LeaderUnavailableError: another attempt would end alike; RpcError: the leader
        refuses.
        """
        self._last = str(error)
        if error.failure == NOT_LEADING:
            if error.detail != target:
                self.redirected = error.detail
        elif error.failure == FAILED:
            self._failures += 1
            if self._failures > 1:
                raise self.failure() from error
            return ATTEMPT_SECONDS
        elif error.failure in (UNKNOWN, TOO_LARGE):
            raise self.failure() from error
        elif error.failure not in (NOT_NOW, *NO_ANSWER):
            raise error
        return PAUSE_SECONDS

    def failure(self) -> LeaderUnavailableError:
        """Return why the queue counts as not available."""
        name = self._queue.name
        if not self.had_turn:
            text = f"a question to the leader of queue '{name}' had no turn: too many others wait"
        else:
            text = f"no leader of queue '{name}' answers"
        return LeaderUnavailableError(f"{text}: {self._last}" if self._last else text)


class Leaders:
    """Asks leaders of queues, and answers for those that are led here."""

    def __init__(
        self,
        rpc: Rpc,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        exists: Callable[[Queue], bool],
    ) -> None:
        self.hosts = hosts  # replicas on this node by group
        self.locate = locate  # where the leader of a queue is, 0 for unknown
        self._rpc = rpc  # asks nodes
        # whether a queue, this incarnation of it, is in the catalog as applied here
        self._exists = exists
        self._reading: set[type] = set()  # questions for which entries may have to be read

    def serve(self, kind: type[Q], here: Callable[[QueueHost, Q], Any]) -> None:
        """Answer one kind of question; `here` gets the replica that leads, as `Rpc.serve` says."""
        self._rpc.serve(kind, lambda _, question: here(self._leading(question.group), question))

    def serve_reading(self, kind: type[Q], cut: Callable[[QueueHost, Entries, Q], Any]) -> None:
        """Answer one kind of question, for which entries of the log may have to be read.

        Args:
            kind: of question.
            cut: answers as far as the entries are at hand, as `Answers.cut` says.
        """
        answers = Answers()
        self._reading.add(kind)

        def here(host: QueueHost, question: Q) -> Any:
            entries = Entries(host.log)
            found = cut(host, entries, question)
            return found if not entries.missing else read(host, question, entries)

        async def read(host: QueueHost, question: Q, entries: Entries) -> Any:
            group = question.group
            found = await answers.read(
                entries,
                group,
                lambda some: cut(host, some, question),
                lambda: self._serving(group) is host,
            )
            if found is None:
                raise self._not_leading(group)
            return found

        self.serve(kind, here)

    def _serving(self, group: int) -> QueueHost | None:
        host = self.hosts.get(group)
        return host if host is not None and host.serving else None

    def _leading(self, group: int) -> QueueHost:
        """Return the replica that leads here.

        Raises RpcError: NOT_LEADING.
        """
        host = self._serving(group)
        if host is None:
            raise self._not_leading(group)
        return host

    def _not_leading(self, group: int) -> RpcError:
        known = self.hosts.get(group)
        leader = 0 if known is None else self.locate(known.queue)
        return RpcError(NOT_LEADING, f"node {self._rpc.node} does not lead it", leader)

    async def ask(
        self, queue: Queue, question: LeaderQuestion[A], slots: asyncio.Semaphore | None = None
    ) -> A:
        """Return the leader's answer; arguments and errors are those of `ask_whom`."""
        answer, _ = await self.ask_whom(queue, question, slots)
        return answer

    async def ask_whom(
        self, queue: Queue, question: LeaderQuestion[A], slots: asyncio.Semaphore | None = None
    ) -> tuple[A, int]:
        """Return the leader's answer, and the id of its node.

        Args:
            queue: whose leader is asked.
            question: of a kind that it serves.
            slots: has a place for the question, which it waits for within its time.

        Raises:
            LeaderUnavailableError: no leader of the queue answered.
            QueueGoneError: the queue was deleted.
            RpcError: the leader refuses.
        """
        attempts = _Attempts(queue)
        timer = asyncio.timeout(ANSWER_SECONDS_MAX)
        try:
            async with timer, nullcontext() if slots is None else slots:
                attempts.had_turn = True
                while True:
                    target, seconds = self._target(queue, question, attempts.redirected)
                    before, attempts.redirected = attempts.redirected, 0
                    pause = PAUSE_SECONDS
                    if target:
                        try:
                            return await self._rpc.ask(target, question, seconds), target
                        except RpcError as error:
                            pause = attempts.note(target, error)
                    if not attempts.redirected or before:  # else that one is asked at once
                        await asyncio.sleep(pause)
        except TimeoutError:
            if not timer.expired():
                raise
            if type(question) in self._reading and self._serving(queue.group) is not None:
                text = f"the disk does not give back messages of queue '{queue.name}' in time"
                raise LeaderUnavailableError(text) from None
            raise attempts.failure() from None

    def _target(self, queue: Queue, question: Question[Any], redirected: int) -> tuple[int, float]:
        """Return who is to be asked, 0 for nobody, and for how many seconds.

        Raises QueueGoneError: nobody will ever answer.
        """
        own = self._rpc.node
        if not self._exists(queue):
            raise QueueGoneError(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
        if self._serving(queue.group) is not None:
            reads = type(question) in self._reading
            return own, ANSWER_SECONDS_MAX if reads else ATTEMPT_SECONDS
        target = redirected or self.locate(queue)
        return 0 if target == own else target, ATTEMPT_SECONDS
