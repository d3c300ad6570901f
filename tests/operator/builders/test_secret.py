"""Secrets: created and kept parts, and certificates that nodes really accept."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace_broker.config.tls import ClusterTlsSection
from headrace_broker.runtime.security.cluster_tls import ClusterTls
from headrace_operator.builders.certificate import (
    CertificateError,
    Pair,
    issue,
    new_authority,
    read,
    read_pair,
)
from headrace_operator.builders.renewal import SETTLE
from headrace_operator.builders.secret import (
    client_certificate,
    decoded,
    default_user_secret,
    join_secret,
    new_join_secret,
    new_password,
    node_certificates,
    node_secret_problem,
)

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


class Store:
    """Secrets as the API server keeps them."""

    def __init__(self) -> None:
        self.secrets: dict[str, Any] = {}

    def data(self, name: str) -> dict[str, bytes]:
        return decoded(self.secrets.get(name))

    def renew(self, cluster: Any, now: datetime) -> str:
        """Renew the nodes' certificates; return the actions."""
        names = (cluster.node_authority_secret, cluster.node_tls_secret)
        done = node_certificates(cluster, now, self.data(names[0]), self.data(names[1]))
        for manifest in done.manifests:
            self.secrets[manifest["metadata"]["name"]] = manifest
        return done.reason


def test_the_default_user_has_all_that_a_client_needs(make_cluster: Any) -> None:
    secret = default_user_secret(make_cluster(), "s3cret")
    assert secret["metadata"]["name"] == "mill-default-user"
    found = decoded(secret)
    assert found["username"] == b"admin"
    assert found["uri"] == b"amqp://admin:s3cret@mill.shop.svc:5672/%2F"
    secure = make_cluster({"tls": {"clients": {"mode": "Operator", "plain": False}}})
    assert decoded(default_user_secret(secure, "x"))["uri"].startswith(b"amqps://")
    assert len(new_password()) == 32
    assert new_password() != new_password()


def test_every_node_gets_a_certificate_that_names_it(make_cluster: Any, tmp_path: Path) -> None:
    store, cluster = Store(), make_cluster()
    assert "new authority" in store.renew(cluster, NOW)
    data = store.data("mill-node-tls")
    assert sorted(data) == sorted(
        ["ca.crt", *[f"mill-{n}.{end}" for n in range(3) for end in ("crt", "key")]]
    )
    for name, raw in data.items():
        (tmp_path / name).write_bytes(raw)
    for node in ("mill-0", "mill-1", "mill-2"):
        section = ClusterTlsSection(
            certificate_file=str(tmp_path / f"{node}.crt"),
            key_file=str(tmp_path / f"{node}.key"),
            ca_file=str(tmp_path / "ca.crt"),
        )
        assert ClusterTls(section, node).certificate is not None
    assert "mill-node-ca" not in str(data)


def test_what_is_there_and_good_is_kept(make_cluster: Any) -> None:
    store, cluster = Store(), make_cluster()
    store.renew(cluster, NOW)
    before = dict(store.secrets)
    assert store.renew(cluster, NOW + DAY) == ""
    assert store.secrets == before


def test_a_node_that_comes_gets_a_certificate_and_one_that_went_has_none(make_cluster: Any) -> None:
    store = Store()
    store.renew(make_cluster(), NOW)
    first = store.data("mill-node-tls")
    assert store.renew(make_cluster({"replicas": 5}), NOW) == (
        "certificates issued: mill-3, mill-4"
    )
    found = store.data("mill-node-tls")
    assert {name: found[name] for name in first} == first
    store.renew(make_cluster({"replicas": 1}), NOW)
    assert sorted(store.data("mill-node-tls")) == ["ca.crt", "mill-0.crt", "mill-0.key"]


