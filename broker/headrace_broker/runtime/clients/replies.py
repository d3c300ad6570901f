"""Direct reply-to: messages straight to a waiting channel, on this node or another, by no queue.

A consumer of replies has a name that only those learn whom it writes to: REPLY_PREFIX, its node's
id, a dot and random characters. A reply that does not find it is gone, as RabbitMQ has it: this
channel has ended, its client does not read, or the link between the nodes is down or full.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from headrace_broker.model.limits import REPLY_PROBE_SECONDS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_queue import REPLY_PREFIX
from headrace_broker.runtime.contract.payload import Payload, encode
from headrace_broker.runtime.contract.port import ReplyListener
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import Question, RpcError

_TOKEN_BYTES: Final = 16  # random bytes of a name, which cannot be guessed
NODE_DIGITS_MAX: Final = 4  # of a node id


class Reply(Payload, tag="reply"):
    """A message for a direct reply-to consumer of the node that it is sent to."""

    token: str
    route: bytes
    properties: bytes
    body: bytes


class Listens(Question[bool], frozen=True, tag="listens"):
    """Does this direct reply-to consumer still listen?"""

    token: str


class Replies:
    """Consumers of replies on this node, and the way to those on others."""

    def __init__(self, rpc: Rpc, send: Callable[[int, bytes], bool]) -> None:
        self._rpc = rpc  # asks nodes
        self._node = rpc.node
        self._send = send  # carries a payload to a node; False when it is lost
        self._listeners: dict[str, ReplyListener] = {}
        rpc.serve(Listens, lambda _, question: question.token in self._listeners)

    def open(self, listener: ReplyListener) -> str:
        """Return a name under which direct replies reach a listener, from all nodes."""
        token = f"{self._node}.{secrets.token_urlsafe(_TOKEN_BYTES)}"
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
            reply = Reply(token, publish.route, publish.properties, publish.body)
            return node > 0 and self._send(node, encode(reply))
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
        if node == 0:
            return False
        try:
            return await self._rpc.ask(node, Listens(token), REPLY_PROBE_SECONDS_MAX)
        except RpcError:
            return False

    # From other nodes

    def receive_reply(self, reply: Reply) -> None:
        """Deliver a reply from another node."""
        publish = Publish(0, reply.route, False, False, reply.properties, reply.body)
        self._deliver(reply.token, publish)


def _node_of(token: str) -> int:
    """Return the node id in a token that a client sent, 0 where there is none."""
    number = token.partition(".")[0]
    if not token.isascii() or not number.isdecimal() or len(number) > NODE_DIGITS_MAX:
        return 0
    return int(number)
