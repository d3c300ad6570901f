"""Direct reply-to: messages straight to a waiting channel, on this node or another, by no queue.

A consumer of replies has a name that only those learn whom it writes to: REPLY_PREFIX, its node's
id, a dot and random characters. A reply that does not find it is gone, as RabbitMQ has it: this
channel has ended, its client does not read, or the link between the nodes is down or full.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from headrace_broker.model.limits import REPLY_PROBE_SECONDS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_queue import REPLY_PREFIX
from headrace_broker.runtime.broker_port import ReplyListener
from headrace_protos.cluster.v1.cluster_pb2 import (
    ClusterPayload,
    Reply,
    ReplyAlive,
    ReplyProbe,
)

_TOKEN_OCTETS: Final = 16  # random octets of a name, which cannot be guessed
NODE_DIGITS_MAX: Final = 4  # of a node id


class Replies:
    """Consumers of replies on this node, and the way to those on others.

    Args:
        node: id of this node.
        send: carries a payload to a node; False when it is lost.
    """

    def __init__(self, node: int, send: Callable[[int, bytes], bool]) -> None:
        self._node = node
        self._send = send
        self._listeners: dict[str, ReplyListener] = {}
        self._asked: dict[int, asyncio.Future[bool]] = {}  # at most one a channel
        self._next_request = 1

    def open(self, listener: ReplyListener) -> str:
        """Register a listener under a unique name."""
        token = f"{self._node}.{secrets.token_urlsafe(_TOKEN_OCTETS)}"
        self._listeners[token] = listener
        return REPLY_PREFIX + token

    def close(self, name: str) -> None:
        """Forget a listener by the name it was given."""
        del self._listeners[name.removeprefix(REPLY_PREFIX)]

    def send(self, name: str, publish: Publish) -> bool:
        """Hand a message to whom a name belongs; False when it is known not to arrive."""
        token = name.removeprefix(REPLY_PREFIX)
        node = _node_of(token)
        if node != self._node:
            return node > 0 and self._put(node, ClusterPayload(reply=_encode(token, publish)))
        return self._deliver(token, publish)

    def _deliver(self, token: str, publish: Publish) -> bool:
        listener = self._listeners.get(token)
        if listener is None:
            return False
        listener.on_reply(publish)
        return True

    async def exists(self, name: str) -> bool:
        """Return whether the consumer that a name belongs to is there; False without an answer."""
        token = name.removeprefix(REPLY_PREFIX)
        node = _node_of(token)
        if node == self._node:
            return token in self._listeners
        if node == 0:
            return False
        request = self._next_request
        self._next_request += 1
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked[request] = answer
        try:
            probe = ReplyProbe(request=request, token=token)
            if not self._put(node, ClusterPayload(reply_probe=probe)):
                return False
            async with asyncio.timeout(REPLY_PROBE_SECONDS_MAX):
                return await answer
        except TimeoutError:
            return False
        finally:
            del self._asked[request]

    # From other nodes

    def receive_reply(self, reply: Reply) -> None:
        """Deliver a reply from another node."""
        publish = Publish(0, reply.route, False, False, reply.properties, reply.body)
        self._deliver(reply.token, publish)

    def receive_probe(self, peer: int, probe: ReplyProbe) -> None:
        """Answer whether a consumer is there."""
        alive = ReplyAlive(request=probe.request, alive=probe.token in self._listeners)
        self._put(peer, ClusterPayload(reply_alive=alive))

    def receive_alive(self, answer: ReplyAlive) -> None:
        """Receive the answer to a question; drop it if the question was given up."""
        waiting = self._asked.get(answer.request)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer.alive)

    def _put(self, node: int, payload: ClusterPayload) -> bool:
        return self._send(node, payload.SerializeToString())


def _encode(token: str, publish: Publish) -> Reply:
    return Reply(token=token, route=publish.route, properties=publish.properties, body=publish.body)


def _node_of(token: str) -> int:
    """Return the node id in a token that a client sent, 0 where there is none."""
    number = token.partition(".")[0]
    if not token.isascii() or not number.isdecimal() or len(number) > NODE_DIGITS_MAX:
        return 0
    return int(number)
