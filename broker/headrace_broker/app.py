"""Puts the pieces of one node together and runs them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from headrace_broker.config import Config, split_address
from headrace_broker.gateways.amqp.listener import AmqpListener
from headrace_broker.management.server import ManagementServer
from headrace_broker.runtime.node import BrokerNode
from headrace_broker.runtime.status import NodeStatusSource

log = logging.getLogger(__name__)


async def serve(config: Config, stop: asyncio.Event) -> None:
    """Run a node until `stop` is set.

    HTTP answers from the beginning, so that one can ask why a node is not ready; AMQP clients are
    let in once the catalog is caught up.

    Raises:
        RaftLogError: the node's data is damaged, another's, or cannot be written.
        OSError: an address cannot be bound.
    """
    failures: list[BaseException] = []

    def on_fatal(failure: BaseException) -> None:
        failures.append(failure)
        stop.set()

    async with contextlib.AsyncExitStack() as stack:
        node = BrokerNode(config, on_fatal)
        await node.start()
        stack.push_async_callback(node.stop)
        status = NodeStatusSource(node)
        management = ManagementServer(status)
        await management.start(*split_address(config.listeners.http))
        stack.push_async_callback(management.stop)
        if await _unless_stopped(node.join(), stop):
            listener = AmqpListener(node.broker, *split_address(config.listeners.amqp))
            await listener.start()
            stack.push_async_callback(listener.stop)
            status.accepting = True
            log.info("node %s serves AMQP on %s", config.node.name, config.listeners.amqp)
            await stop.wait()
            status.accepting = False
    if failures:
        raise failures[0]


async def _unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Run `work` to its end; return False when `stop` came first."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    done, _ = await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for other in (task, stopped):
        if other not in done:
            other.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await other
    if task in done:
        task.result()
        return True
    return False
