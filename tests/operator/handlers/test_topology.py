"""Declarations of resources, against an API server and a broker that stores its input."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.operator.handlers.kube_server import Name, Object
from tests.operator.handlers.world import (
    GROUP,
    World,
    degraded,
    is_ready,
    one_node,
    running,
    that,
    told,
)

VHOSTS: Final = f"{GROUP}/vhosts"
EXCHANGES: Final = f"{GROUP}/exchanges"
USERS: Final = f"{GROUP}/users"
CLUSTERS: Final = f"{GROUP}/brokerclusters"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with one_node(tmp_path, monkeypatch) as found:
        yield found


def named(namespace: str = "", **spec: Any) -> Object:
    reference = {"name": "mill", **({"namespace": namespace} if namespace else {})}
    return {"spec": {"clusterRef": reference, **spec}}


def absent(found: Object | None) -> bool:
    return found is None


def test_another_namespace_may_name_a_cluster_that_allows_it(world: World) -> None:
    server, broker = world
    server.create(VHOSTS, "orders", named("shop"), "other")
    name = Name(VHOSTS, "other", "orders")
    with running():
        server.wait("a refusal", that(name, lambda found: degraded(found) == "NotAllowed"))
        assert "vhosts/orders" not in broker.things
        server.merge(CLUSTERS, "mill", {"spec": {"allowedNamespaces": ["other"]}})
        server.wait("the vhost", that(name, is_ready))
    assert "vhosts/orders" in broker.things


def test_a_cluster_that_does_not_answer_is_not_waited_for_for_ever(world: World) -> None:
    server, broker = world
    server.create(VHOSTS, "orders", named())
    name = Name(VHOSTS, "shop", "orders")
    with running():
        server.wait("the vhost", that(name, is_ready))
        broker.silent = True
        server.delete(VHOSTS, "orders")
        server.wait("its end", that(name, absent))
        server.wait("that it is told", told("GivenUp"))
    assert "vhosts/orders" in broker.things


def test_what_is_retained_stays_in_the_broker(world: World) -> None:
    server, broker = world
    server.create(VHOSTS, "orders", named(deletionPolicy="Retain"))
    name = Name(VHOSTS, "shop", "orders")
    with running():
        server.wait("the vhost", that(name, is_ready))
        server.delete(VHOSTS, "orders")
        server.wait("its end", that(name, absent))
    assert "vhosts/orders" in broker.things


def test_what_others_have_declared_otherwise_is_neither_changed_nor_deleted(world: World) -> None:
    server, broker = world
    other = {"type": "fanout", "durable": True, "auto_delete": False, "internal": False}
    broker.things["exchanges/%2F/jobs"] = {**other, "arguments": {}}
    server.create(EXCHANGES, "jobs", named(type="topic"))
    name = Name(EXCHANGES, "shop", "jobs")
    with running():
        server.wait("a conflict", that(name, lambda found: degraded(found) == "Conflict"))
        server.delete(EXCHANGES, "jobs")
        server.wait("its end", that(name, absent))
    assert broker.things["exchanges/%2F/jobs"]["type"] == "fanout"


def test_a_password_is_made_and_made_anew_on_request(world: World) -> None:
    server, broker = world
    server.create(USERS, "worker", named(tags=["monitoring"]))
    name = Name(USERS, "shop", "worker")
    with running():
        first = server.wait("the user", that(name, is_ready))
        assert first["status"]["credentials"] == {"name": "worker-user-credentials"}
        before = broker.things["users/worker"]
        assert before["tags"] == ["monitoring"]
        # What somebody sets in the broker is changed back.
        broker.things["users/worker"] = {**before, "password_hash": "of another one"}
        server.merge(USERS, "worker", {"spec": {"rotation": {"request": "now"}}})
        server.wait("another password", that(name, lambda found: _request(found) == "now"))
        server.wait("that it is as it says", that(name, is_ready))
    after = broker.things["users/worker"]
    assert after["password"] != before["password"]
    assert after["password_hash"] == f"hash of {after['password']}"


def test_the_log_says_nothing_of_every_event_that_is_seen(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = world
    server.create(VHOSTS, "orders", named())
    with caplog.at_level(logging.INFO), running():
        server.wait("the vhost", that(Name(VHOSTS, "shop", "orders"), is_ready))
    said = [each for each in caplog.records if each.name == "kopf.objects"]
    assert [each.getMessage() for each in said if each.levelno < logging.WARNING] == []


def test_what_is_as_it_should_be_is_not_written_again(world: World) -> None:
    server, _ = world
    server.create(VHOSTS, "orders", named())
    names = (Name(VHOSTS, "shop", "orders"), Name(CLUSTERS, "shop", "mill"))
    with running():
        for name in names:
            server.wait("that all is well", that(name, is_ready))
        server.do(lambda store: store.count_anew())
        server.wait("looks", lambda store: min(store.reads[name] for name in names) >= 3)
        written = server.do(lambda store: [each for each in store.patches if each[0] in names])
    assert written == []


def _request(found: Object | None) -> str:
    return str(((found or {}).get("status") or {}).get("rotationRequest", ""))
