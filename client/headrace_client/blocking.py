"""The client for programs without asyncio: the same names, and every call waits.

    with Client.connect("broker-0,broker-1") as client:
        client.topology.declare_queue("tasks")
        with client.publisher(routing_key="tasks") as publisher:
            publisher.publish(b"work").wait()
        with client.consumer("tasks") as consumer:
            for delivery in consumer:
                delivery.accept()

A client may be used by several threads; all clients share one event loop in a thread of its own.
To go there and back costs some 50 us a call, which is saved by `publish_many`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from headrace_client import advice as advices
from headrace_client import client as asynchronous
from headrace_client import export as exports
from headrace_client import flow as flows
from headrace_client import lease as leases
from headrace_client import topology as topologies
from headrace_client import watch as watches
from headrace_client.blocking_stream import Confirm, Consumer, Delivery, Publisher, Settlement
from headrace_client.endpoint import Tls
from headrace_client.error import HeadraceError
from headrace_client.flow_value import Alarm, FlowChange
from headrace_client.limits import CALL_SECONDS
from headrace_client.loop_thread import SHARED, LoopThread
from headrace_client.message import Properties
from headrace_client.waiting import Blocking, listing, waiting, waiting_for_all

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
C = TypeVar("C")
S = TypeVar("S", bound=watches.Keyed)


def _making(
    method: Callable[Concatenate[C, P], A], kind: Callable[[LoopThread, A], T]
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that makes the blocking form of what an asynchronous one makes."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(self._thread, method(self._inner, *args, **kwargs))

    return call


class Topology(Blocking[topologies.Topology]):
    """See `headrace_client.topology.Topology`."""

    declare_queue = waiting(topologies.Topology.declare_queue)
    delete_queue = waiting(topologies.Topology.delete_queue)
    purge_queue = waiting(topologies.Topology.purge_queue)
    queue = waiting(topologies.Topology.queue)
    queues = listing(topologies.Topology.queues)
    declare_exchange = waiting(topologies.Topology.declare_exchange)
    delete_exchange = waiting(topologies.Topology.delete_exchange)
    exchange = waiting(topologies.Topology.exchange)
    exchanges = listing(topologies.Topology.exchanges)
    bind = waiting(topologies.Topology.bind)
    unbind = waiting(topologies.Topology.unbind)
    bindings = listing(topologies.Topology.bindings)
    declare_vhost = waiting(topologies.Topology.declare_vhost)
    delete_vhost = waiting(topologies.Topology.delete_vhost)
    vhost = waiting(topologies.Topology.vhost)
    vhosts = listing(topologies.Topology.vhosts)
    declare_user = waiting(topologies.Topology.declare_user)
    delete_user = waiting(topologies.Topology.delete_user)
    user = waiting(topologies.Topology.user)
    users = listing(topologies.Topology.users)
    declare_permission = waiting(topologies.Topology.declare_permission)
    delete_permission = waiting(topologies.Topology.delete_permission)
    permission = waiting(topologies.Topology.permission)
    permissions = listing(topologies.Topology.permissions)
    declare_topic_permission = waiting(topologies.Topology.declare_topic_permission)
    delete_topic_permission = waiting(topologies.Topology.delete_topic_permission)
    topic_permission = waiting(topologies.Topology.topic_permission)
    topic_permissions = listing(topologies.Topology.topic_permissions)
    declare_policy = waiting(topologies.Topology.declare_policy)
    delete_policy = waiting(topologies.Topology.delete_policy)
    policy = waiting(topologies.Topology.policy)
    policies = listing(topologies.Topology.policies)


class Watch(Blocking[watches.Watch[S]], Generic[S]):
    """See `headrace_client.watch.Watch`: an iterator that waits."""

    def snapshot(self, timeout_s: float = CALL_SECONDS) -> tuple[S, ...]:
        """Return how it stands now; changes after that are told by the iterator."""
        return self._thread.run(self._inner.snapshot(timeout_s))

    def __enter__(self) -> Watch[S]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""

        async def close() -> None:
            self._inner.close()

        self._thread.run(close())

    def __iter__(self) -> Iterator[S]:
        return self

    def __next__(self) -> S:
        async def following() -> list[S]:
            async for state in self._inner:
                return [state]
            return []

        found = self._thread.run(following())
        if not found:
            raise StopIteration
        return found[0]


class Flow(Blocking[flows.Flow]):
    """See `headrace_client.flow.Flow`."""

    why = waiting(flows.Flow.why)
    top = waiting(flows.Flow.top)
    limits = waiting(flows.Flow.limits)
    limit = waiting(flows.Flow.limit)
    set_limit = waiting(flows.Flow.set_limit)
    reset_limit = waiting(flows.Flow.reset_limit)

    watch = _making(flows.Flow.watch, Watch[FlowChange])
    watch_alarms = _making(flows.Flow.watch_alarms, Watch[Alarm])


class Export(Blocking[exports.Export]):
    """See `headrace_client.export.Export`."""

    shards = waiting(exports.Export.shards)
    open_group = waiting(exports.Export.open_group)
    commit = waiting(exports.Export.commit)
    groups = waiting(exports.Export.groups)
    close_group = waiting(exports.Export.close_group)
    read = listing(exports.Export.read)


class LeaseGroup(Blocking[leases.LeaseGroup]):
    """See `headrace_client.lease.LeaseGroup`."""

    @property
    def epoch(self) -> int:
        """Under which it works; 0 for none."""
        return self._inner.epoch

    open = waiting(leases.LeaseGroup.open)
    lease = waiting(leases.LeaseGroup.lease)
    renew = waiting(leases.LeaseGroup.renew)
    settle = waiting(leases.LeaseGroup.settle)
    release = waiting(leases.LeaseGroup.release)
    describe = waiting(leases.LeaseGroup.describe)
    close_group = waiting(leases.LeaseGroup.close_group)
    fetch = listing(leases.LeaseGroup.fetch)
    fetch_columns = listing(leases.LeaseGroup.fetch_columns)


class Advice(Blocking[advices.Advice]):
    """See `headrace_client.advice.Advice`."""

    put = waiting(advices.Advice.put)
    list = waiting(advices.Advice.list)
    delete = waiting(advices.Advice.delete)


class Client:
    """See `headrace_client.client.Client`; a context manager that closes it."""

    def __init__(self, thread: LoopThread, inner: asynchronous.Client) -> None:
        self._thread = thread
        self._inner = inner
        self._closed = False
        self.vhost = inner.vhost
        self.topology = Topology(thread, inner.topology)
        self.flow = Flow(thread, inner.flow)
        self.export = Export(thread, inner.export)
        self.advice = Advice(thread, inner.advice)

    @classmethod
    def connect(
        cls,
        endpoints: str | Iterable[str],
        *,
        user: str | None = "guest",
        password: str = "guest",  # noqa: S107 - everybody knows it, and it works on loopback only
        vhost: str = "/",
        tls: Tls | None = None,
        timeout_s: float = CALL_SECONDS,
    ) -> Client:
        """Return a client of a cluster; see the asyncio client."""
        thread = SHARED.acquire()
        try:
            work = asynchronous.Client.connect(
                endpoints, user=user, password=password, vhost=vhost, tls=tls, timeout_s=timeout_s
            )
            return cls(thread, thread.run(work))
        except BaseException:
            SHARED.release()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if not self._closed:
            self._closed = True
            try:
                self._thread.run(self._inner.close())
            finally:
                SHARED.release()

    @property
    def endpoint(self) -> str:
        """The endpoint that is used as long as it answers."""
        return self._inner.endpoint

    publisher = _making(asynchronous.Client.publisher, Publisher)
    consumer = _making(asynchronous.Client.consumer, Consumer)
    lease_group = _making(asynchronous.Client.lease_group, LeaseGroup)
    why = waiting(asynchronous.Client.why)
    get = waiting_for_all(Delivery, asynchronous.Client.get)

    def watch_alarms(self) -> Watch[Alarm]:
        """Yield resources with alarms on each node, and each change."""
        return self.flow.watch_alarms()


__all__ = [
    "Advice",
    "Client",
    "Confirm",
    "Consumer",
    "Delivery",
    "Export",
    "Flow",
    "HeadraceError",
    "LeaseGroup",
    "Properties",
    "Publisher",
    "Settlement",
    "Tls",
    "Topology",
    "Watch",
]
