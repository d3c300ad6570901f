"""Questions that one node asks another about its client connections and its flow control."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from headrace_broker.model.limits import ANSWER_OCTETS_MAX, FLOW_ROWS_MAX, QUESTIONS_MAX
from headrace_protos.cluster.v1.cluster_pb2 import ClusterPayload

ANSWER_SECONDS_MAX: Final = 5.0  # then a node counts as not answering

log = logging.getLogger("headrace.cluster")


class List(msgspec.Struct, frozen=True, tag="list"):
    """Which connections have you, or which channels?

    Attributes:
        channels: channels with their consumers are wanted.
        skip: rows that the asker has already.
    """

    channels: bool = False
    skip: int = 0


class Close(msgspec.Struct, frozen=True, tag="close"):
    """Close the connections with this name or id.

    Attributes:
        reason: for the client.
    """

    name: str
    reason: str


class Flow(msgspec.Struct, frozen=True, tag="flow"):
    """Request stopped publishers, and debts by account.

    Attributes:
        parts: kinds of rows that are wanted: tags of `model.flow_status.FlowRow`.
        name: of connections whose name, id or own name is this or begins so; "" for all.
        group: only what concerns this queue, 0 for all.
        moving: only queues that move, or withhold confirms.
        stopped: only connections that something stops, in any order, and queues that withhold
            confirms or are among `groups`.
        groups: see `stopped`.
        rows_max: most rows of each kind.
        skip: rows that the asker has already.
    """

    parts: tuple[str, ...]
    name: str = ""
    group: int = 0
    moving: bool = False
    stopped: bool = False
    groups: tuple[int, ...] = ()
    rows_max: int = FLOW_ROWS_MAX
    skip: int = 0


class Leads(msgspec.Struct, frozen=True, tag="leads"):
    """Which queues do you lead, and who else could?

    Attributes:
        skip: rows that the asker has already.
    """

    skip: int = 0


class Replicas(msgspec.Struct, frozen=True, tag="replicas"):
    """Request the leader's knowledge of a queue's replicas.

    Attributes:
        skip: rows that the asker has already.
    """

    group: int
    skip: int = 0


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Request the numbers of led queues and of clients.

    Attributes:
        skip: rows that the asker has already.
    """

    skip: int = 0


class Transfer(msgspec.Struct, frozen=True, tag="transfer"):
    """Begin to hand the leadership of a queue over to a node.

    Attributes:
        by_hand: somebody chose that node; it is told as well, and is to keep the queue for a while.
    """

    group: int
    node: int
    by_hand: bool = False


class Login(msgspec.Struct, frozen=True, tag="login"):
    """Request the owner of a log-in at the node's web page.

    Attributes:
        digest: SHA-256 of its token.
        end: and it ends now.
    """

    digest: bytes
    end: bool = False


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    """Request the figures of a node, and of the queues that it leads.

    Attributes:
        node: the node itself is wanted.
        groups: queues that are wanted, None for all that have moved within an hour.
        vhosts: all vhosts in which something has moved within an hour are wanted.
        exchanges: exchanges that are wanted, by vhost and name; None for all, as vhosts.
        age_ms: how far back samples go, 0 for none.
        step_ms: least time between samples.
        skip: rows that the asker has already.
    """

    node: bool = False
    groups: tuple[int, ...] | None = ()
    age_ms: int = 0
    step_ms: int = 0
    skip: int = 0
    vhosts: bool = False
    exchanges: tuple[tuple[str, str], ...] | None = ()


class LeaseGroups(msgspec.Struct, frozen=True, tag="lease_groups"):
    """Which groups lease messages of the queues that you lead?

    Attributes:
        skip: rows that the asker has already.
    """

    skip: int = 0


class Archives(msgspec.Struct, frozen=True, tag="archives"):
    """Which of the queues that you lead have an archive, and who reads it?

    Attributes:
        skip: rows that the asker has already.
    """

    skip: int = 0


Listing = List | Flow | Leads | Load | Replicas | Stats | LeaseGroups | Archives
Question = Listing | Close | Login | Transfer


class Envelope(msgspec.Struct, frozen=True):
    """A question on its way."""

    request: int
    question: Question


class Answer(msgspec.Struct, frozen=True):
    """Answer of a node.

    Attributes:
        request: number of the question.
        rows: of a listing.
        left_out: rows among these that are too large to be sent.
        more: there are rows after these.
        count: of connections that were closed.
    """

    request: int
    rows: list[msgspec.Raw] = []
    left_out: int = 0
    more: bool = False
    count: int = 0


