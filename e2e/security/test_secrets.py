"""No secret is in what nodes write, answer, count or show in the process list.

Known passwords are used on every interface, rightly and wrongly; then everything that a node puts
out is looked through for them, as they are and in the forms in which protocols carry them.
"""

from __future__ import annotations

import base64
import http.client
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import grpc
import pika
import pytest
from e2e.harness.cluster import Cluster, wait_for

from headrace_broker.cli.session.api_client import ApiClient, path_of
from headrace_protos.broker.v1 import topology_pb2
from headrace_protos.broker.v1.messaging_pb2 import GetRequest
from headrace_protos.broker.v1.messaging_pb2_grpc import MessagingStub
from headrace_protos.broker.v1.topology_pb2_grpc import TopologyStub

USER: Final = "keeper"
RIGHT: Final = "Right-pa55word-f0r-keeper"
CHANGED: Final = "Changed-pa55word-f0r-keeper"
WRONG: Final = "Wr0ng-pa55word-of-keeper"
BODY: Final = "what-a-message-says-7c1b"
COOKIE: Final = "session-made-up-4e1d"
SECRETS: Final = (RIGHT, CHANGED, WRONG, BODY, COOKIE)
RIGHTS: Final = ("configure", "write", "read")
LIMIT_SECONDS: Final = 30.0


def forms(secret: str) -> set[str]:
    """A secret as it stands in URLs, headers, SASL and dumps."""
    login = f"{USER}:{secret}".encode()
    plain = b"\0" + USER.encode() + b"\0" + secret.encode()
    encoded = [base64.b64encode(each).decode() for each in (secret.encode(), login, plain)]
    return {secret, secret.encode().hex(), *encoded}


def use_http(address: str) -> list[str]:
    """Use passwords over HTTP; returns the answers."""
    host, _, port = address.rpartition(":")
    answers = []
    admin = ApiClient(address)
    for password in (RIGHT, CHANGED):
        body = {"password": password, "tags": ["administrator"]}
        admin.request("PUT", path_of("users", USER), body)
        for tried in (password, WRONG):
            client = ApiClient(address, USER, tried)
            paths = ("/api/whoami", "/api/users", "/api/nowhere")
            answers += [str(client.request("GET", path, seconds=LIMIT_SECONDS)) for path in paths]
    admin.request("PUT", path_of("permissions", "/", USER), dict.fromkeys(RIGHTS, ".*"))
    admin.request("PUT", path_of("users", USER), {"password": CHANGED, "tags": 5})
    broken = f'{{"password": "{WRONG}", "tags": '.encode()
    connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT_SECONDS)
    for method, path, data, headers in (
        ("PUT", f"/api/users/{USER}", broken, {}),
        ("GET", f"/api/whoami?password={WRONG}", b"", {}),
        ("GET", "/api/whoami", b"", {"Authorization": f"Bearer {WRONG}"}),
        ("GET", "/page/events", b"", {"Cookie": f"headrace={COOKIE}"}),
        ("POST", "/page/login", f'{{"user": "{USER}", "password": "{WRONG}"}}'.encode(), {}),
    ):
        connection.request(method, path, data, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        answers.append(f"{response.headers}\n{response.read().decode()}")
    connection.close()
    message = {"routing_key": "secrets", "payload": BODY, "properties": {}}
    publish = path_of("exchanges", "/", "amq.default", "publish")
    answers.append(str(ApiClient(address, USER, CHANGED).request("POST", publish, message)))
    return answers


def use_amqp(port: int) -> list[str]:
    """Use passwords over AMQP; returns why it was refused."""
    answers = []
    for password, vhost in ((CHANGED, "/"), (WRONG, "/"), (CHANGED, "nowhere")):
        login = pika.PlainCredentials(USER, password)
        try:
            pika.BlockingConnection(
                pika.ConnectionParameters("127.0.0.1", port, vhost, login)
            ).close()
        except pika.exceptions.AMQPError as error:
            answers.append(repr(error))
    return answers


def use_grpc(address: str) -> list[str]:
    """Use passwords over gRPC; returns the answers."""
    answers = []
    with grpc.insecure_channel(address) as channel:
        messaging: Any = MessagingStub(channel)
        topology: Any = TopologyStub(channel)
        for password in (CHANGED, WRONG):
            login = base64.b64encode(f"{USER}:{password}".encode()).decode()
            metadata = (("authorization", f"Basic {login}"),)
            for call, request in (
                (messaging.Get, GetRequest(vhost="/", queue="nowhere")),
                (topology.DeclareUser, topology_pb2.DeclareUserRequest(name="", password=WRONG)),
                (topology.DescribeUser, topology_pb2.DescribeUserRequest(name=USER)),
            ):
                try:
                    answers.append(str(call(request, metadata=metadata, timeout=LIMIT_SECONDS)))
                except grpc.RpcError as error:
                    answers.append(str(error))
    return answers


def use_commands(address: str, directory: Path) -> list[str]:
    """Give a password to a command, and make it fail; returns its output."""
    file = directory / "password"
    file.write_text(f"{CHANGED}\n", encoding="utf-8")
    answers = []
    for words in (
        ["user", "declare", USER, "--tags", "administrator", "--password-file", str(file)],
        ["user", "declare", "", "--password-file", str(file)],
    ):
        command = [sys.executable, "-m", "headrace_broker.cli", *words, "--api", address]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        answers += [done.stdout, done.stderr]
    return answers


def processes() -> str:
    """Command lines and environments of all readable processes."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                found.append((directory / name).read_bytes().decode("utf-8", "replace"))
            except OSError:
                continue  # it has ended, or is somebody else's
    return "\n".join(found)


@pytest.fixture
def said(shared_cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """Return a node's answers and output, by place, at its most verbose."""
    node = shared_cluster.node("n1")
    api = node.api
    before = len(shared_cluster.log("n1"))
    assert api.request("PUT", "/api/log-level", {"level": "debug"}).status == 204
    try:
        found = {
            "http": "\n".join(use_http(node.http)),
            "amqp": "\n".join(use_amqp(int(node.amqp.rpartition(":")[2]))),
            "grpc": "\n".join(use_grpc(node.grpc)),
            "commands": "\n".join(use_commands(node.http, tmp_path)),
            "processes": processes(),
        }
        for path in ("/metrics", "/api/connections", "/api/users", "/api/definitions"):
            host, _, port = node.http.rpartition(":")
            connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT_SECONDS)
            login = base64.b64encode(b"guest:guest").decode()
            connection.request("GET", path, headers={"Authorization": f"Basic {login}"})
            response = connection.getresponse()
            found[path] = response.read().decode()
            assert response.status == 200, found[path]
            connection.close()
    finally:
        assert api.request("PUT", "/api/log-level", {"level": "info"}).status == 204
    wait_for("the last line", lambda: "level=info" in shared_cluster.log("n1")[before:])
    found["log"] = "\n".join(shared_cluster.log(each.name) for each in shared_cluster.local.nodes)
    assert api.request("DELETE", path_of("users", USER)).status == 204
    return found


def test_no_secret_is_in_what_nodes_put_out(said: dict[str, str]) -> None:
    leaks = [
        (where, secret)
        for where, text in said.items()
        for secret in SECRETS
        for form in forms(secret)
        if form in text
    ]
    assert leaks == []
    # What was used is there, so that the right places were looked at.
    for where in ("http", "grpc", "/api/users", "/api/definitions", "log"):
        assert USER in said[where]
    assert f"action=login target={USER} outcome=refused" in said["log"]
    assert f"user={USER}" in said["log"]
