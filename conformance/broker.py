"""The brokers that suites run against, each fresh, on loopback addresses of its own.

Some suites know no other ports than AMQP's 5672 and 5671, so that a broker gets an address of the
127.0.0.0/8 network rather than ports: nothing else on the machine is in its way, or it in others'.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from conformance.certificate import Certificates
from headrace_broker.cli.local_cluster import ClusterError, LocalCluster, LocalNode

AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671
HTTP_PORT: Final = 15672
GRPC_PORT: Final = 7101
PORT_STEP: Final = 10  # between brokers that a suite starts beside each other
READY_SECONDS_MAX: Final = 120.0  # a loaded machine starts slowly
POLL_SECONDS: Final = 0.2
LANES_MAX: Final = 8  # suites that run beside each other
RABBIT_HOST: Final = "127.0.83.9"
RABBIT_BIN: Final = Path("/usr/lib/rabbitmq/bin")


def headrace_hosts(lane: int) -> tuple[str, str, str]:
    """Return where the three nodes of a lane, 0 to LANES_MAX - 1, are."""
    return f"127.0.83.{10 * lane + 1}", f"127.0.83.{10 * lane + 2}", f"127.0.83.{10 * lane + 3}"


class BrokerError(Exception):
    """A broker did not start or stop; the text has its output."""


class Address(Struct, frozen=True):
    """Address of a broker for clients."""

    host: str
    port: int
    tls_port: int
    http_port: int

    @classmethod
    def at(cls, host: str, number: int) -> Address:
        """Return the ports of the broker of that number at a host."""
        shift = number * PORT_STEP
        return cls(host, AMQP_PORT + shift, AMQPS_PORT + shift, HTTP_PORT + shift)


class Broker(Protocol):
    """A broker that can be started on empty data, broken and stopped."""

    address: Address

    def start(self) -> None:
        """Start on the data that is there, empty at first, and wait until it takes clients."""

    def stop(self) -> None:
        """Stop as an operator does; the data stays."""

    def kill(self) -> None:
        """End without warning; the data stays."""

    def remove(self) -> None:
        """Stop if it runs, and remove the data."""


class Headrace:
    """Three nodes; clients meet the first one.

    Args:
        data: its directory.
        number: which of the brokers beside each other; tells the ports.
        certificates: what its TLS listener shows and trusts.
        hosts: of its nodes.
    """

    name = "headrace"

    def __init__(
        self, data: Path, number: int, certificates: Certificates, hosts: tuple[str, str, str]
    ) -> None:
        tls = {
            "certificate_file": str(certificates.server),
            "key_file": str(certificates.server_key),
            "ca_file": str(certificates.authority),
            "verify": "peer",
        }
        self.address = Address.at(hosts[0], number)
        self._data = data
        self._local = LocalCluster(data, len(hosts))
        self._local.nodes = tuple(
            LocalNode(
                id=node.id,
                name=node.name,
                directory=node.directory,
                amqp=f"{host}:{self.address.port}",
                http=f"{host}:{self.address.http_port}",
                peer=f"{host}:{GRPC_PORT + number * PORT_STEP}",
                amqps=f"{host}:{self.address.tls_port}",
                tls=tls,
            )
            for node, host in zip(self._local.nodes, hosts, strict=True)
        )

    def start(self) -> None:
        """Start the nodes and wait until all take clients."""
        try:
            self._local.start()
            self._local.wait_ready(READY_SECONDS_MAX)
        except ClusterError as error:
            raise BrokerError(str(error)) from error

    def stop(self) -> None:
        """Stop all nodes."""
        killed = self._local.stop()
        if killed:
            raise BrokerError(f"nodes did not stop when told to: {killed}")

    def kill(self) -> None:
        """SIGKILL all nodes at once."""
        for node in self._local.nodes:
            record = node.process()
            if record is not None:
                os.kill(record.pid, signal.SIGKILL)
        wait_until("the nodes' end", lambda: not any(node.process() for node in self._local.nodes))

    def remove(self) -> None:
        """Stop the nodes and remove their data."""
        self.stop()
        shutil.rmtree(self._data, ignore_errors=True)


class RabbitMQ:
    """One node of Debian's rabbitmq-server, with an epmd of its own.

    Args:
        data: its directory.
        number: which of the brokers beside each other; tells the ports.
        certificates: what its TLS listener shows and trusts.
    """

    name = "rabbitmq"

    def __init__(self, data: Path, number: int, certificates: Certificates) -> None:
        if not (RABBIT_BIN / "rabbitmq-server").exists():
            raise BrokerError("rabbitmq-server is not installed: apt-get install rabbitmq-server")
        self.address = Address.at(RABBIT_HOST, number)
        self._data = data
        self._number = number
        self._certificates = certificates
        self._server: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self._epmd_port = 11369 + number

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._data),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"conformance{self._number}@localhost",
            "RABBITMQ_DIST_PORT": str(11772 + self._number),
            "RABBITMQ_MNESIA_BASE": str(self._data / "db"),
            "RABBITMQ_LOG_BASE": str(self._data / "log"),
            "RABBITMQ_PID_FILE": str(self._data / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._data / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self._data / "no-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(self._data / "rabbitmq.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _configuration(self) -> str:
        place, files = self.address, self._certificates
        return f"""\
