"""Nodes that ask each other, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from headrace_broker.runtime.contract.payload import Payload
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import Answer, Ask, Cancel

DECODER: msgspec.msgpack.Decoder[Ask | Answer | Cancel] = msgspec.msgpack.Decoder(
    Ask | Answer | Cancel
)


def kind_of(payload: Payload) -> str:
    """Return the tag of a question, "answer" or "cancel"."""
    if isinstance(payload, Ask):
        question: dict[str, Any] = msgspec.msgpack.decode(payload.question)
        return str(question["type"])
    return str(payload.__struct_config__.tag)


class Links:
    """The links between nodes; a payload arrives within the call that sends it.

    Attributes:
        down: nodes to which nothing can be sent.
        deaf: nodes that never answer.
        soon: payloads arrive in the next turn of the loop.
        held: payloads wait for `carry`.
        late: nodes whose payloads do so.
        lost: kinds of payloads of which the next one is lost.
        sent: source, target and kind of all payloads.
        rpcs: by node.
    """

    def __init__(self, nodes: Iterable[int], soon: bool = False, held: bool = False) -> None:
        self.down: set[int] = set()
        self.deaf: set[int] = set()
        self.soon = soon
        self.held = held
        self.late: set[int] = set()
        self.lost: list[str] = []
        self.sent: list[tuple[int, int, str]] = []
        self._held: list[tuple[int, int, bytes]] = []
        self.rpcs = {node: Rpc(node, self._sender(node)) for node in nodes}

    def _sender(self, source: int) -> Callable[[int, bytes], bool]:
        return lambda target, data: self._send(source, target, data)

    def _send(self, source: int, target: int, data: bytes) -> bool:
        if target in self.down:
            return False
        kind = kind_of(DECODER.decode(data))
        self.sent.append((source, target, kind))
        if target in self.deaf:
            return True
        if kind in self.lost:
            self.lost.remove(kind)
        elif self.held or source in self.late:
            self._held.append((source, target, data))
        elif self.soon:
            asyncio.get_running_loop().call_soon(self.deliver, source, target, data)
        else:
            self.deliver(source, target, data)
        return True

    def deliver(self, source: int, target: int, data: bytes) -> None:
        payload = DECODER.decode(data)
        if isinstance(payload, Ask):
            self.rpcs[target].receive_ask(source, payload)
        elif isinstance(payload, Cancel):
            self.rpcs[target].receive_cancel(source, payload)
        else:
            self.rpcs[target].receive_answer(source, payload)

    def carry(self) -> None:
        """Deliver what is held."""
        held, self._held = self._held, []
        for each in held:
            self.deliver(*each)
