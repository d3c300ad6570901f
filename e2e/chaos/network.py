"""Nodes in network namespaces, wired through a routing one that can drop packets.

Each node has a namespace of its own with one link to the hub. Cutting is a routing rule in the
hub, so it is silent, takes effect on packets of established connections too, and goes one way.

A namespace here has no name: it exists as long as this process holds its descriptor or a process
runs in it. Whatever ends the test, the kernel cleans up behind it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CLONE_NEWNET: Final = 0x40000000  # from <sched.h>
OWN_NAMESPACE: Final = "/proc/thread-self/ns/net"
SUBNET: Final = "10.199"  # node 3 is 10.199.3.2, its hub 10.199.3.1; nobody else sees them


class NetworkUnavailableError(Exception):
    """This process may not create network namespaces."""


def _system_call(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


class Namespace:
    """A new network namespace with its loopback up.

    Raises:
        NetworkUnavailableError: the kernel refuses to make one.
    """

    def __init__(self) -> None:
        self._descriptor = -1
        failures: list[OSError] = []
        # A thread of its own, because a thread that fails half-way could not go back.
        maker = threading.Thread(target=self._make, args=(failures,))
        maker.start()
        maker.join()
        if failures:
            raise NetworkUnavailableError(
                f"cannot create a network namespace: {failures[0]}; be root, or run this under "
                "`unshare --user --map-root-user --net`"
            )
        self.run("ip", "link", "set", "lo", "up")

    def _make(self, failures: list[OSError]) -> None:
        try:
            _system_call("unshare", CLONE_NEWNET)
            self._descriptor = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            failures.append(error)

    @property
    def path(self) -> str:
        """A path that names the namespace to other programs while this process runs."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make the calling thread's new sockets and child processes those of the namespace."""
        home = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _system_call("setns", self._descriptor, CLONE_NEWNET)
            try:
                yield
            finally:
                _system_call("setns", home, CLONE_NEWNET)
        finally:
            os.close(home)

    def run(self, *command: str) -> None:
        """Run a command in the namespace.

        Raises:
            FileNotFoundError: it is not installed; `ip` is in Debian's iproute2.
            AssertionError: it failed.
        """
        with self.entered():
            done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"

    def close(self) -> None:
        """Let go of it; it ends with the last process in it."""
        os.close(self._descriptor)


class Network:
    """A star of nodes around a hub.

    Args:
        count: how many nodes, called 1 to `count`.

    Raises:
        NetworkUnavailableError: namespaces are impossible here.
    """

    def __init__(self, count: int) -> None:
        self._cuts: set[tuple[int, int]] = set()
        self._throttled: set[int] = set()
        self._open = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            self._hub = self._namespace(undo)
            with self._hub.entered():
                Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            self.nodes = {node: self._namespace(undo) for node in range(1, count + 1)}
            for node in self.nodes:
                self._wire(node)
            self._open = undo.pop_all()

    def _namespace(self, undo: contextlib.ExitStack) -> Namespace:
        made = Namespace()
        undo.callback(made.close)
        return made

    def _wire(self, node: int) -> None:
        hub, inside = f"{SUBNET}.{node}.1", self.nodes[node]
        link = f"n{node}"
        peer = ("peer", "name", "hub", "netns", inside.path)
        self._hub.run("ip", "link", "add", link, "type", "veth", *peer)
        self._hub.run("ip", "addr", "add", f"{hub}/24", "dev", link)
        self._hub.run("ip", "link", "set", link, "up")
        inside.run("ip", "addr", "add", f"{self.address(node)}/24", "dev", "hub")
        inside.run("ip", "link", "set", "hub", "up")
        inside.run("ip", "route", "add", "default", "via", hub)

    def address(self, node: int) -> str:
        """A node's address for the other nodes."""
        return f"{SUBNET}.{node}.2"

    def cut(self, source: int, target: int) -> None:
        """Drop what goes from one node to another; the other direction stays as it is."""
        if (source, target) not in self._cuts:
            self._rule("add", source, target)
            self._cuts.add((source, target))

    def throttle(self, node: int, kbit: int) -> None:
        """Limit a node's link to so many kbit/s each way; more waits, and then is dropped.

        Raises:
            AssertionError: the kernel has no token bucket filter.
        """
        self._throttled.add(node)
        for where, device in self._ends(node):
            limit = ("rate", f"{kbit}kbit", "burst", "32kb", "latency", "400ms")
            where.run("tc", "qdisc", "replace", "dev", device, "root", "tbf", *limit)

    def _ends(self, node: int) -> tuple[tuple[Namespace, str], ...]:
        return (self.nodes[node], "hub"), (self._hub, f"n{node}")

    def heal(self, source: int, target: int) -> None:
        """Undo a cut, if there is one."""
        if (source, target) in self._cuts:
            self._rule("del", source, target)
            self._cuts.remove((source, target))

    def heal_all(self) -> None:
        """Undo all cuts and rate limits."""
        for node in sorted(self._throttled):
            for where, device in self._ends(node):
                where.run("tc", "qdisc", "del", "dev", device, "root")
        self._throttled.clear()
        for source, target in sorted(self._cuts):
            self.heal(source, target)

    def _rule(self, action: str, source: int, target: int) -> None:
        where = ("from", self.address(source), "to", self.address(target))
        self._hub.run("ip", "rule", action, *where, "blackhole")

    def close(self) -> None:
        """Take everything down; processes in it keep their loopback until they end."""
        self._open.close()
