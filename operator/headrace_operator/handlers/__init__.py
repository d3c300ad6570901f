"""The operator: `kopf run --module=headrace_operator.handlers`.

kopf watches resources, logs in, answers whether the operator lives, and posts events. What it sees
goes to the reconciler of its kind, which brings the cluster to what the resource says: see
`reconciler`.
"""

from __future__ import annotations

import functools
import logging
import os
from typing import Any

import aiohttp
import kopf

from headrace_operator.alarm_watch import AlarmWatches
from headrace_operator.builders.cluster import CLUSTER_LABEL
from headrace_operator.cluster_finder import ClusterFinder
from headrace_operator.declaring.access import declarations
from headrace_operator.declaring.topology import DECLARATIONS
from headrace_operator.handlers.cluster import ClusterHandler
from headrace_operator.handlers.pipeline_run import PipelineRunHandler
from headrace_operator.handlers.scaler import ScalerHandler
from headrace_operator.handlers.topology import DeclarationHandler
from headrace_operator.kube_api import KubeApi
from headrace_operator.metrics import Metrics, MetricServer
from headrace_operator.operator_context import Operator
from headrace_operator.reconciler import Handler, Key, Reconciler
from headrace_operator.settings import Settings, read_settings
from headrace_operator.specs.kind import (
    BROKER_CLUSTER,
    CONSUMER_SCALER,
    GROUP,
    KINDS,
    PIPELINE_RUN,
    VERSION,
    Kind,
)
from headrace_sparkdriver.driver import RUN_LABEL

log = logging.getLogger(__name__)


class Running:
    """Tasks that run while the operator does.

    Args:
        settings: of the operator.
        kopf_settings: of kopf.
    """

    def __init__(self, settings: Settings, kopf_settings: kopf.OperatorSettings) -> None:
        self.kube = KubeApi(functools.partial(log_in, kopf_settings))
        self.session = aiohttp.ClientSession()
        metrics = Metrics()
        self.metric_server = MetricServer(metrics, settings.metrics_port)
        self.operator = Operator(self.kube, self.session, settings, metrics)
        self.watches = AlarmWatches(self.alarm_changed)
        self._ways = ways = ClusterFinder(self.operator)
        handlers: list[tuple[Kind, Handler]] = [
            (BROKER_CLUSTER, ClusterHandler(self.operator, self.watches)),
            (CONSUMER_SCALER, ScalerHandler(self.operator, ways)),
            (PIPELINE_RUN, PipelineRunHandler(self.operator, ways)),
        ]
        handlers += [
            (each.kind, DeclarationHandler(self.operator, ways, each))
            for each in (*declarations(), *DECLARATIONS)
        ]
        self.reconcilers = {
            kind.plural: Reconciler(kind.name, handler, metrics) for kind, handler in handlers
        }

    def seen(self, plural: str, key: Key, body: dict[str, Any]) -> None:
        """Reconcile a resource, and with it others that wait for a cluster."""
        changed = self.reconcilers[plural].seen(key, body)
        if changed and plural == BROKER_CLUSTER.plural:
            self._ways.forget(key)
            for other, reconciler in self.reconcilers.items():
                if other != plural:
                    reconciler.wake_all()

    def alarm_changed(self, key: Key) -> None:
        """Reconcile a cluster whose alarms have changed, and resources that react to alarms."""
        self.reconcilers[BROKER_CLUSTER.plural].wake(key)
        self.reconcilers[CONSUMER_SCALER.plural].wake_all()

    async def stop(self) -> None:
        """End all tasks, and close connections."""
        await self.metric_server.stop()
        for reconciler in self.reconcilers.values():
            await reconciler.stop()
        await self.watches.stop()
        await self.session.close()
        await self.kube.close()


_running: list[Running] = []  # one at most: kopf calls functions of modules


def log_in(settings: kopf.OperatorSettings) -> kopf.ConnectionInfo | None:
    """Return where the API server is: by the pod's service account, else by a kubeconfig."""
    arguments: Any = {"logger": log, "settings": settings}
    found: kopf.ConnectionInfo | None = kopf.login_with_service_account(**arguments)
    return found or kopf.login_with_kubeconfig(**arguments)


@kopf.on.login(retries=3, backoff=1.0)
def login(settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo | None:
    """Log in as all else does."""
    return log_in(settings)


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Set kopf up, and begin."""
    try:
        own = read_settings(os.environ)
    except ValueError as error:
        raise kopf.PermanentError(str(error)) from error
    settings.peering.standalone = True
    settings.posting.level = logging.WARNING
    settings.posting.loggers = False
    settings.scanning.disabled = own.scope == "Namespaces"
    settings.networking.request_timeout = 60.0
    settings.watching.server_timeout = 300  # whole seconds: the API server takes no others
    _quieten()
    running = Running(own, settings)
    await running.metric_server.start()
    _running[:] = [running]


def _quieten() -> None:
    """Log only failures of events that are seen, and of probes that are answered.

    With --debug all of it is said.
    """
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        for name in ("aiohttp.access", "kopf.objects"):
            logging.getLogger(name).setLevel(logging.WARNING)


@kopf.on.cleanup()
async def stop(**_: Any) -> None:
    """End."""
    for running in _running:
        await running.stop()
    _running.clear()


async def resource_seen(resource: kopf.Resource, event: kopf.RawEvent, **_: Any) -> None:
    """Begin or end the reconciling of a resource."""
    body: dict[str, Any] = dict(event["object"])
    meta = body["metadata"]
    key = Key(meta["namespace"], meta["name"])
    for running in _running:
        if event["type"] == "DELETED":
            running.reconcilers[resource.plural].gone(key)
        else:
            running.seen(resource.plural, key, body)


for _kind in KINDS:
    kopf.on.event(GROUP, VERSION, _kind.plural, id=f"{_kind.singular}-seen")(resource_seen)


@kopf.on.event("v1", "pods", labels={CLUSTER_LABEL: kopf.PRESENT})
@kopf.on.event("apps", "v1", "statefulsets", labels={CLUSTER_LABEL: kopf.PRESENT})
async def part_seen(namespace: str | None, labels: kopf.Labels, **_: Any) -> None:
    """Reconcile a cluster when its pods change."""
    for running in _running:
        key = Key(namespace or "", labels[CLUSTER_LABEL])
        running.reconcilers[BROKER_CLUSTER.plural].wake(key)


@kopf.on.event("v1", "pods", labels={RUN_LABEL: kopf.PRESENT})
@kopf.on.event("apps", "v1", "statefulsets", labels={RUN_LABEL: kopf.PRESENT})
@kopf.on.event("batch", "v1", "jobs", labels={RUN_LABEL: kopf.PRESENT})
async def driver_seen(namespace: str | None, labels: kopf.Labels, **_: Any) -> None:
    """Reconcile a run when its driver changes."""
    for running in _running:
        key = Key(namespace or "", labels[RUN_LABEL])
        running.reconcilers[PIPELINE_RUN.plural].wake(key)
