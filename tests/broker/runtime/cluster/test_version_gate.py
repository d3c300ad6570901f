"""A real node whose catalog's log holds what a later release has written."""

from __future__ import annotations

import asyncio

import msgspec

from headrace_broker.catalog.command import DeclareQueue
from headrace_broker.catalog.request import Request, encode_envelope
from headrace_broker.catalog.result import Ok
from headrace_broker.catalog.version import CatalogVersionError
from headrace_broker.config.configuration import Config
from headrace_broker.model.session import NODE_ID_MAX
from headrace_broker.runtime.node.node import BrokerNode
from headrace_raftlog.model.group import CATALOG_GROUP


def test_node_stops_at_an_unknown_command_now_and_at_each_start(config: Config) -> None:
    async def live(write: bool) -> BaseException:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        node = BrokerNode(config, failed.set_result)
        await node.start()
        joining = asyncio.create_task(node.join())
        try:
            async with asyncio.timeout(60):
                if write:
                    await joining
                    command = DeclareQueue("/", "before", "quorum")
                    assert isinstance(await node.catalog.submit(command), Ok)
                    later = msgspec.msgpack.encode({"do": "split_queue", "name": "before"})
                    data = encode_envelope(Request(NODE_ID_MAX, 1, 1), later)
                    assert node.raft.propose(CATALOG_GROUP, data) > 0
                error = await failed
            assert node.catalog.catalog.queue("/", "before") is not None
            return error
        finally:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            await node.stop()

    for write in (True, False):
        error = asyncio.run(live(write))
        assert isinstance(error, CatalogVersionError)
        assert "holds command 'split_queue', and this node knows" in str(error)
