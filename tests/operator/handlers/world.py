"""A cluster of one node that only answers, and an operator that runs when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import kopf.testing
import pytest
from tests.operator.handlers.kube_server import KubeServer, Name, Object, Store
from tests.operator.handlers.machines import Broker, Machines

GROUP: Final = "headrace.dev/v1alpha1"
COMMAND: Final = ["run", "--module=headrace_operator.handlers", "--standalone", "--all-namespaces"]
STOP_SECONDS: Final = 30

World = tuple[KubeServer, Broker]


@contextmanager
def running() -> Iterator[None]:
    """Run the operator."""
    with kopf.testing.KopfRunner(COMMAND, timeout=STOP_SECONDS) as runner:
        yield
    assert runner.exit_code == 0, runner.output


@contextmanager
def one_node(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Make a cluster of one node in namespace shop, called mill."""
    with KubeServer(root) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.config))
        monkeypatch.setenv("HEADRACE_OPERATOR_STEP_SECONDS", "0.05")
        monkeypatch.setenv("HEADRACE_OPERATOR_RESYNC_SECONDS", "1")
        monkeypatch.setenv("HEADRACE_OPERATOR_FINALIZER_SECONDS", "0")
        broker = Broker()
        broker.founders = 1
        with Machines(server, broker):
            spec = {"replicas": 1, "listeners": {"http": broker.port}}
            server.create(f"{GROUP}/brokerclusters", "mill", {"spec": spec})
            yield server, broker


def is_ready(found: Object | None) -> bool:
    """Return whether a resource is as it says, the spec of now."""
    generation = (found or {}).get("metadata", {}).get("generation")
    status = (found or {}).get("status") or {}
    rows = {row["type"]: row["status"] for row in status.get("conditions") or []}
    return bool(status.get("observedGeneration") == generation and rows.get("Ready") == "True")


def degraded(found: Object | None) -> str:
    """Return the reason why a resource is not as it should be."""
    rows = ((found or {}).get("status") or {}).get("conditions") or []
    return next((str(row["reason"]) for row in rows if row["type"] == "Degraded"), "")


def that(name: Name, holds: Callable[[Object | None], Any]) -> Callable[[Store], Any]:
    """Return what tells whether something holds of an object; it gives that, if it is there."""

    def look(store: Store) -> Any:
        found = store.objects.get(name)
        return (found or True) if holds(found) else None

    return look


def told(reason: str) -> Callable[[Store], bool]:
    """Return what tells whether there is an event for a reason."""

    def holds(store: Store) -> bool:
        events = [each for name, each in store.objects.items() if name.resource == "v1/events"]
        return any(each["reason"] == reason for each in events)

    return holds
