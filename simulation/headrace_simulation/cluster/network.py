"""The simulated network: hosts, directed links, and TCP connections as their ends see them."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, final

from headrace_simulation.cluster.world import MS, NS, World

SEGMENT_BYTES: Final = 16 << 10
KERNEL_BYTES: Final = 256 << 10  # in each direction of a connection: not sent yet, and under way
RETRY_NS_MAX: Final = 1600 * MS  # TCP's patience between two attempts, at most
STALL_NS: Final = 210 * MS  # after which a lost segment comes again
USER_TIMEOUT_S: Final = 900.0  # until a kernel gives a peer up that acknowledges nothing
EPHEMERAL: Final = 40_000

Carried = tuple[Callable[..., object], tuple[Any, ...]]  # a packet: how it arrives


@final
class Link:
    """One direction between two hosts."""

    def __init__(
        self, world: World, target: str, down: dict[str, list[Carried]], delay_ns: int, rate: int
    ) -> None:
        self.delay_ns = delay_ns
        self.rate = rate  # bytes a second
        self.stalls = 0.0  # probability that a segment is lost and comes later
        self.is_cut = False
        self._world = world
        self._target = target
        self._down = down
        self._free_ns = 0
        self._due_ns = 0  # when what was carried last arrives: nothing overtakes it
        self._held: list[Carried] = []
        self._cut_ns = 0

    def carry(self, size: int, arrive: Callable[..., object], *args: Any) -> None:
        """Carry a packet; while the link is cut, its sender repeats it until it arrives."""
        if self.is_cut:
            self._held.append((arrive, args))
            return
        now = self._world.now_ns
        self._free_ns = max(self._free_ns, now) + size * NS // self.rate
        due = self._free_ns + self.delay_ns
        if self.stalls and self._world.rng.random() < self.stalls:
            self._free_ns += STALL_NS  # those behind it wait for it
            due += STALL_NS
        self._due_ns = due = max(due, self._due_ns)
        self._world.at(due - now, self._arrive, arrive, args)

    def _arrive(self, arrive: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.is_cut:
            self._held.append((arrive, args))
        elif self._target in self._down:
            self._down[self._target].append((arrive, args))
        else:
            arrive(*args)

    def cut(self) -> None:
        """Carry nothing from now on."""
        if not self.is_cut:
            self.is_cut = True
            self._cut_ns = self._world.now_ns

    def heal(self) -> None:
        """Carry packets again; those that were lost are repeated, in order, some time later."""
        if not self.is_cut:
            return
        self.is_cut = False
        held, self._held = self._held, []
        passed = min(self._world.now_ns - self._cut_ns, RETRY_NS_MAX)
        wait = int(passed * self._world.rng.random()) + self.delay_ns
        self._free_ns = max(self._free_ns, self._world.now_ns + wait)
        self._due_ns = max(self._due_ns, self._world.now_ns + wait)
        for arrive, args in held:
            self._world.at(self._due_ns - self._world.now_ns, self._arrive, arrive, args)


class Endpoint:
    """A socket of either kind."""

    def close(self) -> None:
        """Close it, as a kernel does for a process that has ended."""

    def vanish(self) -> None:
        """Lose it with the power of its host."""


class Owner(Protocol):
    """The process that a socket belongs to."""

    host: str
    world: World
    network: Network
    sockets: dict[Endpoint, None]


@final
class Listener(Endpoint):
    """A listening socket."""

    def __init__(self, process: Owner, host: str, port: int) -> None:
        self.process = process
        self.host = host
        self.port = port
        self.waiting: deque[Socket] = deque()  # accepted by the kernel alone
        self.on_waiting: Callable[[], object] | None = None

    def setblocking(self, flag: bool) -> None:
        """Take the flag of a socket."""

    def getsockname(self) -> tuple[str, int]:
        """Return host and port."""
        return self.host, self.port

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """Return the next connection, and whence it comes.

        Raises:
            BlockingIOError: there is none.
        """
        if not self.waiting:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        end = self.waiting.popleft()
        assert end.peer is not None
        return end, (end.peer.process.host, 0)

    def close(self) -> None:
        """Listen no more; connections that nobody accepted are reset."""
        self.process.network.forget(self)
        while self.waiting:
            self.waiting.popleft().close()

    def vanish(self) -> None:
        """See `Endpoint`."""
        self.close()


class Socket(Endpoint):
    """One end of a connection, with the kernel's buffers of it."""

    def __init__(self, process: Owner) -> None:
        self.process = process
        self.peer: Socket | None = None
        self.is_closed = False  # here
        self.is_broken = False  # nothing comes or goes any more
        self.received: deque[bytes] = deque()
        self.received_bytes = 0
        self.has_ended = False  # the peer sends no more, and everything before was received
        self.queued: deque[bytes] = deque()
        self.queued_bytes = 0
        self.unacked_bytes = 0
        self.user_timeout_s = USER_TIMEOUT_S
        # called by the kernel, in the world's turn: with how connecting ended; when there is
        # something to read, room to write, or the end
        self.on_connected: Callable[[OSError | None], object] | None = None
        self.on_readable: Callable[[], object] | None = None
        self.on_room: Callable[[], object] | None = None
        self.on_broken: Callable[[OSError], object] | None = None
        self._acked_ns = 0
        self._watching = False
        self._ending = False
        process.sockets[self] = None

    # as Python's sockets

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Take TCP_USER_TIMEOUT; others change nothing."""
        if (level, option) == (6, 18):
            self.user_timeout_s = int(value) / 1000

    def setblocking(self, flag: bool) -> None:
        """Take the flag of a socket."""

    def fileno(self) -> Any:
        """Return what `fcntl.ioctl` knows this socket by: itself."""
        return self

    def getsockname(self) -> tuple[str, int]:
        """Return host and port."""
        return self.process.host, 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes that have not reached the peer's kernel, as TIOCOUTQ tells."""
        return self.queued_bytes + self.unacked_bytes

    # writing

    def send(self, data: bytes) -> int:
        """Take bytes as far as there is room; return how many."""
        if self.is_broken or self.is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        taken = min(len(data), KERNEL_BYTES - self.queued_bytes - self.unacked_bytes)
        if taken <= 0:
            return 0
        self.queued.append(data[:taken])
        self.queued_bytes += taken
        self.transmit()
        return taken

    def transmit(self) -> None:
        """Send as much as the peer has room for."""
        peer = self.peer
        if peer is None or self.is_broken:
            return
        network = self.process.network
        while self.queued and self.unacked_bytes + peer.received_bytes < KERNEL_BYTES:
            data = self.queued.popleft()
            if len(data) > SEGMENT_BYTES:
                self.queued.appendleft(data[SEGMENT_BYTES:])
                data = data[:SEGMENT_BYTES]
            self.queued_bytes -= len(data)
            if not self.unacked_bytes:
                self._acked_ns = self.process.world.now_ns
            self.unacked_bytes += len(data)
            network.carry(self, peer, len(data), peer.arrived, data)
        self._watch()
        if self._ending and not self.queued:
            self._ending = False
            network.carry(self, peer, 40, peer.ended)

    def acked(self, size: int) -> None:
        """Take the peer's word that it has bytes."""
        if self.is_broken:
            return
        self.unacked_bytes -= size
        self._acked_ns = self.process.world.now_ns
        self.transmit()
        if self.on_room is not None and not self.is_closed:
            self.on_room()

    def _watch(self) -> None:
        """Give the peer up when it acknowledges nothing for too long."""
        if self._watching or not self.unacked_bytes:
            return
        self._watching = True
        self.process.world.at(int(self.user_timeout_s * NS / 4), self._look)

    def _look(self) -> None:
        self._watching = False
        if self.is_broken or not self.unacked_bytes:
            return
        if self.process.world.now_ns - self._acked_ns >= self.user_timeout_s * NS:
            self.broken(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
        else:
            self._watch()

    # reading

    def arrived(self, data: bytes) -> None:
        """Take a segment of the peer."""
        peer = self.peer
        assert peer is not None
        network = self.process.network
        if self.is_closed or self.is_broken:
            network.carry(self, peer, 40, peer.reset)
            return
        self.received.append(data)
        self.received_bytes += len(data)
        network.carry(self, peer, 40, peer.acked, len(data))
        if self.on_readable is not None:
            self.on_readable()

    def ended(self) -> None:
        """Take the peer's end of sending."""
        if self.is_closed or self.is_broken:
            return
        self.has_ended = True
        if self.on_readable is not None:
            self.on_readable()

    def read(self, count: int) -> bytes:
        """Return what was received, up to a number of bytes."""
        parts: list[bytes] = []
        while self.received and count > 0:
            data = self.received.popleft()
            if len(data) > count:
                self.received.appendleft(data[count:])
                data = data[:count]
            parts.append(data)
            count -= len(data)
        out = b"".join(parts)
        self.received_bytes -= len(out)
        peer = self.peer
        if peer is not None and peer.queued and not self.is_broken:
            self.process.network.carry(self, peer, 40, peer.transmit)
        return out

    # ends

    def close(self) -> None:
        """Close this end; what the kernel has taken is still sent."""
        if self.is_closed:
            return
        self.is_closed = True
        self.process.sockets.pop(self, None)
        if self.is_broken or self.peer is None:
            return
        self._ending = True
        self.transmit()

    def vanish(self) -> None:
        """Lose this end with the power of its host: the peer hears nothing of it."""
        self.is_closed = self.is_broken = True
        self.process.sockets.pop(self, None)

    def reset(self) -> None:
        """Take the peer's message that it knows nothing of the connection."""
        self.broken(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def broken(self, error: OSError) -> None:
        """Lose the connection."""
        if self.is_broken:
            return
        self.is_broken = True
        self.queued.clear()
        self.queued_bytes = self.unacked_bytes = 0
        if self.on_connected is not None:
            connected, self.on_connected = self.on_connected, None
            connected(error)
        elif self.on_broken is not None and not self.is_closed:
            self.on_broken(error)


@final
class Network:
    """Hosts and links."""

    def __init__(self, world: World, delay_ns: int = MS // 4, rate: int = 100 << 20) -> None:
        self.world = world
        self.down: dict[str, list[Carried]] = {}  # hosts without power, and what waits
        self.bytes_carried = 0
        self._delay_ns = delay_ns
        self._rate = rate
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._port = EPHEMERAL

    def link(self, source: str, target: str) -> Link:
        """Return one direction between two hosts."""
        found = self._links.get((source, target))
        if found is None:
            delay = self._delay_ns if source != target else self._delay_ns // 10
            found = Link(self.world, target, self.down, delay, self._rate)
            self._links[source, target] = found
        return found

    def carry(
        self, source: Socket, target: Socket, size: int, arrive: Callable[..., object], *args: Any
    ) -> None:
        """Carry a packet from one end to the other."""
        self.bytes_carried += size
        self.link(source.process.host, target.process.host).carry(size, arrive, *args)

    def power_off(self, host: str) -> None:
        """Make a host answer nothing."""
        self.down.setdefault(host, [])

    def power_on(self, host: str) -> None:
        """Let a host answer again; packets to what it has forgotten are answered by resets."""
        for arrive, args in self.down.pop(host, []):
            self.world.at(int(RETRY_NS_MAX * self.world.rng.random()), arrive, *args)

    def listen(self, process: Owner, host: str, port: int) -> Listener:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        if not port:
            self._port += 1
            port = self._port
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = Listener(process, host, port)
        self._listeners[host, port] = listener
        process.sockets[listener] = None
        return listener

    def forget(self, listener: Listener) -> None:
        """Listen no more."""
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[listener.host, listener.port]
        listener.process.sockets.pop(listener, None)

    def connect(self, process: Owner, host: str, port: int) -> Socket:
        """Begin to connect; `Socket.on_connected` is called with how it ends."""
        end = Socket(process)
        self.link(process.host, host).carry(60, self._arrived, end, host, port)
        return end

    def _arrived(self, end: Socket, host: str, port: int) -> None:
        listener = self._listeners.get((host, port))
        back = end.process.host
        if listener is None:
            error = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            self.link(host, back).carry(40, end.broken, error)
            return
        other = Socket(listener.process)
        other.peer = end
        self.link(host, back).carry(60, self._connected, end, other)
        listener.waiting.append(other)
        if listener.on_waiting is not None:
            listener.on_waiting()

    def _connected(self, end: Socket, other: Socket) -> None:
        if end.is_broken:
            return
        end.peer = other
        if end.is_closed:
            self.carry(end, other, 40, other.reset)
            return
        if end.on_connected is not None:
            connected, end.on_connected = end.on_connected, None
            connected(None)
