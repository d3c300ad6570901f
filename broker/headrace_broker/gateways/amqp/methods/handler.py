"""Which function handles which method of an open channel."""

from __future__ import annotations

from typing import Final

from headrace_broker.gateways.amqp.methods.basic import BASIC_HANDLERS
from headrace_broker.gateways.amqp.methods.committing import TX_HANDLERS
from headrace_broker.gateways.amqp.methods.handler_port import Handler
from headrace_broker.gateways.amqp.methods.topology import TOPOLOGY_HANDLERS

HANDLERS: Final[dict[int, Handler]] = {**BASIC_HANDLERS, **TOPOLOGY_HANDLERS, **TX_HANDLERS}
