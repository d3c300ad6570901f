"""Requests to one node, matched with their answers.

A node serves each kind of question with a handler, which returns the answer or awaits it. The
deadline travels with the question: a handler that is not done by then is cancelled, and so is one
whose asker is cancelled before (`Cancel`). A refusal is a value with a text (`RpcError`). An answer
counts only from the node that was asked, and until the deadline; all others are dropped. When a
node goes, or comes back as another process, its pending questions end.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from headrace_broker.model.limits import (
    RPC_CALLER_QUESTIONS_MAX,
    RPC_LATE_MAX,
    RPC_PEER_QUESTIONS_MAX,
    RPC_QUESTION_BYTES_MAX,
)
from headrace_broker.runtime.contract.payload import MALFORMED, Payload, brief
from headrace_broker.runtime.rpc.answering import Answering, raw
from headrace_broker.runtime.rpc.codec import ENCODER, decoder_of
from headrace_broker.runtime.rpc.protocol import (
    ANSWERED,
    BUSY,
    GONE,
    LATE,
    NO_ANSWER,
    REFUSED,
    SILENT,
    TOO_LARGE,
    UNKNOWN,
    UNREACHABLE,
    Answer,
    Ask,
    Cancel,
    NoAnswerError,
    Question,
    RpcError,
)

LOG: Final = logging.getLogger("headrace.cluster")

ANSWER_SECONDS_MAX: Final = 5.0  # for an answer where nothing else is said
_NUMBER_BITS: Final = 52  # of the first question's number: none is another process's

A = TypeVar("A")
Q = TypeVar("Q", bound=Question[Any])


class _Waiting(NamedTuple):
    node: int
    future: asyncio.Future[Answer]


class _Late(NamedTuple):
    node: int
    kind: type[Question[Any]]
    take: Callable[[Any], None]


class Rpc:
    """Asks nodes, this one too, and answers them."""

    def __init__(
        self, node: int, send: Callable[[int, bytes], bool], caller: Callable[[], str] = lambda: ""
    ) -> None:
        self.node = node  # this node's id
        # questions to other nodes by outcome, since the start
        self.counts: Counter[str] = Counter()
        self.answering = Answering(node, send)  # answers other nodes
        self._send = send  # carries a payload to a node; False when it did not leave
        # returns the client on whose behalf the current task asks, "" for the node itself
        self._caller = caller
        self._next = secrets.randbits(_NUMBER_BITS) + 1
        self._waiting: dict[int, _Waiting] = {}
        self._late: dict[int, _Late] = {}  # the oldest first
        self._boots: dict[int, int] = {}
        self._slots: WeakValueDictionary[tuple[str | int, str], asyncio.Semaphore]
        self._slots = WeakValueDictionary()  # by pool and client, or node

    @property
    def outstanding(self) -> int:
        """Number of questions that wait for an answer."""
        return len(self._waiting)

    def serve(self, kind: type[Q], handler: Callable[[int, Q], Any]) -> None:
        """Answer one kind of question from now on.

        Args:
            kind: of question.
            handler: called with the id of the node that asks; returns the answer, or a coroutine
                that does. RpcError is a refusal.
        """
        self.answering.serve(kind, handler)

    # Asking

    async def ask(
        self,
        node: int,
        question: Question[A],
        seconds: float | None = None,
        late: Callable[[A], None] | None = None,
    ) -> A:
        """Return a node's answer.

        Args:
            node: who is asked; this one answers at once.
            question: of a kind that it serves.
            seconds: for the answer, ANSWER_SECONDS_MAX where it is left out.
            late: takes an answer that comes when nobody waits for it any more.

        Raises NoAnswerError: there is no answer; RpcError: the handler refuses.
        """
        seconds = ANSWER_SECONDS_MAX if seconds is None else seconds
        if node == self.node:
            return await self._ask_here(question, seconds)
        try:
            return await self._ask_in_turn(node, question, seconds, late)
        except NoAnswerError as error:
            self.counts[error.failure] += 1
            raise

    def tell(self, node: int, question: Question[Any]) -> None:
        """Ask what needs no answer; it may be lost."""
        if node == self.node:
            self.answering.handlers[type(question)](node, question)
        else:
            self._send(node, _encoded(Ask(0, 0, raw(question))))

    async def _ask_here(self, question: Question[A], seconds: float) -> A:
        found: Any = self.answering.handlers[type(question)](self.node, question)
        if asyncio.iscoroutine(found):
            timer = asyncio.timeout(seconds)
            try:
                async with timer:
                    found = await found
            except TimeoutError:
                if not timer.expired():
                    raise
                raise self._silent(self.node, seconds) from None
        return found  # type: ignore[no-any-return]

    async def _ask_in_turn(
        self, node: int, question: Question[A], seconds: float, late: Callable[[A], None] | None
    ) -> A:
        sent = False
        try:
            async with asyncio.timeout(seconds) as timer:
                with ExitStack() as places:
                    for key in (self._caller(), node):
                        slot = self._slot(key, question.pool)
                        await slot.acquire()
                        places.callback(slot.release)
                    until = timer.when()
                    assert until is not None
                    sent = True
                    return await self._ask(node, question, until, late, places)
        except TimeoutError:
            if sent:
                raise self._silent(node, seconds) from None
            text = f"a question to node {node} had no turn within {seconds:g} s"
            raise NoAnswerError(BUSY, f"{text}: too many others wait for answers") from None

    @staticmethod
    def _silent(node: int, seconds: float) -> NoAnswerError:
        return NoAnswerError(SILENT, f"node {node} does not answer within {seconds:g} s")

    def _slot(self, key: str | int, pool: str) -> asyncio.Semaphore:
        """Return the places of a pool for questions on behalf of a client, or to a node."""
        slot = self._slots.get((key, pool))
        if slot is None:
            places = RPC_PEER_QUESTIONS_MAX
            if isinstance(key, str) and key:
                places = RPC_CALLER_QUESTIONS_MAX
            slot = self._slots[key, pool] = asyncio.Semaphore(places)
        return slot

    async def _ask(
        self,
        node: int,
        question: Question[A],
        until: float,
        late: Callable[[A], None] | None,
        places: ExitStack,
    ) -> A:
        loop = asyncio.get_running_loop()
        number = self._next
        self._next += 1
        wait_ms = max(int(1000 * (until - loop.time())), 1)
        data = _encoded(Ask(number, wait_ms, raw(question)))
        if len(data) > RPC_QUESTION_BYTES_MAX:
            text = f"a question of {len(data)} bytes, the maximum is {RPC_QUESTION_BYTES_MAX}"
            raise NoAnswerError(TOO_LARGE, text)
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting[number] = _Waiting(node, future)
        try:
            if not self._send(node, data):
                raise NoAnswerError(UNREACHABLE, f"node {node} cannot be reached")
            if late is not None:
                self._expect_late(number, _Late(node, type(question), late))
            try:
                answer = await future
            except asyncio.CancelledError:
                if not self._give_up(node, number, future):
                    loop.call_at(until, places.pop_all().close)
                raise
        finally:
            del self._waiting[number]
        if answer.failure != GONE:  # the process may be the same when it comes back
            self._late.pop(number, None)
        return self._judged(node, type(question), answer)

    def _give_up(self, node: int, number: int, future: asyncio.Future[Answer]) -> bool:
        """Stop waiting for an answer.

        Returns:
            False when the node could not be told, and works at it until its deadline.
        """
        if future.cancelled():
            return self._send(node, _encoded(Cancel(number)))
        answer = future.result()  # which came as the asker went
        if answer.failure != GONE:
            self._take_late(node, answer)
        return True

    def _judged(self, node: int, kind: type[Question[A]], answer: Answer) -> A:
        """Return the result of an answer, counted by outcome.

        Raises RpcError: it is a refusal, or NoAnswerError.
        """
        if answer.failure:
            if answer.failure in NO_ANSWER:
                raise NoAnswerError(answer.failure, answer.text)
            self.counts[REFUSED] += 1
            raise RpcError(answer.failure, answer.text, answer.detail)
        found = _result(node, kind, answer)
        self.counts[ANSWERED] += 1
        return found

    def _expect_late(self, number: int, late: _Late) -> None:
        if len(self._late) >= RPC_LATE_MAX:
            del self._late[next(iter(self._late))]
        self._late[number] = late

    def receive_answer(self, peer: int, answer: Answer) -> None:
        """Take a node's answer; one that it was not asked for, or that is late, is dropped."""
        waiting = self._waiting.get(answer.number)
        if waiting is not None and waiting.node == peer and not waiting.future.done():
            waiting.future.set_result(answer)
        elif waiting is None or waiting.future.cancelled():
            self._take_late(peer, answer)
        else:
            self.counts[LATE] += 1

    def _take_late(self, peer: int, answer: Answer) -> None:
        self.counts[LATE] += 1
        late = self._late.get(answer.number)
        if late is None or late.node != peer:
            return
        del self._late[answer.number]
        if answer.failure:
            return
        try:
            found = _result(peer, late.kind, answer)
        except NoAnswerError as error:
            LOG.warning("a late answer cannot be undone: %s", error)
        else:
            late.take(found)

    def peer_changed(self, peer: int, up: bool, boot: int) -> None:
        """End the questions to a process that has gone.

        Args:
            peer: its id.
            up: it is heard.
            boot: its boot count.
        """
        another = up and self._boots.get(peer, boot) != boot
        if up:
            self._boots[peer] = boot
            if not another:
                return
        for number, waiting in list(self._waiting.items()):
            if waiting.node == peer and not waiting.future.done():
                gone = Answer(number, failure=GONE, text=f"node {peer} went before it answered")
                waiting.future.set_result(gone)
        if another:  # a process that was out of reach only may still answer
            self._late = {n: late for n, late in self._late.items() if late.node != peer}
            self.answering.process_gone(peer)

    # Answering

    def receive_ask(self, peer: int, ask: Ask) -> None:
        """Answer a node, at once or soon; what is not understood is refused."""
        self.answering.receive_ask(peer, ask)

    def receive_cancel(self, peer: int, cancel: Cancel) -> None:
        """End the work at an answer that a node does not wait for any more."""
        self.answering.receive_cancel(peer, cancel)

    async def stop(self) -> None:
        """Stop answering."""
        await self.answering.stop()


def _encoded(payload: Payload) -> bytes:
    return ENCODER.encode(payload)


@cache
def _answers(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of the answers to a kind of question: `Question[A]` names their type."""
    [answer] = kind.__orig_bases__[0].__args__
    return decoder_of(answer)


def _result(node: int, kind: type[Question[A]], answer: Answer) -> A:
    """Return the result of an answer.

    Raises NoAnswerError: it is not understood.
    """
    try:
        found: A = _answers(kind).decode(answer.result)
    except MALFORMED as error:
        text = f"the answer of node {node} is not understood: {brief(error)}"
        raise NoAnswerError(UNKNOWN, text) from error
    return found
