"""Connections of the operator to the nodes of a cluster, by the addresses of their pods."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace_operator.broker_api import BrokerApi, BrokerError, Endpoint
from headrace_operator.builders.cluster import Cluster, ordinal_of
from headrace_operator.builders.container import NAME
from headrace_operator.builders.secret import decoded
from headrace_operator.operator_context import Operator

Manifest = dict[str, Any]


async def connect(operator: Operator, cluster: Cluster, pods: Sequence[Manifest]) -> BrokerApi:
    """Return a client of a cluster's nodes, by the administrator that its Secret names.

    Args:
        operator: what handlers need.
        cluster: the cluster.
        pods: its pods; those that are ready are asked first.

    Raises:
        BrokerError: the Secret has no name and password.
        KubeError: the API server does not answer, or refuses.
    """
    name = cluster.default_user_secret
    user = decoded(await operator.kube.get("v1", "Secret", cluster.namespace, name))
    if not user.get("username") or not user.get("password"):
        raise BrokerError(0, f"Secret {name} has no username and password")
    rows = sorted(pods, key=lambda pod: (not is_ready(pod), ordinal_of(pod["metadata"]["name"])))
    urls = tuple([node_url(pod) for pod in rows if address_of(pod)])
    is_secure = any(url.startswith("https:") for url in urls)
    tls = await _tls(operator, cluster) if is_secure else None
    host = cluster.client_host if tls is not None else ""
    password = user["password"].decode()
    endpoint = Endpoint(urls, user["username"].decode(), password, tls, host)
    return BrokerApi(operator.session, endpoint)


def node_url(pod: Manifest) -> str:
    """Return where the node of a pod answers: in the clear if it can.

    What a pod listens on is what its own template said: while TLS is turned on or off, some pods
    are of the template before.
    """
    scheme = "http" if "http" in ports_of(pod) else "https"
    return f"{scheme}://{node_target(pod, scheme)}"


def node_target(pod: Manifest, port: str) -> str:
    """Return address and port of the node of a pod, the port by its name."""
    address = address_of(pod)
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{ports_of(pod)[port]}"


def ports_of(pod: Manifest) -> dict[str, int]:
    """Return the ports that the node of a pod listens on, by name."""
    containers = pod["spec"]["containers"]
    [broker] = [each for each in containers if each["name"] == NAME]
    return {each["name"]: each["containerPort"] for each in broker["ports"]}


def address_of(pod: Manifest) -> str:
    """Return the address of a pod, "" while it has none."""
    found: str = (pod.get("status") or {}).get("podIP") or ""
    return found


def is_ready(pod: Manifest) -> bool:
    """Return whether a pod takes clients."""
    rows = (pod.get("status") or {}).get("conditions") or []
    return any(row.get("type") == "Ready" and row.get("status") == "True" for row in rows)


async def _tls(operator: Operator, cluster: Cluster) -> ssl.SSLContext:
    """Return by what certificates are judged; the cluster's own is shown where one is asked for.

    Raises:
        BrokerError: the Secret has none.
    """
    name = cluster.client_tls_secret
    found = decoded(await operator.kube.get("v1", "Secret", cluster.namespace, name))
    authority = found.get("ca.crt", b"").decode()
    try:
        context = ssl.create_default_context(cadata=authority or None)
        if cluster.spec.tls.clients.verify != "None":
            _show(context, found)
    except (ssl.SSLError, KeyError) as error:
        raise BrokerError(0, f"Secret {name}: {error}") from error
    return context


def _show(context: ssl.SSLContext, secret: dict[str, bytes]) -> None:
    """Load a client certificate; the library reads them from files only.

    Raises:
        KeyError: the Secret has none.
        ssl.SSLError: what is in it is none.
    """
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory, name) for name in ("tls.crt", "tls.key")]
        for path in paths:
            path.touch(mode=0o600)
            path.write_bytes(secret[path.name])
        context.load_cert_chain(paths[0], paths[1])
