"""Direct replies on one node and between two."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

import msgspec
import pytest

from headrace_broker.model.message import Publish
from headrace_broker.model.reply_queue import REPLY_PREFIX
from headrace_broker.runtime.clients import replies
from headrace_broker.runtime.clients.replies import Replies, Reply
from headrace_broker.runtime.contract.port import ReplyListener
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import Answer, Ask, Cancel


class Listener(ReplyListener):
    def __init__(self) -> None:
        self.heard: list[Publish] = []

    def on_reply(self, publish: Publish) -> None:
        self.heard.append(publish)


class Pair:
    """Nodes 1 and 2, and the payloads between them."""

    def __init__(self) -> None:
        self.up = True
        self.under_way: deque[tuple[int, int, bytes]] = deque()
        self.nodes: dict[int, Replies] = {}
        self.rpcs: dict[int, Rpc] = {}
        for node in (1, 2):
            send = partial(self._send, node)
            self.rpcs[node] = Rpc(node, send)
            self.nodes[node] = Replies(self.rpcs[node], send)

    def _send(self, origin: int, to: int, data: bytes) -> bool:
        if not self.up or to not in self.nodes:
            return False
        self.under_way.append((origin, to, data))
        return True

    def carry(self) -> None:
        while self.under_way:
            origin, to, data = self.under_way.popleft()
            payload = msgspec.msgpack.decode(data, type=Reply | Ask | Answer | Cancel)
            if isinstance(payload, Reply):
                self.nodes[to].receive_reply(payload)
            elif isinstance(payload, Ask):
                self.rpcs[to].receive_ask(origin, payload)
            elif isinstance(payload, Cancel):
                self.rpcs[to].receive_cancel(origin, payload)
            else:
                self.rpcs[to].receive_answer(origin, payload)


@pytest.fixture
def pair() -> Pair:
    return Pair()


MESSAGE = Publish(3, b"\x00\x01k", False, False, b"\x02\x00\x01r", b"body" * 1000)


def test_names_are_never_the_same(pair: Pair) -> None:
    listener = Listener()
    names = {pair.nodes[node].open(listener) for node in (1, 2) for _ in range(100)}
    assert len(names) == 200
    assert all(name.startswith(REPLY_PREFIX) for name in names)
    assert all(len(name) - len(REPLY_PREFIX) > 20 for name in names)


def test_reply_on_the_same_node_is_heard_until_it_is_closed(pair: Pair) -> None:
    listener = Listener()
    node = pair.nodes[1]
    name = node.open(listener)
    assert node.send(name, MESSAGE)
    assert listener.heard == [MESSAGE]
    node.close(name)
    assert not node.send(name, MESSAGE)
    assert len(listener.heard) == 1


def test_reply_crosses_to_the_other_node_as_it_is(pair: Pair) -> None:
    listener = Listener()
    name = pair.nodes[1].open(listener)
    assert pair.nodes[2].send(name, MESSAGE)
    pair.carry()
    [heard] = listener.heard
    assert (heard.route, heard.properties, heard.body) == (
        MESSAGE.route,
        MESSAGE.properties,
        MESSAGE.body,
    )


def test_reply_to_nobody_on_the_other_node_is_gone(pair: Pair) -> None:
    name = pair.nodes[1].open(Listener())
    pair.nodes[1].close(name)
    assert pair.nodes[2].send(name, MESSAGE)
    pair.carry()


def test_reply_over_a_link_that_is_down_is_told(pair: Pair) -> None:
    name = pair.nodes[1].open(Listener())
    pair.up = False
    assert not pair.nodes[2].send(name, MESSAGE)


WRONG = ["", ".", "x.y", "0.t", "3.t", "-1.t", "9999999999.t", "1.\udcff", "\u0661.t", "2.t"]


@pytest.mark.parametrize("token", WRONG)
def test_names_that_clients_make_up_reach_nobody(pair: Pair, token: str) -> None:
    node = pair.nodes[2]
    assert not node.send(REPLY_PREFIX + token, MESSAGE)
    assert not asyncio.run(node.exists(REPLY_PREFIX + token))


async def ask(pair: Pair, name: str) -> bool:
    """Ask node 2 and carry its payloads."""
    answer = asyncio.ensure_future(pair.nodes[2].exists(name))
    await asyncio.sleep(0)
    pair.carry()
    return await answer


def test_other_node_is_asked_whether_somebody_listens(pair: Pair) -> None:
    name = pair.nodes[1].open(Listener())
    assert asyncio.run(ask(pair, name))
    pair.nodes[1].close(name)
    assert not asyncio.run(ask(pair, name))
    assert not asyncio.run(ask(pair, REPLY_PREFIX + "1.made-up"))
    assert pair.rpcs[2].outstanding == 0


def test_own_node_needs_not_be_asked(pair: Pair) -> None:
    name = pair.nodes[2].open(Listener())
    pair.up = False
    assert asyncio.run(pair.nodes[2].exists(name))


def test_node_that_is_down_counts_as_nobody(pair: Pair) -> None:
    name = pair.nodes[1].open(Listener())
    pair.up = False
    assert not asyncio.run(pair.nodes[2].exists(name))
    assert pair.rpcs[2].outstanding == 0


def test_no_answer_counts_as_nobody_and_a_late_one_is_dropped(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "REPLY_PROBE_SECONDS_MAX", 0)
    name = pair.nodes[1].open(Listener())
    assert not asyncio.run(pair.nodes[2].exists(name))
    pair.carry()
    assert pair.rpcs[2].outstanding == 0