class NoAnswerError(Exception):
    """A node is down, or did not answer in time."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_QUESTIONS: Final = msgspec.msgpack.Decoder(Envelope)
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)


class Inquiries:
    """Asks other nodes, and answers them.

    Args:
        send: carries a payload to a node; False when it did not leave.
        rows: this node's rows of a listing, one after the other as they are needed.
        close: closes connections on this node and returns how many.

    Attributes:
        flow_rows: as `rows`, for questions about flow control.
        replica_rows: as `rows`, for questions about replicas and leaders.
        stats_rows: as `rows`, for questions about figures over time.
        lease_rows: as `rows`, for questions about groups that lease messages.
        archive_rows: as `rows`, for questions about archives.
        transfer: begins to hand a leadership over, and returns whether it did.
        login_rows: likewise, for those about log-ins at the web page.
    """

    def __init__(
        self,
        send: Callable[[int, bytes], bool],
        rows: Callable[[List], Iterator[msgspec.Struct]],
        close: Callable[[Close], int],
    ) -> None:
        self.flow_rows: Callable[[Flow], Iterator[msgspec.Struct]] = _nothing
        self.replica_rows: Callable[[Leads | Load | Replicas], Iterator[msgspec.Struct]] = _nothing
        self.stats_rows: Callable[[Stats], Iterator[msgspec.Struct]] = _nothing
        self.lease_rows: Callable[[LeaseGroups], Iterator[msgspec.Struct]] = _nothing
        self.archive_rows: Callable[[Archives], Iterator[msgspec.Struct]] = _nothing
        self.transfer: Callable[[Transfer], bool] = _refuse
        self.login_rows: Callable[[Login], Iterator[msgspec.Struct]] = _nothing
        self._send = send
        self._rows = rows
        self._close = close
        self._next = 1
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._slots = asyncio.Semaphore(QUESTIONS_MAX)

    async def close(self, node: int, question: Close) -> int:
        """Have a node close connections; returns how many there were.

        Raises:
            NoAnswerError: it did not answer; whether it closed something is not known.
        """
        return (await self._ask(node, question)).count

    async def hand_over(self, node: int, question: Transfer) -> bool:
        """Have a node begin to hand a leadership over; returns whether it did.

        Raises:
            NoAnswerError: it did not answer; it may have begun.
        """
        return (await self._ask(node, question)).count > 0

    async def rows(
        self, node: int, question: Listing, kind: Any, rows_max: int
    ) -> tuple[list[Any], int]:
        """Return a node's rows, at most `rows_max`, and how many were too large to be sent.

        Connections come and go meanwhile: one may be missed, or be in the list twice.

        Args:
            node: who is asked.
            question: about all rows.
            kind: type of a row.
            rows_max: most rows.

        Raises:
            NoAnswerError: it did not answer.
        """
        found: list[Any] = []
        left_out = 0
        while len(found) < rows_max:
            following = msgspec.structs.replace(question, skip=len(found) + left_out)
            answer = await self._ask(node, following)
            found += [msgspec.msgpack.decode(row, type=kind) for row in answer.rows]
            left_out += answer.left_out
            if not answer.more or not (answer.rows or answer.left_out):
                break
        return found[:rows_max], left_out

    async def login(self, node: int, question: Login, kind: Any) -> Any:
        """Return what a node knows of a log-in at its web page, None where it knows none.

        Raises:
            NoAnswerError: it did not answer.
        """
        answer = await self._ask(node, question)
        return msgspec.msgpack.decode(answer.rows[0], type=kind) if answer.rows else None

    async def _ask(self, node: int, question: Question) -> Answer:
        async with self._slots:
            number = self._next
            self._next += 1
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._waiting[number] = future
            data = _ENCODER.encode(Envelope(number, question))
            try:
                if not self._send(node, ClusterPayload(question=data).SerializeToString()):
                    raise NoAnswerError(f"node {node} cannot be reached")
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    return await future
            except TimeoutError:
                raise NoAnswerError(f"node {node} does not answer") from None
            finally:
                del self._waiting[number]

    def receive_question(self, source: int, data: bytes) -> None:
        """Answer another node.

        Raises:
            msgspec.DecodeError: it asks what this node does not understand.
        """
        envelope = _QUESTIONS.decode(data)
        question = envelope.question
        if isinstance(question, Close):
            answer = Answer(envelope.request, count=self._close(question))
        elif isinstance(question, Transfer):
            answer = Answer(envelope.request, count=int(self.transfer(question)))
        elif isinstance(question, Login):
            rows, left_out, _ = _page(self.login_rows(question))
            answer = Answer(envelope.request, rows, left_out)
        else:
            every = self._every(question)
            rows, left_out, more = _page(islice(every, question.skip, None))
            answer = Answer(envelope.request, rows, left_out, more)
        payload = ClusterPayload(answer=_ENCODER.encode(answer))
        if not self._send(source, payload.SerializeToString()):
            log.info("answer to node %d dropped: it is down or its outbox is full", source)

    def _every(self, question: Listing) -> Iterator[msgspec.Struct]:
        if isinstance(question, Flow):
            return self.flow_rows(question)
        if isinstance(question, Leads | Load | Replicas):
            return self.replica_rows(question)
        if isinstance(question, Stats):
            return self.stats_rows(question)
        if isinstance(question, LeaseGroups):
            return self.lease_rows(question)
        if isinstance(question, Archives):
            return self.archive_rows(question)
        return self._rows(question)

    def receive_answer(self, data: bytes) -> None:
        """Receive another node's answer; drop it if the request was given up.

        Raises:
            msgspec.DecodeError: it is no answer.
        """
        answer = _ANSWERS.decode(data)
        future = self._waiting.get(answer.request)
        if future is not None and not future.done():
            future.set_result(answer)


def _nothing(question: Question) -> Iterator[msgspec.Struct]:
    return iter(())


def _refuse(question: Transfer) -> bool:
    return False


def _page(rows: Iterable[msgspec.Struct]) -> tuple[list[msgspec.Raw], int, bool]:
    """Return the first rows, as many as fit into an answer.

    Returns:
        The rows, how many among them were left out for their size, and whether more follow.
    """
    taken: list[msgspec.Raw] = []
    octets = left_out = 0
    for row in rows:
        encoded = _ENCODER.encode(row)
        if len(encoded) > ANSWER_OCTETS_MAX:
            left_out += 1
            continue
        octets += len(encoded)
        if octets > ANSWER_OCTETS_MAX:
            return taken, left_out, True
        taken.append(msgspec.Raw(encoded))
    return taken, left_out, False
