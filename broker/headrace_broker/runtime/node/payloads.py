"""Payloads of other nodes, passed on to the parts that they are for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from headrace_broker.runtime.alarm.alarms import AlarmBoard
from headrace_broker.runtime.backup.client import BackupClient
from headrace_broker.runtime.clients.client_list import ClientList
from headrace_broker.runtime.cluster.catalog_service import CatalogService
from headrace_broker.runtime.cluster.maintenance import Maintenance
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_broker.runtime.inspect.browsing import BrowsingClient
from headrace_broker.runtime.inspect.counts import CountsClient
from headrace_broker.runtime.intake.remote_debt import RemoteDebts
from headrace_broker.runtime.lease.leasing import LeaseClient
from headrace_broker.runtime.node.archive_part import ArchivePart
from headrace_broker.runtime.node.replies import Replies
from headrace_broker.runtime.telemetry.telemetry import Telemetry
from headrace_protos.cluster.v1.cluster_pb2 import ClusterPayload
from headrace_raftlog.model.pieces import Parted

log = logging.getLogger("headrace.node")


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class Receivers(Protocol):
    """Parts of a node that other nodes speak to; see `BrokerNode` for each."""

    catalog: CatalogService
    counts: CountsClient
    browsing: BrowsingClient
    archives: ArchivePart
    backups: BackupClient
    clients: ClientList
    debts: RemoteDebts
    alarms: AlarmBoard
    telemetry: Telemetry
    maintenance: Maintenance
    hosting: Hosting
    replies: Replies
    leases: LeaseClient


class Payloads:
    """Passes each payload to the part that takes its kind."""

    def __init__(self, parts: Receivers) -> None:
        self._parts = parts
        self._handlers = payload_handlers(parts)

    def receive(self, peer: int, data: bytes | Parted) -> None:
        """Pass a payload on. What goes wrong must not stop the replicated logs: it is logged."""
        switchboard = self._parts.hosting.switchboard
        try:
            if isinstance(data, Parted):
                switchboard.receive_parted(data)
            elif not switchboard.receive_large(data):
                self._dispatch(peer, ClusterPayload.FromString(data))
        except Exception:
            log.exception("a payload of node %d could not be handled", peer)

    def _dispatch(self, peer: int, payload: ClusterPayload) -> None:
        kind: str = payload.WhichOneof("body") or ""
        handle = self._handlers.get(kind)
        if handle is not None:
            handle(peer, getattr(payload, kind))
        elif not self._parts.leases.receive(peer, kind, payload):
            self._parts.hosting.switchboard.receive(payload)


def payload_handlers(parts: Receivers) -> dict[str, Callable[[int, Any], None]]:
    """Return who takes which kind of payload: called with the sender and the payload's body.

    All other kinds are about the sessions of queues.
    """
    return {
        "catalog_forward": parts.catalog.handle_forward,
        "counts_request": parts.counts.receive_request,
        "counts": lambda _, counts: parts.counts.receive_answer(counts),
        "browse_request": parts.browsing.receive_request,
        "browsed_page": lambda _, page: parts.browsing.receive_answer(page),
        **parts.archives.handlers(),
        "backup_question": parts.backups.receive_question,
        "backup_answer": parts.backups.receive_answer,
        "question": parts.clients.inquiries.receive_question,
        "answer": lambda _, answer: parts.clients.inquiries.receive_answer(answer),
        "debt_report": parts.debts.receive_report,
        "debt_heard": parts.debts.receive_heard,
        "alarm": parts.alarms.receive,
        "export_question": parts.telemetry.courier.receive_question,
        "export_answer": lambda _, answer: parts.telemetry.courier.receive_answer(answer),
        "stopping": lambda peer, _: parts.maintenance.stopping.add(peer),
        "outflows": lambda peer, outflows: parts.hosting.outflow.receive(
            peer, list(outflows.rows), _now_us()
        ),
        "claims": lambda peer, claims: parts.hosting.outflow.hear_claims(
            peer, list(claims.rows), _now_us()
        ),
        "reply": lambda _, reply: parts.replies.receive_reply(reply),
        "reply_probe": parts.replies.receive_probe,
        "reply_alive": lambda _, alive: parts.replies.receive_alive(alive),
    }
