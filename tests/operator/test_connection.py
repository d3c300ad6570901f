"""Addresses of a cluster's nodes, from their pods."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_operator.connection import node_target, node_url


def pod(ports: dict[str, int], address: str = "10.0.0.7") -> dict[str, Any]:
    rows = [{"name": name, "containerPort": port} for name, port in ports.items()]
    containers = [{"name": "sidecar"}, {"name": "broker", "ports": rows}]
    return {"spec": {"containers": containers}, "status": {"podIP": address}}


@pytest.mark.parametrize(
    ("ports", "url"),
    [
        ({"http": 15672}, "http://10.0.0.7:15672"),
        ({"https": 15671}, "https://10.0.0.7:15671"),
        ({"https": 15671, "http": 80}, "http://10.0.0.7:80"),
    ],
)
def test_a_pod_of_an_earlier_template_is_asked_where_that_listens(
    ports: dict[str, int], url: str
) -> None:
    assert node_url(pod(ports)) == url


def test_addresses_of_six_are_in_brackets() -> None:
    assert node_target(pod({"grpc": 7672}, "fd00::7"), "grpc") == "[fd00::7]:7672"
