"""Answers to other nodes' questions, at once or by a task that ends at the asker's deadline."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, TypeVar, Union

import msgspec

from headrace_broker.model.limits import (
    RPC_PEER_QUESTIONS_MAX,
    RPC_QUESTION_BYTES_MAX,
    RPC_SECONDS_MAX,
)
from headrace_broker.runtime.contract.payload import MALFORMED, brief
from headrace_broker.runtime.rpc.codec import ENCODER
from headrace_broker.runtime.rpc.protocol import (
    BUSY,
    FAILED,
    TOO_LARGE,
    UNKNOWN,
    Answer,
    Ask,
    Cancel,
    Question,
    RpcError,
)
from headrace_raftlog.model.limits import PAYLOAD_BYTES_MAX

LOG: Final = logging.getLogger("headrace.cluster")

Q = TypeVar("Q", bound=Question[Any])
Work = Coroutine[Any, Any, Any]


def raw(value: Any) -> msgspec.Raw:
    """Return a value as a field that is encoded in place: a copy less of what is large."""
    return value  # type: ignore[no-any-return]


class Answering:
    """Calls handlers and sends their answers."""

    def __init__(self, node: int, send: Callable[[int, bytes], bool]) -> None:
        self.handlers: dict[type, Callable[[int, Any], Any]] = {}  # by kind of question
        self._node = node  # this node's id
        self._send = send  # carries a payload to a node; False when it did not leave
        self._questions: msgspec.msgpack.Decoder[Any] | None = None
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}  # by asker and number
        self._places: Counter[tuple[int, str]] = Counter()  # taken, by asker and pool
        self._unnumbered = 0
        self._stopped = False

    def serve(self, kind: type[Q], handler: Callable[[int, Q], Any]) -> None:
        """Answer one kind of question from now on; see `Rpc.serve`."""
        assert kind not in self.handlers, f"{kind.__name__} has a handler"
        self.handlers[kind] = handler
        self._questions = None

    def receive_ask(self, peer: int, ask: Ask) -> None:
        """Answer a node, at once or soon; what is not understood is refused."""
        if self._stopped:
            return
        try:
            question = self._decoded(ask.question)
            found = self.handlers[type(question)](peer, question)
            if asyncio.iscoroutine(found):
                self._begin(peer, ask, question.pool, found)
                return
            data = self._encoded(ask.number, found)
        except RpcError as error:
            data = _refusal(ask.number, error)
        except Exception as error:
            LOG.exception("a question of node %d failed", peer)
            data = _refusal(ask.number, self._failed(error))
        self._put(peer, ask.number, data)

    def receive_cancel(self, peer: int, cancel: Cancel) -> None:
        """End the work at an answer that nobody waits for any more."""
        task = self._tasks.get((peer, cancel.number))
        if task is not None:
            task.cancel()

    def process_gone(self, peer: int) -> None:
        """End all work for a node that is another process now."""
        for (asker, _), task in list(self._tasks.items()):
            if asker == peer:
                task.cancel()

    async def stop(self) -> None:
        """Answer nobody any more."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _decoded(self, question: msgspec.Raw) -> Question[Any]:
        """Return a question.

        Raises RpcError: it is too large, or not understood.
        """
        if len(question) > RPC_QUESTION_BYTES_MAX:
            raise RpcError(
                TOO_LARGE, f"node {self._node} takes no question of {len(question)} bytes"
            )
        if self._questions is None:
            self._questions = msgspec.msgpack.Decoder(Union[tuple(self.handlers)])  # noqa: UP007
        try:
            found: Question[Any] = self._questions.decode(question)
        except MALFORMED as error:
            text = f"node {self._node} does not understand the question: {brief(error)}"
            raise RpcError(UNKNOWN, text) from error
        return found

    def _begin(self, peer: int, ask: Ask, pool: str, work: Work) -> None:
        """Answer in a task.

        Raises RpcError: BUSY, the node does not bound its questions.
        """
        taken = (peer, pool)
        if self._places[taken] >= RPC_PEER_QUESTIONS_MAX:
            work.close()
            text = f"node {self._node} answers as many questions of node {peer} as it may"
            raise RpcError(BUSY, text)
        key = (peer, ask.number)
        if not ask.number or key in self._tasks:
            self._unnumbered -= 1
            key = (peer, self._unnumbered)

        def end(_: asyncio.Task[None]) -> None:
            work.close()  # in case it never began
            del self._tasks[key]
            self._places[taken] -= 1

        answer = self._answer(peer, ask, work)
        # In nobody's name: who asks is on another node.
        task = asyncio.get_running_loop().create_task(answer, context=Context())
        self._tasks[key] = task
        self._places[taken] += 1
        task.add_done_callback(end)

    async def _answer(self, peer: int, ask: Ask, work: Work) -> None:
        timer = asyncio.timeout(min(ask.wait_ms / 1000, RPC_SECONDS_MAX))
        try:
            async with timer:
                found = await work
            data = self._encoded(ask.number, found)
        except RpcError as error:
            data = _refusal(ask.number, error)
        except Exception as error:
            if isinstance(error, TimeoutError) and timer.expired():
                return  # nobody waits any more
            LOG.exception("a question of node %d failed", peer)
            data = _refusal(ask.number, self._failed(error))
        self._put(peer, ask.number, data)

    def _encoded(self, number: int, result: object) -> bytes:
        """Return an answer as it travels.

        Raises RpcError: it is too large.
        """
        data = ENCODER.encode(Answer(number, raw(result)))
        if len(data) > PAYLOAD_BYTES_MAX:
            text = f"an answer of {len(data)} bytes, the maximum is {PAYLOAD_BYTES_MAX}"
            raise RpcError(TOO_LARGE, text)
        return data

    def _failed(self, error: Exception) -> RpcError:
        return RpcError(FAILED, f"node {self._node} failed: {type(error).__name__}: {brief(error)}")

    def _put(self, peer: int, number: int, data: bytes) -> None:
        if number and not self._send(peer, data):
            LOG.info("answer to node %d dropped: it is down or its outbox is full", peer)


def _refusal(number: int, error: RpcError) -> bytes:
    """Return a refusal as it travels."""
    text = str(error).encode("utf-8", "replace").decode()  # it may quote any bytes
    answer = Answer(number, failure=error.failure, text=text, detail=error.detail)
    return ENCODER.encode(answer)
