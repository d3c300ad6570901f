"""Queues, exchanges and bindings of a broker in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace_broker.catalog.event import BindingAdded, BindingRemoved, ExchangeRemoved
from headrace_broker.model.definition import Binding, Exchange, Queue
from headrace_broker.model.reply_code import (
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    AmqpError,
)
from headrace_broker.runtime.cluster.topology import Topology

if TYPE_CHECKING:
    from tests.broker.gateways.conftest import FakeBroker


class FakeTopology(Topology):
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker

    async def declare_queue(
        self,
        vhost: str,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, Any],
        owner: str,
    ) -> Queue:
        broker = self.broker
        await broker.gate
        broker.log.append(f"declare {name}")
        found = broker.queues.get(name)
        if found is None:
            found = broker.add_queue(
                name,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
                owner=owner if exclusive else "",
            )
        if broker.deletes_declared:
            broker.remove_queue(name)
        known = found.definition
        if known.exclusive and known.owner != owner:
            raise AmqpError(RESOURCE_LOCKED, f"cannot obtain exclusive access to queue '{name}'")
        if known.durable != durable:
            text = (
                f"inequivalent arg 'durable' for queue '{name}' in vhost '/': "
                f"received '{durable}' but current is '{known.durable}'"
            )
            raise AmqpError(PRECONDITION_FAILED, text)
        return known

    async def delete_queue(self, queue: Queue, if_unused: bool, if_empty: bool) -> int:
        broker = self.broker
        await broker.gate
        fake = broker.queues.get(queue.name)
        if fake is None:
            return 0
        if if_unused and fake.consumers:
            raise AmqpError(PRECONDITION_FAILED, f"queue '{queue.name}' in use")
        if if_empty and fake.ready:
            raise AmqpError(PRECONDITION_FAILED, f"queue '{queue.name}' not empty")
        broker.remove_queue(queue.name)
        return len(fake.ready)

    async def declare_exchange(self, exchange: Exchange) -> None:
        broker = self.broker
        await broker.gate
        name = exchange.name
        broker.log.append(f"declare exchange {name}")
        known = broker.exchanges.get(name)
        if known is None:
            broker.add_exchange(exchange)
        elif known.type != exchange.type:
            raise AmqpError(PRECONDITION_FAILED, f"inequivalent arg 'type' for exchange '{name}'")

    async def delete_exchange(self, vhost: str, name: str, if_unused: bool) -> None:
        broker = self.broker
        known = broker.exchanges.pop(name, None)
        if known is not None:
            broker.router.on_events([ExchangeRemoved(known)])

    async def bind(self, binding: Binding) -> None:
        broker = self.broker
        await broker.gate
        if binding.source not in broker.exchanges:
            text = f"no exchange '{binding.source}' in vhost '{binding.vhost}'"
            raise AmqpError(NOT_FOUND, text)
        there = broker.queues if binding.destination_type == "queue" else broker.exchanges
        if binding.destination not in there:
            kind = binding.destination_type
            text = f"no {kind} '{binding.destination}' in vhost '{binding.vhost}'"
            raise AmqpError(NOT_FOUND, text)
        if binding not in broker.bindings:
            broker.bindings.append(binding)
            broker.router.on_events([BindingAdded(binding)])

    async def unbind(self, binding: Binding) -> None:
        broker = self.broker
        if binding in broker.bindings:
            broker.bindings.remove(binding)
            broker.router.on_events([BindingRemoved(binding)])
