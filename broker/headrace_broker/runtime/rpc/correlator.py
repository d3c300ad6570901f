"""One question to one node, and its answer.

A node serves each kind of question with a handler, which returns the answer or awaits it. Whoever
asks waits until a deadline, which travels with the question: a handler that is not done by then is
cancelled, for nobody waits for it. A refusal is a value with a text (`RpcError`). An answer counts
only from the node that was asked and while it is waited for; all others are dropped. When a node
goes, or comes back as another process, nobody waits for its answers any more.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar, Union
from weakref import WeakValueDictionary

import msgspec

from headrace_broker.model.limits import (
    RPC_CALLER_QUESTIONS_MAX,
    RPC_LATE_MAX,
    RPC_PEER_QUESTIONS_MAX,
    RPC_QUESTION_OCTETS_MAX,
    RPC_SECONDS_MAX,
)
from headrace_broker.runtime.contract.payload import MALFORMED, Payload
from headrace_broker.runtime.rpc.codec import ENCODER, decoder_of
from headrace_raftlog.model.limits import PAYLOAD_BYTES_MAX

ANSWER_SECONDS_MAX: Final = 5.0  # for an answer where nothing else is said
_NUMBER_BITS: Final = 52  # of the first question's number: none is another process's

# Refusals of every kind of question, on both ends; handlers add their own.
UNREACHABLE: Final = "unreachable"  # the question did not leave
SILENT: Final = "silent"  # there was no answer in time
GONE: Final = "gone"  # the node went, or came back as another process
BUSY: Final = "busy"  # it answers as many questions as it may
UNKNOWN: Final = "unknown"  # it does not understand the question, or this node not the answer
TOO_LARGE: Final = "too_large"  # question or answer is larger than may be sent
FAILED: Final = "failed"  # the handler met a bug, or a disk that fails
NO_ANSWER: Final = (UNREACHABLE, SILENT, GONE, BUSY, UNKNOWN, TOO_LARGE, FAILED)

ANSWERED: Final = "answered"
REFUSED: Final = "refused"  # by a handler
LATE: Final = "late"  # an answer that nobody waited for
OUTCOMES: Final = (ANSWERED, REFUSED, LATE, *NO_ANSWER)

LOG: Final = logging.getLogger("headrace.cluster")

A = TypeVar("A")
Q = TypeVar("Q", bound="Question[Any]")


class Question(msgspec.Struct, Generic[A], frozen=True):
    """What a node is asked; each kind is a subclass with a tag, and names the answer's type."""


class Ask(Payload, tag="ask"):
    """A question on its way.

    Attributes:
        number: returns with the answer; 0 where nobody waits for one.
        wait_ms: how long the answer is waited for.
    """

    number: int
    wait_ms: int
    question: msgspec.Raw


class Answer(Payload, tag="answer"):
    """An answer on its way.

    Attributes:
        number: of the question.
        result: nil with a failure.
        failure: kind of the refusal, "" for none.
        text: of the refusal, for people.
        detail: a number that goes with it.
    """

    number: int
    result: msgspec.Raw = msgspec.Raw(b"\xc0")
    failure: str = ""
    text: str = ""
    detail: int = 0


class RpcError(Exception):
    """A refusal.

    Attributes:
        failure: its kind.
        detail: a number that goes with it.
    """

    def __init__(self, failure: str, text: str, detail: int = 0) -> None:
        super().__init__(text)
        self.failure = failure
        self.detail = detail


class NoAnswerError(RpcError):
    """A node gave no answer, for a reason of `NO_ANSWER`; what it did is not known."""


class _Waiting(NamedTuple):
    node: int
    future: asyncio.Future[Answer]


class _Late(NamedTuple):
    node: int
    kind: type[Question[Any]]
    take: Callable[[Any], None]


