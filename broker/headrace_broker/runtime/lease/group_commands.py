"""Commands of groups, which lease a queue's messages or read its archive, to wherever it is led.

They go through the queue's log and are answered by the queue's leader when they are applied:
the request number says which node asked. Each may be repeated, so a request is sent again until it
is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from headrace_broker.core.queue.command.command import ARCHIVE_KINDS
from headrace_broker.core.queue.machine.queue_machine import ARCHIVE_VERSION, LEASES_VERSION
from headrace_broker.core.queue.messages.effect import GroupAnswer
from headrace_broker.core.queue.state.archive_effect import ArchiveAnswer
from headrace_broker.core.queue.state.lease_effect import LeaseAnswer
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import LEASE_REQUESTS_MAX
from headrace_broker.model.session import session_node
from headrace_broker.runtime.contract.queue_log import TAKEN
from headrace_broker.runtime.lease import archive_wire
from headrace_broker.runtime.lease import wire as lease_wire
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.leader_client import (
    ANSWER_SECONDS_MAX,
    ATTEMPT_SECONDS,
    PAUSE_SECONDS,
    LeaderUnavailableError,
    QueueGoneError,
)
from headrace_protos.cluster.v1 import cluster_pb2 as pb


class TooEarlyError(Exception):
    """Some replicas of the queue run a release without this command."""


class GroupCommands:
    """Application of group commands, here or on other nodes.

    Args:
        node: this node's id.
        hosts: replicas on this node by group.
        locate: where the leader of a queue is, 0 for unknown.
        send: carries a payload to a node.
        exists: whether a queue, this incarnation of it, is in the catalog as applied here.
        new_number: returns a session id that was never used, to name a request by.
    """

    def __init__(
        self,
        node: int,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        send: Callable[[int, bytes], bool],
        exists: Callable[[Queue], bool],
        new_number: Callable[[], int],
    ) -> None:
        self._node = node
        self._hosts = hosts
        self._locate = locate
        self._send = send
        self._exists = exists
        self._new_number = new_number
        self._waiting: dict[int, asyncio.Future[pb.LeaseReply | GroupAnswer]] = {}
        self._slots: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    async def ask(self, queue: Queue, encode: Callable[[int], bytes]) -> GroupAnswer:
        """Have a command applied and return its answer.

        Args:
            queue: to whose groups it belongs.
            encode: returns the command with a request number.

        Raises:
            LeaderUnavailableError: no leader of the queue answered.
            QueueGoneError: the queue was deleted.
            TooEarlyError: likewise, before the last node is upgraded.
        """
        request = self._new_number()
        data = encode(request)
        slots = self._slots.get(queue.group)  # each queue its own: one may have no leader
        if slots is None:
            slots = self._slots[queue.group] = asyncio.Semaphore(LEASE_REQUESTS_MAX)
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX), slots:
                while True:
                    answer = await self._attempt(queue, request, data)
                    if answer is not None:
                        return answer
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            text = f"no leader of queue '{queue.name}' answers"
            raise LeaderUnavailableError(text) from None
        finally:
            self._waiting.pop(request, None)

    async def _attempt(self, queue: Queue, request: int, data: bytes) -> GroupAnswer | None:
        """Send a command once; None when there is no answer to it yet, for whatever reason."""
        if not self._exists(queue):
            raise QueueGoneError(f"no queue '{queue.name}' in vhost '{queue.vhost}'")
        future: asyncio.Future[pb.LeaseReply | GroupAnswer]
        future = asyncio.get_running_loop().create_future()
        self._waiting[request] = future
        host = self._hosts.get(queue.group)
        if host is not None and host.serving:
            refusal = _propose(host, request, data)
            if refusal is not None:
                future.set_result(refusal)
        else:
            target = self._locate(queue)
            command = pb.LeaseCommand(group=queue.group, request=request, data=data)
            payload = pb.ClusterPayload(lease_command=command).SerializeToString()
            if target in (0, self._node) or not self._send(target, payload):
                return None
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                answer = await future
        except TimeoutError:
            return None
        return _judge(queue, answer)

    # From the queues that are led here

    def answered(self, answer: GroupAnswer) -> None:
        """Pass on what a queue led here answers to the node that asked."""
        node = session_node(int(answer.request))
        if node == self._node:
            self._receive(int(answer.request), answer)
            return
        if isinstance(answer, ArchiveAnswer):
            reply = archive_wire.reply_of(answer)
        else:
            assert isinstance(answer, LeaseAnswer)
            reply = lease_wire.reply_of(answer)
        payload = pb.ClusterPayload(lease_reply=reply)
        self._send(node, payload.SerializeToString())  # without an answer it is asked again

    # From other nodes

    def receive_command(self, source: int, command: pb.LeaseCommand) -> None:
        """Take a command that another node asks for."""
        host = self._hosts.get(command.group)
        refusal: pb.LeaseReply | None = pb.LeaseReply(request=command.request, refused=True)
        if host is not None and host.serving:
            refusal = _propose(host, command.request, command.data)
        if refusal is not None:
            self._send(source, pb.ClusterPayload(lease_reply=refusal).SerializeToString())

    def receive_reply(self, reply: pb.LeaseReply) -> None:
        """Take another node's answer; a late one is dropped."""
        self._receive(reply.request, reply)

    def _receive(self, request: int, answer: pb.LeaseReply | GroupAnswer) -> None:
        future = self._waiting.get(request)
        if future is not None and not future.done():
            future.set_result(answer)


def _judge(queue: Queue, answer: pb.LeaseReply | GroupAnswer) -> GroupAnswer | None:
    if isinstance(answer, GroupAnswer):
        return answer
    if answer.too_early:
        text = f"queue '{queue.name}': not all of its replicas run a release that knows this"
        raise TooEarlyError(text)
    if answer.refused:
        return None
    if answer.HasField("archive_reply"):
        return archive_wire.answer_of(answer)
    return lease_wire.answer_of(answer)


def _propose(host: QueueHost, request: int, data: bytes) -> pb.LeaseReply | None:
    """Have a leading replica replicate a command; return why not, None when it does."""
    reads = len(data) > 0 and data[0] in ARCHIVE_KINDS
    if host.machine.version < (ARCHIVE_VERSION if reads else LEASES_VERSION):
        return pb.LeaseReply(request=request, refused=True, too_early=True)
    if not reads:  # who reads the archive does not use the queue
        host.use()
    if host.propose(data) != TAKEN:
        return pb.LeaseReply(request=request, refused=True)
    return None
