"""Payloads of other nodes reach their receivers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from headrace_broker.config.configuration import load_config
from headrace_broker.runtime.node.node import BrokerNode
from headrace_protos.cluster.v1.cluster_pb2 import Claims, ClusterPayload, Outflows


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


def test_what_queues_let_in_and_who_waits_for_them_comes_with_its_sender(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    nodes = '[{ id = 1, name = "n1", address = "127.0.0.1:1" }]'
    path.write_text(
        f'[node]\nid = 1\nname = "n1"\ndata_dir = "{tmp_path}"\n[cluster]\nnodes = {nodes}\n'
    )

    async def work() -> Watch:
        node: Any = BrokerNode(load_config(path, {}), lambda error: None)
        watch = node.hosting.outflow = Watch()
        for payload in (
            ClusterPayload(outflows=Outflows(rows=[7, 100])),
            ClusterPayload(claims=Claims(rows=[7, 3])),
        ):
            node.payloads.receive(2, payload.SerializeToString())
        return watch

    assert asyncio.run(work()).told == [("outflows", 2, [7, 100]), ("claims", 2, [7, 3])]
