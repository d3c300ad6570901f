"""Payloads of other nodes reach their receivers."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headrace_broker.config.configuration import load_config
from headrace_broker.runtime.contract.payload import encode
from headrace_broker.runtime.hosting.sibling_leads import Leading
from headrace_broker.runtime.intake.outflow_watch import Claims, Outflows
from headrace_broker.runtime.node.node import BrokerNode
from headrace_broker.runtime.node.payloads import payload_handlers


class Watch:
    """Records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, list[int]]] = []

    def receive(self, peer: int, rows: list[int], now_us: int) -> None:
        assert now_us > 0
        self.told.append(("outflows", peer, rows))

    def hear_claims(self, node: int, rows: list[int], now_us: int) -> None:
        assert now_us > 0
        self.told.append(("claims", node, rows))


def node_at(tmp_path: Path, shards: int = 1) -> Any:
    """Return a node that was not started."""
    path = tmp_path / "node.toml"
    nodes = '[{ id = 1, name = "n1", address = "127.0.0.1:1" }]'
    node = f'id = 1\nname = "n1"\nshards = {shards}\ndata_dir = "{tmp_path}"'
    path.write_text(f"[node]\n{node}\n[cluster]\nnodes = {nodes}\n")
    return BrokerNode(load_config(path, {}), lambda error: None)


def test_what_queues_let_in_and_who_waits_for_them_comes_with_its_sender(tmp_path: Path) -> None:
    async def work() -> Watch:
        node = node_at(tmp_path)
        watch = node.hosting.outflow = Watch()
        for payload in (Outflows([7, 100]), Claims([7, 3])):
            node.payloads.receive(2, encode(payload))
        return watch

    assert asyncio.run(work()).told == [("outflows", 2, [7, 100]), ("claims", 2, [7, 3])]


def test_payloads_that_are_not_understood_are_logged_now_and_then_and_hurt_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("headrace_broker.runtime.node.payloads.time.monotonic", lambda: now)

    async def work() -> Watch:
        nonlocal now
        node = node_at(tmp_path)
        watch = node.hosting.outflow = Watch()
        for wrong in (
            b"",
            b"\x0a\x00",
            msgspec.msgpack.encode(["later", 1]),
            b"\xa1\x80",
            msgspec.msgpack.encode(["x" * 5000, 1]),
        ):
            now += 60
            for _ in range(3):
                now += 10
                node.payloads.receive(2, wrong)
                node.payloads.receive(3, encode(Outflows([7, 1])))
        return watch

    with caplog.at_level(logging.WARNING):
        assert len(asyncio.run(work()).told) == 15
    texts = [each.getMessage() for each in caplog.records if each.name == "headrace.node"]
    assert len(texts) == 5
    assert all(text.startswith("a payload of node 2 is not understood: ") for text in texts)
    assert "Invalid value 'later'" in texts[2]
    assert len(texts[4]) < 300


def test_a_shard_learns_of_its_siblings_alone_what_they_lead(tmp_path: Path) -> None:
    async def work() -> Any:
        node: Any = node_at(tmp_path, shards=3)
        told: list[int] = []

        def send(peer: int, _: bytes) -> bool:
            told.append(peer)
            return True

        node.raft._transport = SimpleNamespace(send=send)
        for peer, group in ((65, 7), (2, 8)):
            node.hosting.peer_changed(peer, True, 1)
            node.payloads.receive(peer, encode(Leading([group], [], True)))
        assert told == [65]
        return node.router.led.siblings_lead

    siblings_lead = asyncio.run(work())
    assert [siblings_lead(group) for group in (7, 8)] == [True, False]


def test_every_kind_of_payload_has_a_tag_of_its_own(tmp_path: Path) -> None:
    async def work() -> list[str]:
        handlers: Any = payload_handlers(node_at(tmp_path))
        return [str(kind.__struct_config__.tag) for kind in handlers]

    tags = asyncio.run(work())
    assert len(set(tags)) == len(tags) == 26
