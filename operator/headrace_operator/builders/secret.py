"""Secrets: the administrator's password, authorities and certificates.

What is in them was made by chance once and is kept: functions take what is there, and say what is
to be there.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from headrace_operator.builders.certificate import (
    CertificateError,
    Facts,
    Pair,
    issue,
    new_authority,
    read,
    read_pair,
)
from headrace_operator.builders.cluster import Cluster, Manifest
from headrace_operator.builders.renewal import AUTHORITIES_MAX, Decision, decide
from headrace_operator.specs.cluster import CertificateStatus

DEFAULT_USERNAME: Final = "admin"
JOIN_KEY: Final = "secret"  # of the Secret by which nodes know each other
_PASSWORD_BYTES: Final = 24
_JOIN_BYTES: Final = 32
_AUTHORITY_KEYS: Final = ("tls", "previous")  # of a Secret with authorities, the newest first

Data = Mapping[str, bytes]  # of a Secret, decoded


class Renewed(NamedTuple):
    """New Secrets with an authority and its certificates.

    Attributes:
        manifests: of those that change; an authority comes before its certificates.
        next_at: when to look again at the latest.
        status: of the certificates.
        reason: what was done, for an event; "" for nothing.
    """

    manifests: list[Manifest]
    next_at: datetime
    status: CertificateStatus
    reason: str


def new_password() -> str:
    """Return a random password."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def default_user_secret(cluster: Cluster, password: str) -> Manifest:
    """Return the Secret with the administrator, and what clients have to know to connect.

    Its keys are those that the Service Binding specification names.
    """
    name = "amqp" if cluster.serves_plain else "amqps"
    port = cluster.ports[name]
    host = cluster.client_host
    data = {
        "type": "headrace",
        "provider": "headrace",
        "host": host,
        "port": str(port),
        "username": DEFAULT_USERNAME,
        "password": password,
        "uri": f"{name}://{DEFAULT_USERNAME}:{password}@{host}:{port}/%2F",
    }
    return _secret(cluster, cluster.default_user_secret, _byte_counts(data))


def new_join_secret() -> str:
    """Return a secret for nodes to know each other by."""
    return secrets.token_urlsafe(_JOIN_BYTES)


def join_secret(cluster: Cluster, secret: str) -> Manifest:
    """Return the Secret by which nodes know each other: their file, a line for each that counts."""
    return _secret(cluster, cluster.join_secret, _byte_counts({JOIN_KEY: f"{secret}\n"}))


def decoded(secret: Manifest | None) -> dict[str, bytes]:
    """Return the data of a Secret as the API server gives it, empty for None."""
    found = (secret or {}).get("data") or {}
    return {key: base64.b64decode(value) for key, value in found.items()}


def node_certificates(
    cluster: Cluster, now: datetime, authority: Data, certificates: Data
) -> Renewed:
    """Return what becomes of the certificates that nodes show each other.

    Args:
        cluster: whose `tls.internal.mode` is Operator.
        now: with a time zone.
        authority: what is in the Secret `cluster.node_authority_secret`.
        certificates: what is in the Secret `cluster.node_tls_secret`.
    """
    wanted = {
        cluster.pod(ordinal): frozenset([cluster.pod(ordinal), cluster.node_host(ordinal)])
        for ordinal in range(cluster.nodes)
    }
    names = (cluster.node_authority_secret, cluster.node_tls_secret)
    return _renewed(cluster, now, names, wanted, authority, certificates)


def client_certificate(
    cluster: Cluster, now: datetime, authority: Data, certificates: Data
) -> Renewed:
    """Return what becomes of the certificate that clients are shown; likewise.

    It is one for all nodes: clients do not care which of them they meet.
    """
    names = (cluster.client_authority_secret, cluster.client_tls_secret)
    wanted = {"tls": client_names(cluster)}
    return _renewed(cluster, now, names, wanted, authority, certificates)


def node_secret_problem(cluster: Cluster, certificates: Data) -> str:
    """Return why nodes cannot work with a certificate that others keep, "" if they can.

    Args:
        cluster: whose `tls.internal.mode` is Secret.
        certificates: what is in the Secret `cluster.node_tls_secret`.
    """
    name = cluster.node_tls_secret
    missing = [key for key in ("tls.crt", "tls.key", "ca.crt") if not certificates.get(key)]
    if missing:
        return f"Secret {name} has no {missing[0]}"
    try:
        found = read_pair(Pair(certificates["tls.crt"], certificates["tls.key"]))
    except CertificateError as error:
        return f"Secret {name}: tls.crt and tls.key: {error}"
    pods = [cluster.pod(ordinal) for ordinal in range(cluster.nodes)]
    unnamed = [pod for pod in pods if pod not in found.names]
    if unnamed:
        return f"Secret {name}: the certificate's alternative names lack {', '.join(unnamed)}"
    return ""


