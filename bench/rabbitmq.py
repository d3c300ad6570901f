"""Three RabbitMQ nodes on loopback with data of their own: Debian's, or a later Debian's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from peers import NODE_COUNT, PeerError, descendants, end_all, run, wait_until

RABBIT_PORT: Final = 26672  # AMQP port of the first node
TREE_PORT: Final = 24672  # likewise, of the later Debian's
DISTRIBUTION_OFFSET: Final = 100  # AMQP 26672 -> Erlang distribution 26772
EPMD_OFFSET: Final = -303  # AMQP 26672 -> epmd 26369
RABBIT_BIN: Final = Path("/usr/lib/rabbitmq/bin")
LATER_DEBIAN: Final = "trixie"
MIRROR: Final = "http://deb.debian.org/debian"  # where apt has none configured
TREE_SECONDS_MAX: Final = 1800  # to fetch and unpack a later Debian
# A shell gets the tree as $0; what it mounts is gone with it.
ENTER: Final = 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"'


def is_erlang(pid: int) -> bool:
    """Tell whether a process is an Erlang machine."""
    return Path(f"/proc/{pid}/comm").read_text().strip() == "beam.smp"


class RabbitMQ:
    """Three nodes of Debian's rabbitmq-server with an epmd of their own.

    Args:
        directory: for their data.
        base_port: AMQP port of the first node.

    Raises:
        PeerError: rabbitmq-server is not installed.
    """

    name = "rabbitmq"
    load = "amqpload"

    def __init__(self, directory: Path, base_port: int = RABBIT_PORT) -> None:
        self.directory = directory
        self.ports = [base_port + number for number in range(NODE_COUNT)]
        self._epmd_port = str(base_port + EPMD_OFFSET)
        self._servers: list[subprocess.Popen[bytes]] = []
        self._prepare()

    def _prepare(self) -> None:
        if not (RABBIT_BIN / "rabbitmq-server").exists():
            raise PeerError("rabbitmq-server is not installed: apt-get install rabbitmq-server")

    def _command(self, program: str, *args: str) -> list[str]:
        """Return what runs a program where RabbitMQ is installed."""
        return [program, *args]

    def _inside(self, path: Path) -> str:
        """Return a path below `directory` as the nodes see it."""
        return str(path)

    def _env(self, number: int) -> dict[str, str]:
        home = Path(self._inside(self.directory / f"r{number}"))
        return {
            "PATH": os.environ["PATH"],
            "HOME": self._inside(self.directory),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": self._epmd_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{number}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.ports[number]),
            "RABBITMQ_DIST_PORT": str(self.ports[number] + DISTRIBUTION_OFFSET),
            "RABBITMQ_MNESIA_BASE": str(home / "db"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "no-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _ctl(self, number: int, *args: str) -> str:
        command = self._command(str(RABBIT_BIN / "rabbitmqctl"), "-q", *args)
        return run(command, self._env(number))

    def _is_up(self, number: int) -> bool:
        try:
            self._ctl(number, "await_startup", "--timeout", "20")
        except PeerError:
            return False
        return True

    def start(self) -> None:
        """Start on an empty data directory and join the nodes."""
        shutil.rmtree(self.directory, ignore_errors=True)
        for number in range(NODE_COUNT):
            home = self.directory / f"r{number}"
            home.mkdir(parents=True)
            (home / "plugins").write_text("[].\n")
            (home / "rabbitmq.conf").write_text("disk_free_limit.absolute = 50MB\n")
            server = self._command(str(RABBIT_BIN / "rabbitmq-server"))
            env = self._env(number)
            with (home / "out").open("wb") as log:
                self._servers.append(subprocess.Popen(server, env=env, stdout=log, stderr=log))
        for number in range(NODE_COUNT):
            wait_until(f"{self.name} node {number}", partial(self._is_up, number))
        for number in range(1, NODE_COUNT):
            self._ctl(number, "stop_app")
            self._ctl(number, "join_cluster", "bench0@localhost")
            self._ctl(number, "start_app")

    def stop(self) -> None:
        """Stop all nodes and their epmd, and remove their data."""
        servers, self._servers = self._servers, []
        port = self._epmd_port
        try:
            for number, server in enumerate(servers):
                if server.poll() is None:
                    self._ctl(number, "stop")
        finally:
            try:
                end_all(servers)
            finally:
                command = self._command("epmd", "-port", port, "-kill")
                run(command, {**os.environ, "ERL_EPMD_PORT": port})
                shutil.rmtree(self.directory, ignore_errors=True)

    def pids(self) -> list[int]:
        """Return the nodes' Erlang machines."""
        return [
            pid for server in self._servers for pid in descendants(server.pid) if is_erlang(pid)
        ]

    def limit_memory(self, byte_count: int) -> None:
        """Set the memory watermark of all nodes."""
        for number in range(NODE_COUNT):
            self._ctl(number, "set_vm_memory_high_watermark", "absolute", str(byte_count))

    def version(self) -> str:
        """Return name and version for the report."""
        query = self._command("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server")
        return f"rabbitmq-server {run(query, dict(os.environ)).strip()}"


class LaterRabbitMQ(RabbitMQ):
    """The rabbitmq-server of a later Debian, in a tree of its own that is kept between runs.

    Args:
        tree: of directories, made by debootstrap where it is not there.
        base_port: AMQP port of the first node.

    Raises:
        PeerError: debootstrap is not installed or failed, or this process is not root.
    """

    name = "rabbitmq-later"

    def __init__(self, tree: Path, base_port: int = TREE_PORT) -> None:
        self._tree = tree
        super().__init__(tree / "srv" / "bench", base_port)

    def _prepare(self) -> None:
        if os.geteuid() != 0:
            raise PeerError("only root can run a later Debian in a tree of its own")
        if self._tree.exists():
            return
        if shutil.which("debootstrap") is None:
            raise PeerError("debootstrap is not installed: apt-get install debootstrap")
        part = self._tree.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        make = ("unshare", "--mount", "debootstrap", "--variant=minbase")
        what = ("--include=rabbitmq-server", LATER_DEBIAN, str(part), mirror())
        run([*make, *what], dict(os.environ), TREE_SECONDS_MAX)
        part.rename(self._tree)

    def _command(self, program: str, *args: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", ENTER, str(self._tree), program, *args]

    def _inside(self, path: Path) -> str:
        return f"/{path.relative_to(self._tree)}"

    def start(self) -> None:
        """Start on an empty data directory and join the nodes."""
        shutil.copy("/etc/hosts", self._tree / "etc" / "hosts")
        super().start()


def mirror() -> str:
    """Return the first Debian mirror that apt is configured with."""
    more = sorted(Path("/etc/apt/sources.list.d").glob("*"))
    for each in (Path("/etc/apt/sources.list"), *more):
        text = each.read_text() if each.suffix in (".list", ".sources") and each.exists() else ""
        for found in re.finditer(r"^(?:URIs:|deb\s).*?(https?://\S+/debian)/?(?:\s|$)", text, re.M):
            return found[1]
    return MIRROR
