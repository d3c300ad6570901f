"""Which function handles which method of an open channel."""

from __future__ import annotations

from typing import Final

from headrace_broker.gateways.amqp.basic import BASIC_HANDLERS
from headrace_broker.gateways.amqp.committing import TX_HANDLERS
from headrace_broker.gateways.amqp.handler_port import Handler
from headrace_broker.gateways.amqp.topology import TOPOLOGY_HANDLERS

HANDLERS: Final[dict[int, Handler]] = {**BASIC_HANDLERS, **TOPOLOGY_HANDLERS, **TX_HANDLERS}