listeners.tcp.1 = {place.host}:{place.port}
listeners.ssl.1 = {place.host}:{place.tls_port}
ssl_options.cacertfile = {files.authority}
ssl_options.certfile = {files.server}
ssl_options.keyfile = {files.server_key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
management.tcp.ip = {place.host}
management.tcp.port = {place.http_port}
disk_free_limit.absolute = 50MB
loopback_users = none
"""

    def control(self, *arguments: str) -> None:
        """Run rabbitmqctl.

        Raises:
            BrokerError: it failed, or took too long.
        """
        try:
            done = subprocess.run(
                [str(RABBIT_BIN / "rabbitmqctl"), "-q", *arguments],
                env=self._environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=READY_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired as late:
            raise BrokerError(f"rabbitmqctl {' '.join(arguments)}: no end") from late
        if done.returncode != 0:
            raise BrokerError(f"rabbitmqctl {' '.join(arguments)}: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start the node, or its application if only that was stopped."""
        if self._server is not None:
            self.control("start_app")
            return
        self._data.mkdir(parents=True, exist_ok=True)
        (self._data / "plugins").write_text("[rabbitmq_management].\n")
        (self._data / "rabbitmq.conf").write_text(self._configuration())
        with (self._data / "out").open("ab") as output:
            if self._epmd is None:
                epmd = ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"]
                self._epmd = subprocess.Popen(epmd, stdout=output, stderr=output)
            server = [str(RABBIT_BIN / "rabbitmq-server")]
            self._server = subprocess.Popen(
                server,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_until("rabbitmq-server", self._is_up)

    def _is_up(self) -> bool:
        if self._server is not None and self._server.poll() is not None:
            raise BrokerError((self._data / "out").read_text(encoding="utf-8", errors="replace"))
        try:
            self.control("await_startup", "--timeout", "30")
        except BrokerError:
            return False
        return True

    def stop(self) -> None:
        """Stop the application; its virtual machine stays."""
        self.control("stop_app")

    def kill(self) -> None:
        """SIGKILL the node."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._server = None

    def remove(self) -> None:
        """Stop node and epmd, and remove the data."""
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
        shutil.rmtree(self._data, ignore_errors=True)


def make_broker(
    name: str, data: Path, number: int, certificates: Certificates, lane: int
) -> Broker:
    """Return a broker by name, not started."""
    if name == RabbitMQ.name:
        return RabbitMQ(data, number, certificates)
    return Headrace(data, number, certificates, headrace_hosts(lane))


def wait_until(what: str, check: Callable[[], bool]) -> None:
    """Poll `check` until it is true.

    Raises:
        BrokerError: it did not become true in READY_SECONDS_MAX.
    """
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not check():
        if time.monotonic() > deadline:
            raise BrokerError(f"waited {READY_SECONDS_MAX:.0f} s for {what}")
        time.sleep(POLL_SECONDS)
