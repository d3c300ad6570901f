"""A real node that serves AMQP over TLS."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from e2e.harness.authority import Authority, Pair
from e2e.harness.cluster import wait_for
from e2e.harness.ports import free_block
from pika.credentials import ExternalCredentials

from headrace_broker.cli.session.api_client import ApiClient
from headrace_client.blocking import Client, Tls

SERVE = (sys.executable, "-P", "-m", "headrace_broker.cli", "serve")


class Node:
    """A node of its own, and the files that it reads."""

    def __init__(self, directory: Path, base_port: int) -> None:
        self.directory = directory
        self.amqps = base_port
        self.http = base_port + 1
        self.grpcs = base_port + 3
        self.https = base_port + 4
        self.config = directory / "node.toml"
        self.authority = Authority(directory)
        self.client = self.authority.sign("/CN=guest", "client")
        self.show(self.authority.sign("/CN=localhost", "first"))
        self.config.write_text(f"""\
[node]
id = 1
name = "n1"
data_dir = "{directory / "store"}"
[cluster]
nodes = [{{ id = 1, name = "n1", address = "127.0.0.1:{base_port + 2}" }}]
[limits]
disk_free_bytes_min = 0
[listeners]
grpc = ""
grpcs = "127.0.0.1:{self.grpcs}"
amqp = ""
amqps = "127.0.0.1:{self.amqps}"
http = "127.0.0.1:{self.http}"
https = "127.0.0.1:{self.https}"
[tls]
certificate_file = "{directory / "server.pem"}"
key_file = "{directory / "server.key"}"
ca_file = "{self.authority.file}"
verify = "peer"
fail_if_no_peer_cert = true
login_from = "common_name"
""")

    def show(self, pair: Pair) -> None:
        """Put a certificate where the node reads its own."""
        (self.directory / "server.pem").write_bytes(pair.certificate.read_bytes())
        (self.directory / "server.key").write_bytes(pair.key.read_bytes())

    def command(self) -> list[str]:
        return [*SERVE, "--config", str(self.config)]

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        context.load_cert_chain(self.client.certificate, self.client.key)
        return context

    def connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                self.amqps,
                ssl_options=pika.SSLOptions(self.context(), "localhost"),
                credentials=ExternalCredentials(),
            )
        )

    def connect_grpc(self) -> Client:
        files = (self.authority.file, self.client.certificate, self.client.key)
        tls = Tls(*files, server_name="localhost")
        return Client.connect(f"127.0.0.1:{self.grpcs}", user=None, tls=tls)

    def shown(self) -> bytes | None:
        """The certificate that a new connection is shown."""
        plain = socket.create_connection(("127.0.0.1", self.amqps), timeout=20)
        with plain, self.context().wrap_socket(plain, server_hostname="localhost") as client:
            return client.getpeercert(binary_form=True)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, free_block(5))


@contextlib.contextmanager
def running(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    with (
        (node.directory / "node.log").open("ab") as output,
        subprocess.Popen(node.command(), stdout=output, stderr=output) as process,
    ):
        api = ApiClient(f"127.0.0.1:{node.http}")
        try:
            wait_for("the node", lambda: process.poll() is None and not api.not_ready_reason())
            yield process
        finally:
            process.terminate()
            process.wait(20)


def test_a_client_logs_in_with_its_certificate_and_outlives_a_renewal(node: Node) -> None:
    with running(node) as process, node.connect() as lasting, node.connect_grpc() as lasting_grpc:
        channel = lasting.channel()
        channel.queue_declare("q", durable=True)
        before = node.shown()
        node.show(node.authority.sign("/CN=localhost", "second"))
        os.kill(process.pid, signal.SIGHUP)
        wait_for("the new certificate", lambda: node.shown() != before)
        with node.connect() as later:
            later.channel().basic_publish("", "q", b"hello")
        wait_for("the message", lambda: channel.basic_get("q", auto_ack=True)[2] == b"hello")
        for client in (lasting_grpc, node.connect_grpc()):
            with client, client.publisher(routing_key="q") as publisher:
                publisher.publish(b"hello").wait()
            assert channel.basic_get("q", auto_ack=True)[2] == b"hello"
    assert process.returncode == 0


def test_commands_speak_tls_to_all_listeners(node: Node, tmp_path: Path) -> None:
    place = {
        "HEADRACE_API": f"localhost:{node.https}",
        "HEADRACE_API_CA_FILE": str(node.authority.file),
        "HEADRACE_API_CERT_FILE": str(node.client.certificate),
        "HEADRACE_API_KEY_FILE": str(node.client.key),
    }

    def run(*words: str, code: int = 0, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "headrace_broker.cli", *words],
            env={**os.environ, **place, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    with running(node):
        run("queue", "declare", "q")
        listeners = {"amqp": f"localhost:{node.amqps}", "grpc": f"localhost:{node.grpcs}"}
        for protocol, address in listeners.items():
            to = ("--protocol", protocol, "--address", address)
            run("publish", "q", protocol, *to)
            run("perf", "--seconds", "1", "--rate", "50", *to)
        backup = str(tmp_path / "backup")
        assert "2 messages of 1 queue" in run("backup", backup, "-q", "^q$")
        run("queue", "delete", "q")
        run("restore", backup, "--grpc", listeners["grpc"])
        taken = run("consume", "q", "--until-empty", "--address", listeners["amqp"])
        assert taken.split() == ["amqp", "grpc"]
        assert "q" in run("ctl", "list_queues", "name")

        stranger = str(Authority(tmp_path, "stranger").file)
        for words in (
            ("queue", "list"),
            ("publish", "q", "x", "--address", listeners["amqp"]),
            ("publish", "q", "x", "--address", listeners["grpc"], "--protocol", "grpc"),
        ):
            run(*words, code=5, HEADRACE_API_CA_FILE=stranger)
        missing = str(tmp_path / "missing.pem")
        assert missing in run("queue", "list", "--ca-file", missing, code=2)


def test_a_node_with_a_bad_file_says_what_is_wrong_and_does_not_start(node: Node) -> None:
    key = node.directory / "server.key"
    key.write_text("nonsense")
    ended = subprocess.run(node.command(), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"tls.key_file: {key}: holds no PEM key that key_password opens" in ended.stderr
    assert not (node.directory / "store").exists()
