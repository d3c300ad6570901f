"""Consumers are scaled by backlog and alarms, against an API server and a broker that answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.operator.handlers.kube_server import KubeServer, Name, Object, Store
from tests.operator.handlers.world import GROUP, World, degraded, one_node, running, that

SCALERS: Final = f"{GROUP}/consumerscalers"
SCALER: Final = Name(SCALERS, "shop", "tasks")
DEPLOYMENTS: Final = "apps/v1/deployments"
TARGET: Final = Name(DEPLOYMENTS, "shop", "worker")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with one_node(tmp_path, monkeypatch) as (server, broker):
        server.create(DEPLOYMENTS, "worker", {"spec": {"replicas": 1}})
        yield server, broker


def scaler(**spec: Any) -> Object:
    windows = {"scaleUpSeconds": 0, "scaleDownSeconds": 3600, "cooldownSeconds": 3600}
    return {
        "spec": {
            "clusterRef": {"name": "mill"},
            "targetRef": {"name": "worker"},
            "queues": [{"vhost": "/", "name": "tasks"}],
            "maxReplicas": 6,
            "stabilization": windows,
            **spec,
        }
    }


def replicas(count: int) -> Any:
    return lambda store: store.objects[TARGET]["spec"]["replicas"] == count


def scalings(server: KubeServer) -> list[int]:
    """Return the numbers that the target was told, one after the other."""

    def read(store: Store) -> list[int]:
        return [each["spec"]["replicas"] for _, name, each in store.changes if name == TARGET]

    found: list[int] = server.do(read)
    return found


def alarm(at: int) -> Any:
    return lambda store: _status(store).get("alarmStage", 0) == at


def _status(store: Store) -> Object:
    return store.objects[SCALER].get("status") or {}


def test_a_backlog_raises_the_number_by_steps(world: World) -> None:
    server, broker = world
    broker.backlog = 4500
    server.create(SCALERS, "tasks", scaler())
    with running():
        server.wait("five consumers", replicas(5))
        status = server.wait("the decisions", lambda store: _decided(store, 2))
    assert scalings(server) == [1, 3, 5]
    newest = status["decisions"][0]
    assert (newest["before"], newest["after"], newest["reason"]) == (3, 5, "Backlog")
    assert newest["backlog"] == 4500


def test_alarms_that_come_and_go_take_no_consumer_away(world: World) -> None:
    server, broker = world
    server.create(SCALERS, "tasks", scaler(alarmReaction={"blocked": "Max"}))
    with running():
        for _ in range(5):
            broker.stage = 2
            server.wait("the alarm", alarm(2))
            broker.stage = 0
            server.wait("its end", alarm(0))
    assert scalings(server) == [1, 6]
    with running():  # another operator remembers the alarms
        broker.stage = 1
        server.wait("another alarm", alarm(1))
        broker.stage = 0
        server.wait("its end", alarm(0))
    assert scalings(server) == [1, 6]


def test_with_another_autoscaler_it_does_nothing(world: World) -> None:
    server, broker = world
    broker.backlog = 4500
    of = {"kind": "Deployment", "name": "worker"}
    hpas = "autoscaling/v2/horizontalpodautoscalers"
    server.create(hpas, "worker", {"spec": {"scaleTargetRef": of}})
    server.create(SCALERS, "tasks", scaler())
    with running():
        server.wait(
            "that it says so", that(SCALER, lambda found: degraded(found) == "OtherAutoscaler")
        )
        assert scalings(server) == [1]
        server.delete(hpas, "worker")
        server.wait("five consumers", replicas(5))


def _decided(store: Store, count: int) -> Object | None:
    status = _status(store)
    return status if len(status.get("decisions") or []) == count else None