def test_the_authority_is_replaced_while_both_are_believed(make_cluster: Any) -> None:
    life = {"tls": {"certificates": {"days": 10, "renewBeforeDays": 5, "authorityDays": 20}}}
    store, cluster = Store(), make_cluster(life)
    store.renew(cluster, NOW)
    old = store.data("mill-node-tls")["ca.crt"]
    late = NOW + 5 * DAY
    assert "new authority" in store.renew(cluster, late)
    both = store.data("mill-node-tls")["ca.crt"]
    assert both.endswith(old)
    assert both != old
    store.renew(cluster, late + SETTLE)
    assert store.data("mill-node-tls")["ca.crt"] == both
    assert store.renew(cluster, late + 2 * SETTLE) == "an old authority is believed no more"
    assert store.data("mill-node-tls")["ca.crt"] + old == both
    assert sorted(store.data("mill-node-ca")) == ["tls.crt", "tls.key"]


@pytest.mark.parametrize(
    "damage", [{"mill-0.key": b"x"}, {"mill-0.crt": b""}, {"mill-0.crt": b"other's"}]
)
def test_what_somebody_damaged_is_made_anew(make_cluster: Any, damage: dict[str, bytes]) -> None:
    cluster, store = make_cluster(), Store()
    store.renew(cluster, NOW)
    data = {**store.data("mill-node-tls"), **damage}
    if damage == {"mill-0.crt": b"other's"}:
        data["mill-0.crt"] = data["mill-1.crt"]
    done = node_certificates(cluster, NOW, store.data("mill-node-ca"), data)
    assert done.reason == "certificates issued: mill-0"


def test_clients_verify_the_name_that_they_connect_to(make_cluster: Any, tmp_path: Path) -> None:
    clients = {"mode": "Operator", "extraNames": ["mq.example", "10.9.8.7"]}
    cluster = make_cluster({"tls": {"clients": clients}})
    done = client_certificate(cluster, NOW, {}, {})
    data = decoded(done.manifests[1])
    for name, raw in data.items():
        (tmp_path / name).write_bytes(raw)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    for name in ("mill.shop.svc", "mill-1.mill-nodes.shop.svc", "mq.example", "10.9.8.7"):
        handshake(server, client, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client, "mill.other.svc")
    assert read(data["tls.crt"]).not_after == NOW + 90 * DAY
    assert done.status.not_after == (NOW + 90 * DAY).strftime("%Y-%m-%dT%H:%M:%SZ")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Shake hands in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done = [False, False]
    for _ in range(10):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done[number] = True
            except ssl.SSLWantReadError:
                continue
    assert all(done)


def test_a_secret_of_others_is_judged(make_cluster: Any) -> None:
    cluster = make_cluster({"tls": {"internal": {"mode": "Secret", "secretName": "nodes"}}})
    authority = new_authority("somebody", NOW, 10)
    pair = issue(authority, "nodes", ["mill-0", "mill-1", "mill-2"], NOW, 5)
    good = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
    assert node_secret_problem(cluster, good) == ""
    assert node_secret_problem(cluster, {}) == "Secret nodes has no tls.crt"
    other = {**good, "tls.key": authority.key}
    assert "the key is not the certificate's" in node_secret_problem(cluster, other)
    more = cluster._replace(nodes=5)
    assert node_secret_problem(more, good).endswith("names lack mill-3, mill-4")


def test_a_certificate_ends_with_its_authority_at_the_latest() -> None:
    authority = new_authority("a", NOW, 3)
    assert read(issue(authority, "b", ["b"], NOW, 5).certificate).not_after == NOW + 3 * DAY
    assert read(authority.certificate).made_at == NOW


def test_what_is_no_certificate_is_refused() -> None:
    with pytest.raises(CertificateError, match="not a certificate in PEM"):
        read(b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")
    pair = new_authority("a", NOW, 3)
    with pytest.raises(CertificateError, match="not a key in PEM"):
        read_pair(Pair(pair.certificate, b""))
    with pytest.raises(CertificateError, match="not a certificate and its key"):
        issue(Pair(pair.certificate, b"x"), "b", ["b"], NOW, 1)


def test_nodes_are_given_a_secret_that_nobody_guesses(make_cluster: Any) -> None:
    cluster = make_cluster()
    first, second = new_join_secret(), new_join_secret()
    assert first != second
    assert len(first) >= 32
    found = join_secret(cluster, first)
    assert found["metadata"]["name"] == "mill-join"
    assert decoded(found) == {"secret": f"{first}\n".encode()}