class Rpc:
    """Asks nodes, this one too, and answers them.

    Args:
        node: this node's id.
        send: carries a payload to a node; False when it did not leave.
        caller: returns the client on whose behalf the current task asks, "" for the node itself.

    Attributes:
        counts: questions to other nodes by outcome, since the start.
    """

    def __init__(
        self,
        node: int,
        send: Callable[[int, bytes], bool],
        caller: Callable[[], str] = lambda: "",
    ) -> None:
        self.node = node
        self.counts: Counter[str] = Counter()
        self._send = send
        self._caller = caller
        self._handlers: dict[type, Callable[[int, Any], Any]] = {}
        self._questions: msgspec.msgpack.Decoder[Any] | None = None
        self._next = secrets.randbits(_NUMBER_BITS) + 1
        self._waiting: dict[int, _Waiting] = {}
        self._late: dict[int, _Late] = {}  # the oldest first
        self._boots: dict[int, int] = {}
        self._slots: WeakValueDictionary[str | int, asyncio.Semaphore] = WeakValueDictionary()
        self._work: dict[int, set[asyncio.Task[None]]] = {}  # answers that are made, by asker
        self._stopped = False

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
        assert kind not in self._handlers, f"{kind.__name__} has a handler"
        self._handlers[kind] = handler
        self._questions = None

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

        Raises:
            NoAnswerError: there is no answer.
            RpcError: the handler refuses.
        """
        found: Any = None
        if node == self.node:
            found = self._handlers[type(question)](node, question)
            if not asyncio.iscoroutine(found):
                return found  # type: ignore[no-any-return]
        seconds = ANSWER_SECONDS_MAX if seconds is None else seconds
        try:
            async with asyncio.timeout(seconds) as timer:
                if node == self.node:
                    return await found  # type: ignore[no-any-return]
                async with self._slot(self._caller()), self._slot(node):
                    until = timer.when()
                    assert until is not None
                    return await self._ask(node, question, until, late)
        except TimeoutError:
            self.counts[SILENT] += 1
            text = f"node {node} does not answer within {seconds:g} s"
            raise NoAnswerError(SILENT, text) from None
        except NoAnswerError as error:
            self.counts[error.failure] += 1
            raise

    def tell(self, node: int, question: Question[Any]) -> None:
        """Ask what needs no answer; it may be lost."""
        if node == self.node:
            self._handlers[type(question)](node, question)
        else:
            self._send(node, _encoded(Ask(0, 0, _raw(question))))

    def _slot(self, key: str | int) -> asyncio.Semaphore:
        """Return the places for questions on behalf of a client, or to a node."""
        slots = self._slots.get(key)
        if slots is None:
            places = RPC_PEER_QUESTIONS_MAX
            if isinstance(key, str) and key:
                places = RPC_CALLER_QUESTIONS_MAX
            slots = self._slots[key] = asyncio.Semaphore(places)
        return slots

    async def _ask(
        self,
        node: int,
        question: Question[A],
        until: float,
        late: Callable[[A], None] | None,
    ) -> A:
        loop = asyncio.get_running_loop()
        number = self._next
        self._next += 1
        wait_ms = max(int(1000 * (until - loop.time())), 1)
        data = _encoded(Ask(number, wait_ms, _raw(question)))
        if len(data) > RPC_QUESTION_OCTETS_MAX:
            text = f"a question of {len(data)} bytes, the maximum is {RPC_QUESTION_OCTETS_MAX}"
            raise NoAnswerError(TOO_LARGE, text)
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting[number] = _Waiting(node, future)
        try:
            if not self._send(node, data):
                raise NoAnswerError(UNREACHABLE, f"node {node} cannot be reached")
            if late is not None:
                self._expect_late(number, _Late(node, type(question), late))
            answer = await future
            self._late.pop(number, None)
        finally:
            del self._waiting[number]
        return self._judged(node, type(question), answer)

    def _judged(self, node: int, kind: type[Question[A]], answer: Answer) -> A:
        """Return what an answer says.

        Raises:
            RpcError: it is a refusal, or NoAnswerError.
        """
        if answer.failure:
            if answer.failure in NO_ANSWER:
                raise NoAnswerError(answer.failure, answer.text)
            self.counts[REFUSED] += 1
            raise RpcError(answer.failure, answer.text, answer.detail)
        try:
            found: A = _answers(kind).decode(answer.result)
        except MALFORMED as error:
            text = f"the answer of node {node} is not understood: {error}"
            raise NoAnswerError(UNKNOWN, text) from error
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
            return
        self.counts[LATE] += 1
        late = self._late.get(answer.number)
        if waiting is None and late is not None and late.node == peer:
            del self._late[answer.number]
            if not answer.failure:
                late.take(self._judged(peer, late.kind, answer))

    def peer_changed(self, peer: int, up: bool, boot: int) -> None:
        """A node came or went: a process that is gone does not answer.

        Args:
            peer: its id.
            up: it is heard.
            boot: its boot count.
        """
        if up and self._boots.get(peer, boot) == boot:
            self._boots[peer] = boot
            return
        self._boots.pop(peer, None)
        if up:
            self._boots[peer] = boot
        for number, waiting in list(self._waiting.items()):
            if waiting.node == peer and not waiting.future.done():
                gone = Answer(number, failure=GONE, text=f"node {peer} went before it answered")
                waiting.future.set_result(gone)
        for number, late in list(self._late.items()):
            if late.node == peer:
                del self._late[number]

    # Answering

    def receive_ask(self, peer: int, ask: Ask) -> None:
        """Answer a node, at once or soon; what is not understood is refused."""
        if self._stopped:
            return
        try:
            self._check_busy(peer)
            question = self._decoded(ask.question)
            found = self._handlers[type(question)](peer, question)
        except RpcError as error:
            self._refuse(peer, ask.number, error)
            return
        except Exception as error:
            LOG.exception("a question of node %d failed", peer)
            self._refuse(peer, ask.number, self._failed(error))
            return
        if asyncio.iscoroutine(found):
            self._begin(peer, ask, found)
        else:
            self._reply(peer, ask.number, found)

    def _check_busy(self, peer: int) -> None:
        """Refuse a node that does not bound its questions.

        Raises:
            RpcError: BUSY.
        """
        if len(self._work.get(peer, ())) >= RPC_PEER_QUESTIONS_MAX:
            text = f"node {self.node} answers as many questions of node {peer} as it may"
            raise RpcError(BUSY, text)

    def _decoded(self, question: msgspec.Raw) -> Question[Any]:
        """Return a question.

        Raises:
            RpcError: it is too large, or not understood.
        """
        if len(question) > RPC_QUESTION_OCTETS_MAX:
            raise RpcError(
                TOO_LARGE, f"node {self.node} takes no question of {len(question)} bytes"
            )
        if self._questions is None:
            self._questions = msgspec.msgpack.Decoder(Union[tuple(self._handlers)])  # noqa: UP007
        try:
            found: Question[Any] = self._questions.decode(question)
        except MALFORMED as error:
            text = f"node {self.node} does not understand the question: {error}"
            raise RpcError(UNKNOWN, text) from error
        return found

    def _begin(self, peer: int, ask: Ask, work: Coroutine[Any, Any, Any]) -> None:
        tasks = self._work.setdefault(peer, set())
        task = asyncio.get_running_loop().create_task(self._answer(peer, ask, work))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _answer(self, peer: int, ask: Ask, work: Coroutine[Any, Any, Any]) -> None:
        try:
            async with asyncio.timeout(min(ask.wait_ms / 1000, RPC_SECONDS_MAX)):
                found = await work
        except TimeoutError:
            return  # nobody waits any more
        except RpcError as error:
            self._refuse(peer, ask.number, error)
            return
        except Exception as error:
            LOG.exception("a question of node %d failed", peer)
            self._refuse(peer, ask.number, self._failed(error))
            return
        self._reply(peer, ask.number, found)

    def _failed(self, error: Exception) -> RpcError:
        return RpcError(FAILED, f"node {self.node} failed: {type(error).__name__}: {error}")

    def _refuse(self, peer: int, number: int, error: RpcError) -> None:
        text, detail = str(error), error.detail
        self._put(peer, Answer(number, failure=error.failure, text=text, detail=detail))

    def _reply(self, peer: int, number: int, result: object) -> None:
        self._put(peer, Answer(number, _raw(result)))

    def _put(self, peer: int, answer: Answer) -> None:
        if not answer.number:
            return
        data = _encoded(answer)
        if len(data) > PAYLOAD_BYTES_MAX:
            text = f"an answer of {len(data)} bytes, the maximum is {PAYLOAD_BYTES_MAX}"
            data = _encoded(Answer(answer.number, failure=TOO_LARGE, text=text))
        if not self._send(peer, data):
            LOG.info("answer to node %d dropped: it is down or its outbox is full", peer)

    async def stop(self) -> None:
        """Stop answering."""
        self._stopped = True
        tasks = [task for tasks in self._work.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _raw(value: Any) -> msgspec.Raw:
    """Return a value as a field that is encoded in place: a copy less of what is large."""
    return value  # type: ignore[no-any-return]


def _encoded(payload: Payload) -> bytes:
    return ENCODER.encode(payload)


@cache
def _answers(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of the answers to a kind of question: `Question[A]` names their type."""
    [answer] = kind.__orig_bases__[0].__args__
    return decoder_of(answer)
