"""Carries questions about telemetry logs to the nodes that have them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from headrace_broker.model.limits import EXPORT_QUESTIONS_MAX
from headrace_broker.runtime.export.log import ExportError, ShardUnavailableError
from headrace_broker.runtime.telemetry.question import (
    Answer,
    Question,
    Result,
    decode_answer,
    decode_question,
    encode_error,
    encode_question,
    encode_result,
    result_of,
)
from headrace_protos.cluster.v1.cluster_pb2 import ClusterPayload

ANSWER_SECONDS_MAX: Final = 10.0  # then a node counts as not answering; a slow disk takes seconds

log = logging.getLogger("headrace.node")


class TelemetryClient:
    """Asks other nodes, and answers them.

    Args:
        send: carries a payload to a node; False when it did not leave.
        answer: answers a question about this node's logs.
    """

    def __init__(
        self,
        send: Callable[[int, bytes], bool],
        answer: Callable[[Question], Awaitable[Result]],
    ) -> None:
        self._send = send
        self._answer = answer
        self._next = 1
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, node: int, question: Question) -> Any:
        """Return what a node answers, as `question.result_of`.

        Raises:
            ExportError: that which it answers; ShardUnavailableError where it does not.
        """
        number = self._next
        self._next += 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        payload = ClusterPayload(export_question=encode_question(number, question))
        try:
            if not self._send(node, payload.SerializeToString()):
                raise ShardUnavailableError("its node cannot be reached")
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                answer = await future
        except TimeoutError:
            raise ShardUnavailableError("its node does not answer") from None
        finally:
            del self._waiting[number]
        return result_of(question, answer)

    def receive_question(self, source: int, data: bytes) -> None:
        """Answer another node, soon.

        Raises:
            msgspec.DecodeError: it asks what this node does not understand.
        """
        envelope = decode_question(data)
        if len(self._tasks) >= EXPORT_QUESTIONS_MAX:
            busy = ShardUnavailableError("its node answers as many questions as it may")
            self._tell(source, encode_error(envelope.request, busy))
            return
        work = self._work(source, envelope.request, envelope.question)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, source: int, request: int, question: Question) -> None:
        try:
            self._tell(source, encode_result(request, await self._answer(question)))
        except ExportError as error:
            self._tell(source, encode_error(request, error))
        except Exception:
            log.exception("telemetry request of node %d failed", source)

    def _tell(self, source: int, data: bytes) -> None:
        if not self._send(source, ClusterPayload(export_answer=data).SerializeToString()):
            log.info("answer to node %d dropped: it is down or its outbox is full", source)

    def receive_answer(self, data: bytes) -> None:
        """Receive another node's answer; drop it if the request was given up.

        Raises:
            msgspec.DecodeError: it is no answer.
        """
        answer = decode_answer(data)
        future = self._waiting.get(answer.request)
        if future is not None and not future.done():
            future.set_result(answer)

    async def stop(self) -> None:
        """Stop answering."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