def client_names(cluster: Cluster) -> frozenset[str]:
    """Return the names that clients may know a cluster by."""
    found = ["localhost", "127.0.0.1", *(cluster.spec.tls.clients.extra_names or [])]
    short = f"{cluster.namespace}.svc"
    for service in (cluster.client_service, cluster.node_service):
        found += [f"{service}.{cluster.namespace}", f"{service}.{short}"]
        found.append(f"{service}.{cluster.service_domain}")
    found += [cluster.client_service, f"*.{cluster.node_service}.{short}"]
    found.append(f"*.{cluster.node_service}.{cluster.service_domain}")
    return frozenset(found)


def _renewed(
    cluster: Cluster,
    now: datetime,
    secret_names: tuple[str, str],
    wanted: Mapping[str, frozenset[str]],
    authority: Data,
    certificates: Data,
) -> Renewed:
    life = cluster.spec.tls.certificates
    pairs, facts = _authorities(authority)
    leaves = _leaves(wanted, certificates)
    decision = decide(now, life, wanted, facts, leaves)
    if decision.drop:
        pairs = [pair for pair, each in zip(pairs, facts, strict=True) if each.not_after > now][:1]
    if decision.new_authority:
        pairs = [new_authority(f"{cluster.name} {now:%Y-%m-%d}", now, life.authority_days), *pairs]
    pairs = pairs[:AUTHORITIES_MAX]
    issued = {
        name: issue(pairs[decision.issuer], name, wanted[name], now, life.days)
        for name in decision.issue
    }
    data = _certificate_data(pairs, wanted, certificates, issued)
    manifests = []
    if decision.new_authority or decision.drop:
        manifests.append(_secret(cluster, secret_names[0], _authority_data(pairs)))
    if data != dict(certificates):
        manifests.append(_secret(cluster, secret_names[1], data))
    ends = min(read(data[f"{name}.crt"]).not_after for name in wanted)
    status = CertificateStatus(
        name=secret_names[1],
        not_after=_timestamp(ends),
        renew_at=_timestamp(ends - timedelta(days=life.renew_before_days)),
    )
    return Renewed(manifests, decision.next_at, status, _reason(decision))


def _authorities(data: Data) -> tuple[list[Pair], list[Facts]]:
    """Return the authorities of a Secret; what cannot be read counts as none."""
    pairs: list[Pair] = []
    facts: list[Facts] = []
    for key in _AUTHORITY_KEYS:
        pair = Pair(data.get(f"{key}.crt", b""), data.get(f"{key}.key", b""))
        try:
            found = read_pair(pair)
        except CertificateError:
            continue
        pairs.append(pair)
        facts.append(found)
    return pairs, facts


def _leaves(wanted: Mapping[str, frozenset[str]], data: Data) -> dict[str, Facts]:
    """Return what the certificates say that can be read; the others are made anew."""
    found: dict[str, Facts] = {}
    for name in wanted:
        pair = Pair(data.get(f"{name}.crt", b""), data.get(f"{name}.key", b""))
        try:
            found[name] = read_pair(pair)
        except CertificateError:
            continue
    return found


def _authority_data(pairs: Sequence[Pair]) -> dict[str, bytes]:
    data: dict[str, bytes] = {}
    for key, pair in zip(_AUTHORITY_KEYS, pairs, strict=False):
        data[f"{key}.crt"] = pair.certificate
        data[f"{key}.key"] = pair.key
    return data


def _certificate_data(
    authorities: Sequence[Pair],
    wanted: Mapping[str, frozenset[str]],
    before: Data,
    issued: Mapping[str, Pair],
) -> dict[str, bytes]:
    """Return the new content of the Secret: only wanted certificates."""
    data = {"ca.crt": b"".join([pair.certificate for pair in authorities])}
    for name in wanted:
        pair = issued.get(name)
        if pair is None:
            pair = Pair(before[f"{name}.crt"], before[f"{name}.key"])
        data[f"{name}.crt"] = pair.certificate
        data[f"{name}.key"] = pair.key
    return data


def _reason(decision: Decision) -> str:
    parts = ["a new authority"] if decision.new_authority else []
    if decision.issue:
        parts.append(f"certificates issued: {', '.join(decision.issue)}")
    if decision.drop:
        parts.append("an old authority is believed no more")
    return "; ".join(parts)


def _secret(cluster: Cluster, name: str, data: Data) -> Manifest:
    found = cluster.manifest("v1", "Secret", name)
    encoded = {key: base64.b64encode(value).decode() for key, value in sorted(data.items())}
    return {**found, "type": "Opaque", "data": encoded}


def _byte_counts(data: Mapping[str, str]) -> dict[str, bytes]:
    return {key: value.encode() for key, value in data.items()}


def _timestamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
