"""Payloads of other nodes, passed on to the parts that they are for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, Union

import msgspec

from headrace_broker.runtime.alarm.alarms import AlarmBoard, AlarmReport
from headrace_broker.runtime.clients.replies import Replies, Reply
from headrace_broker.runtime.cluster.catalog_service import CatalogService
from headrace_broker.runtime.cluster.maintenance import Maintenance
from headrace_broker.runtime.contract.payload import MALFORMED, brief
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_broker.runtime.hosting.sibling_leads import Leading
from headrace_broker.runtime.intake.outflow_watch import Claims, Outflows
from headrace_broker.runtime.intake.remote_debt import DebtHeard, DebtReport, RemoteDebts
from headrace_broker.runtime.node.parts import CatalogForward, Stopping
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import Answer, Ask, Cancel
from headrace_broker.runtime.session.frame import FRAMES
from headrace_raftlog.model.pieces import Parted

_TOLD_SECONDS: Final = 60.0  # between lines in the log about payloads of one node

log = logging.getLogger("headrace.node")

Handlers = dict[type, Callable[[int, Any], None]]


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class Receivers(Protocol):
    """Parts of a node that other nodes speak to; see `BrokerNode` for each."""

    catalog: CatalogService
    rpc: Rpc
    debts: RemoteDebts
    alarms: AlarmBoard
    maintenance: Maintenance
    hosting: Hosting
    replies: Replies


class Payloads:
    """Passes each payload to the part that takes its kind."""

    def __init__(self, parts: Receivers) -> None:
        self._router = parts.hosting.session_router
        self._handlers = payload_handlers(parts)
        self._decoder = msgspec.msgpack.Decoder(Union[tuple(self._handlers)])  # noqa: UP007
        self._silent_until: dict[int, float] = {}  # nothing is logged of a node's payloads

    def receive(self, peer: int, data: bytes | Parted) -> None:
        """Pass a payload on. What goes wrong must not stop the replicated logs: it is logged."""
        try:
            if isinstance(data, Parted):
                self._router.receive_parted(data)
            elif not self._router.receive_large(data):
                payload = self._decoder.decode(data)
                self._handlers[type(payload)](peer, payload)
        except MALFORMED as error:
            now = time.monotonic()
            if now >= self._silent_until.get(peer, now):
                self._silent_until[peer] = now + _TOLD_SECONDS
                log.warning("a payload of node %d is not understood: %s", peer, brief(error))
        except Exception:
            log.exception("a payload of node %d could not be handled", peer)


def payload_handlers(parts: Receivers) -> Handlers:
    """Return who takes which kind of payload: called with the sender and the payload."""
    hosting = parts.hosting
    router = hosting.session_router
    handlers: Handlers = {kind: lambda _, frame: router.receive(frame) for kind in FRAMES}
    handlers |= {
        Ask: parts.rpc.receive_ask,
        Cancel: parts.rpc.receive_cancel,
        Answer: parts.rpc.receive_answer,
        CatalogForward: lambda peer, forward: parts.catalog.handle_forward(peer, forward.data),
        DebtReport: parts.debts.receive_report,
        DebtHeard: parts.debts.receive_heard,
        AlarmReport: parts.alarms.receive,
        Stopping: lambda peer, _: parts.maintenance.stopping.add(peer),
        Outflows: lambda peer, told: hosting.outflow.receive(peer, told.rows, _now_us()),
        Claims: lambda peer, told: hosting.outflow.hear_claims(peer, told.rows, _now_us()),
        Leading: hosting.sibling_leads.receive,
        Reply: lambda _, reply: parts.replies.receive_reply(reply),
    }
    return handlers
