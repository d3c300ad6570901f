"""Puts the pieces of one node together and runs them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headrace_broker.config.configuration import Config, split_address
from headrace_broker.config.shards import has_siblings
from headrace_broker.gateways.amqp.connection.listener import SHUTTING_DOWN, AmqpListener
from headrace_broker.gateways.grpc.backup.backup import BackupService
from headrace_broker.gateways.grpc.export.exporting import ExportService, export_logs
from headrace_broker.gateways.grpc.flow.advising import AdviceService
from headrace_broker.gateways.grpc.flow.flow import FlowService
from headrace_broker.gateways.grpc.lease.leasing import LeaseService
from headrace_broker.gateways.grpc.messaging.messaging import MessagingService
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.lookup import LookupService
from headrace_broker.gateways.grpc.server.server import GrpcServer, Service
from headrace_broker.gateways.grpc.topology.topology import TopologyService
from headrace_broker.logs.log_event import (
    LISTENER,
    LISTENER_CLOSED,
    LISTENER_OPENED,
    NODE_STARTED,
    log_event,
)
from headrace_broker.management.http.hosts import Hosts
from headrace_broker.management.metric_server import MetricServer
from headrace_broker.management.server import ManagementServer
from headrace_broker.model.limits import GRPC_CONNECTIONS_MAX, MESSAGE_BYTES_WHOLE
from headrace_broker.model.shard import node_name
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource
from headrace_broker.runtime.alarm.alarm_watch import AlarmWatch
from headrace_broker.runtime.alarm.garbage import Garbage
from headrace_broker.runtime.cluster.catalog_log import CatalogLog
from headrace_broker.runtime.explain.flow_watch import FlowWatch
from headrace_broker.runtime.node.broker import NodeBroker
from headrace_broker.runtime.node.node import BrokerNode
from headrace_broker.runtime.security.join_secret import join_secret_file
from headrace_broker.runtime.security.tls import ServerTls, renew_forever
from headrace_broker.runtime.tracing.start import trace

if TYPE_CHECKING:
    from headrace_broker.runtime.security.cluster_tls import ClusterTls

log = logging.getLogger("headrace.node")


async def serve(
    config: Config, stop: asyncio.Event, hang_up: asyncio.Event, serving: asyncio.Event
) -> None:
    """Run a node until `stop` is set.

    HTTP and gRPC answer from the beginning, so that one can ask why a node is not ready; AMQP
    clients and calls are let in once the catalog is caught up.

    Args:
        config: what the node is told.
        stop: set to stop it.
        hang_up: set to have certificates read anew.
        serving: is set once the node has caught up, and lets clients in unless it is drained.

    Raises:
        ConfigError: a file that the configuration names does not hold what it should.
        RaftLogError: the node's data is damaged, another's, or cannot be written.
        OSError: an address cannot be bound.
    """
    failures: list[BaseException] = []
    tls = ServerTls(config.tls) if config.listeners.secure() else None
    cluster_tls = _cluster_tls(config)
    join_secret = join_secret_file(config.cluster)

    def on_fatal(failure: BaseException) -> None:
        failures.append(failure)
        stop.set()

    async with contextlib.AsyncExitStack() as stack:
        trace(config, stack)
        node = BrokerNode(config, on_fatal, cluster_tls, join_secret)
        _log_catalog(node)
        garbage = Garbage(node.resources.memory)
        stack.callback(garbage.stop)
        garbage.start()
        await node.start()
        stack.push_async_callback(node.stop)
        status = NodeStatusSource(node)
        administration = NodeAdministration(node)
        hosts = Hosts(host_names(config))
        management = ManagementServer(status, administration, hosts=hosts, calls=node.broker.calls)
        stack.push_async_callback(management.stop)
        management.begin_sampling()  # of a process without HTTP as well
        for address, security in ((config.listeners.http, None), (config.listeners.https, tls)):
            if address:
                await management.start(*split_address(address), security)
                _opened(config, "HTTP" if security is None else "HTTPS", address)
        await _serve_metrics(node, status, administration, stack, hosts)
        renewal = renew_forever(hang_up, tls, cluster_tls, join_secret)
        renewing = asyncio.create_task(renewal, name="certificates")
        stack.push_async_callback(_cancel, renewing)
        calls = await _serve_calls(node, administration, status, tls, stack)
        if await _unless_stopped(node.join(), stop):
            garbage.caught_up()
            _caught_up(config, node.broker.boot)
            listeners = ClientListeners(node.broker, config, tls, calls)
            stack.push_async_callback(listeners.close, SHUTTING_DOWN)
            if not node.maintenance.on:
                await listeners.open()
            node.maintenance.opened(listeners)
            status.accepting = True
            serving.set()
            await stop.wait()
            status.accepting = False
            if not failures:
                await node.maintenance.stop()
                await listeners.suspend()
                await node.hand_over()
    if failures:
        raise failures[0]


def _cluster_tls(config: Config) -> ClusterTls | None:
    if not config.cluster_tls.certificate_file:
        return None
    from headrace_broker.runtime.security.cluster_tls import (
        ClusterTls,  # brings a library of its own
    )

    found = ClusterTls(config.cluster_tls, node_name(config.node.name))
    if config.listeners.secure() and (shared := found.shared_authority(config.tls)):
        log.warning("%s", shared)
    return found


def _log_catalog(node: BrokerNode) -> None:
    lines = CatalogLog(node.catalog.catalog, lambda: node.caught_up)
    node.catalog.subscribe(lines.on_events)
    node.raft.labels = lines.labels


def _caught_up(config: Config, boot: int) -> None:
    more = {"id": config.node.id, "boot": boot, "cluster": config.cluster.name}
    log_event(log, NODE_STARTED, node=config.node.name, **more)


def _opened(config: Config, protocol: str, address: str) -> None:
    log_event(LISTENER, LISTENER_OPENED, node=config.node.name, protocol=protocol, address=address)


def host_names(config: Config) -> list[str]:
    """Return the names by which this node may be asked over HTTP."""
    listeners = config.listeners
    places = [node.address for node in config.cluster.nodes]
    places += [config.cluster.listen, listeners.http, listeners.https, listeners.metrics]
    hosts = [split_address(place)[0] for place in places if place]
    return [*config.http.hosts, node_name(config.node.name), socket.gethostname(), *hosts]


async def _serve_metrics(
    node: BrokerNode,
    status: NodeStatusSource,
    administration: NodeAdministration,
    stack: contextlib.AsyncExitStack,
    hosts: Hosts,
) -> None:
    """Open the listener for metrics, if there is to be one, and have it closed with the stack."""
    config = node.config
    if not config.listeners.metrics:
        return
    server = MetricServer(
        status, administration, config.metrics.anonymous, hosts, node.broker.calls
    )
    stack.push_async_callback(server.stop)
    await server.start(*split_address(config.listeners.metrics))
    _opened(config, "metrics", config.listeners.metrics)


async def _serve_calls(
    node: BrokerNode,
    administration: NodeAdministration,
    status: NodeStatusSource,
    tls: ServerTls | None,
    stack: contextlib.AsyncExitStack,
) -> GrpcServer | None:
    """Open the listeners for gRPC, if there are to be any, and have them closed with the stack."""
    config, broker = node.config, node.broker
    found = ((config.listeners.grpc, None), (config.listeners.grpcs, tls))
    listeners = [(address, security) for address, security in found if address]
    if not listeners:
        return None
    lookup = LookupService(administration, status)
    admission = Admission(broker, status.closed_reason, tls, administration.metrics.grpc)
    services: list[Service] = [
        MessagingService(broker, admission, config.listeners.grpc),
        TopologyService(lookup, admission),
        FlowService(
            lookup,
            admission,
            FlowWatch(node.flow_report, lookup.view),
            AlarmWatch(node.alarms, status.name_of),
        ),
        LeaseService(broker, admission),
        BackupService(broker, admission, node.backups, config.listeners.grpc),
        ExportService(export_logs(node.telemetry.logs, node.archives.log), admission),
        AdviceService(lookup, admission),
    ]
    most = config.limits
    server = GrpcServer(
        services,
        status.not_ready_reason,
        min(most.message_bytes_max, MESSAGE_BYTES_WHOLE),
        admission,
        min(most.connections_max, GRPC_CONNECTIONS_MAX),
        broker.calls,
        has_siblings(config),
    )
    stack.push_async_callback(server.stop)
    if has_siblings(config):  # they serve at these addresses while this one does not
        server.hold(*listeners)
        return server
    await server.start(*listeners)
    for address, security in listeners:
        _opened(config, _grpc_kind(security), address)
    return server


def _grpc_kind(security: ServerTls | None) -> str:
    return "gRPC" if security is None else "gRPC over TLS"


class ClientListeners:
    """The listeners for AMQP clients, open or closed as a whole.

    That for calls is always open, but for a process that shares it with its siblings.

    Args:
        broker: of this node.
        config: what the node is told.
        tls: what TLS is served with.
        calls: the listeners for gRPC, None when there are none.
    """

    def __init__(
        self,
        broker: NodeBroker,
        config: Config,
        tls: ServerTls | None,
        calls: GrpcServer | None = None,
    ) -> None:
        self._broker = broker
        self._calls = calls
        self._config = config
        self._tls = tls
        self._numbers = itertools.count(1)
        self._open: list[AmqpListener] = []
        self._places: list[tuple[str, str]] = []  # protocols and addresses that are let in

    async def open(self) -> None:
        """Let clients in.

        Raises:
            OSError: an address cannot be bound; what was opened before it is open.
        """
        await self.close(SHUTTING_DOWN)
        places = self._config.listeners
        for address, security in ((places.amqp, None), (places.amqps, self._tls)):
            if not address:
                continue
            listener = AmqpListener(
                self._broker,
                *split_address(address),
                tls=security,
                connections_max=self._config.limits.connections_max,
                numbers=self._numbers,
                is_shared=has_siblings(self._config),
            )
            await listener.start()
            self._open.append(listener)
            kind = "AMQP" if security is None else "AMQP over TLS"
            self._places.append((kind, address))
            _opened(self._config, kind, address)
        resumed = await self._calls.resume() if self._calls is not None else ()
        for address, security in resumed:
            _opened(self._config, _grpc_kind(security), address)

    async def suspend(self) -> None:
        """Let no more clients in; those who are there stay."""
        for listener in self._open:
            await listener.suspend()
        for protocol, address in self._places:
            place = {"protocol": protocol, "address": address}
            log_event(LISTENER, LISTENER_CLOSED, node=self._config.node.name, **place)
        self._places.clear()

    async def dismiss(self, reason: str) -> None:
        """Let no more clients in, and tell those who are there to go, whatever they speak."""
        await self.close(reason)
        if self._calls is not None:
            await self._calls.dismiss(reason)

    async def close(self, reason: str) -> None:
        """Let no more AMQP clients in, and tell those who are there to go."""
        listeners, self._open = self._open, []
        self._places.clear()
        await asyncio.gather(*(listener.stop(reason) for listener in listeners))


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


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
