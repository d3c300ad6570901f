"""Reports of the transport, on their way to host and application."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace_raftlog.model.errors import CloneError, ForgottenError
from headrace_raftlog.model.message import Message
from headrace_raftlog.model.pieces import Parted
from headrace_raftlog.node.formation import Formation
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.snapshot_fetch import SnapshotFetcher
from headrace_raftlog.node.state_comparison import StateComparison
from headrace_raftlog.transport.identity import StreamIdentity
from headrace_raftlog.transport.large_frame import Part


class UnknownPeer(NamedTuple):
    """A node that calls and is no peer."""

    node: int  # node id
    name: str  # what people call it, as it says
    address: str  # host:port at which others reach it, as it says
    disk: int  # id of its data directory
    formed: bool  # whether it takes itself for a member of the cluster


class Application(Protocol):
    """The application: it takes payloads and reports of peers; an error of its stops the node."""

    on_payload: Callable[[int, bytes], None]
    part: Part
    on_parted: Callable[[int, Parted], None]
    on_peer: Callable[[int, bool, int], None]
    on_stranger: Callable[[UnknownPeer], str]
    on_rival: Callable[[str], None]
    on_removed: Callable[[], None]


def ignore_payload(peer: int, payload: bytes) -> None:
    """Take no payloads."""


def ignore_parted(peer: int, payload: Parted) -> None:
    """Ignore payloads; there are none while no splitter is set."""


def ignore_peer(peer: int, up: bool, boot: int) -> None:
    """Take no notice of peers."""


def ignore_stranger(stranger: UnknownPeer) -> str:
    """Refuse it."""
    return f"node {stranger.node} is not a member of the cluster"


def ignore_rival(text: str) -> None:
    """Leave it at the refusal."""


def ignore_removed() -> None:
    """Go on trying."""


def ignore_fatal(error: BaseException) -> None:
    """Leave it at the log message."""


class NodeEvents:
    """Reports of the transport, passed on to host and application while the host runs."""

    def __init__(self, application: Application) -> None:
        self.host: Host
        self.formation: Formation
        self.fetcher: SnapshotFetcher
        self.comparison: StateComparison
        self.outdated: Callable[[ForgottenError | CloneError], None]
        self._application = application

    def on_messages(self, messages: list[Message]) -> None:
        """Step them."""
        self.host.receive(messages)

    def on_met(self, peer: StreamIdentity) -> None:
        """Pass it on."""
        self.formation.met(peer)

    def on_stranger(self, stranger: StreamIdentity) -> str:
        """Ask the application."""
        if self.host.stopped:
            return ""
        self.formation.called(stranger)
        found = UnknownPeer(
            stranger.node, stranger.name, stranger.address, stranger.disk, bool(stranger.formed)
        )
        try:
            return self._application.on_stranger(found)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self.host.fail(error)
            return ""

    def on_rival(self, peer: StreamIdentity, text: str) -> None:
        """Pass it on."""
        self._tell(self._application.on_rival, text)

    def on_removed(self) -> None:
        """Pass it on."""
        self._tell(self._application.on_removed)

    def on_outdated(self, reason: ForgottenError | CloneError) -> None:
        """Pass it on."""
        if not self.host.stopped:
            self.outdated(reason)

    def on_payload(self, peer: int, payload: bytes) -> None:
        """Pass it on."""
        self._tell(self._application.on_payload, peer, payload)

    def part(self, head: bytes, size: int) -> tuple[int, int]:
        """Ask the application."""
        return self._application.part(head, size)

    def on_parted(self, peer: int, payload: Parted) -> None:
        """Pass it on."""
        self._tell(self._application.on_parted, peer, payload)

    def on_peer(self, peer: int, up: bool, boot: int) -> None:
        """Wake groups, then pass it on."""
        self._tell(self._peer_changed, peer, up, boot)

    def on_failure(self, error: BaseException) -> None:
        """Stop the node."""
        self.host.fail(error)

    def _peer_changed(self, peer: int, up: bool, boot: int) -> None:
        self.host.peer_changed(peer, up)
        if not up:
            self.fetcher.peer_down(peer)
        else:
            self.comparison.peer_up()
        self._application.on_peer(peer, up, boot)

    def _tell(self, told: Callable[..., None], *arguments: object) -> None:
        """Call the application while the host runs; an error of its stops the node."""
        if self.host.stopped:
            return
        try:
            told(*arguments)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self.host.fail(error)
