"""Identity of the other end of a stream, as its metadata says."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote

from headrace_raftlog.model.errors import CloneError, ForgottenError
from headrace_raftlog.model.limits import (
    ENTRY_BYTES_MAX,
    ENTRY_BYTES_PLAIN,
    FORMED_TEXT_CHARS_MAX,
    NODE_ID_MAX,
    STARTS_TEXT_CHARS_MAX,
)
from headrace_raftlog.model.mark import Starts

PROTOCOL_VERSION: Final = 4  # raised with each change of what nodes send each other
PROTOCOL_VERSION_MIN: Final = 4  # the oldest that this code speaks, to nodes that know no newer one

CLUSTER_KEY: Final = "headrace-cluster"
NODE_KEY: Final = "headrace-node"
TARGET_KEY: Final = "headrace-target"
BOOT_KEY: Final = "headrace-boot"
DISK_KEY: Final = "headrace-disk"
GENERATION_KEY: Final = "headrace-generation"
FORMED_KEY: Final = "headrace-formed"
PROTOCOL_KEY: Final = "headrace-protocol"  # the oldest that the node speaks
PROTOCOL_MAX_KEY: Final = "headrace-protocol-max"  # the newest; absent: it speaks one only
NAME_KEY: Final = "headrace-name"
ADDRESS_KEY: Final = "headrace-address"
PROCESS_KEY: Final = "headrace-process"  # absent: a node of an earlier release
STARTS_KEY: Final = "headrace-starts"
REJOINS_KEY: Final = "headrace-rejoins"
ENTRY_KEY: Final = "headrace-entry-bytes"  # absent: ENTRY_BYTES_PLAIN
FORGOTTEN_KEY: Final = "headrace-forgotten"  # of a refusal: the caller's disk, which is outdated
CLONE_KEY: Final = "headrace-clone"  # of a refusal: the caller's process, as another one runs
REMOVED_KEY: Final = "headrace-removed"  # of a refusal: the caller's disk, which is barred

_ID_MAX: Final = (1 << 32) - 1  # of disks and generations


class StreamRefusedError(Exception):
    """The other end is not who it should be; the text says what differs."""


class WithdrawnTicketError(StreamRefusedError):
    """Its ticket counted once; it asks for another one, and nothing is wrong with it."""


class RemovedError(StreamRefusedError):
    """The caller was removed from the cluster with the data that it has."""

    def __init__(self, text: str, disk: int) -> None:
        super().__init__(text)
        self.disk = disk  # the caller's, which is barred


class ForgottenDiskError(StreamRefusedError):
    """The other end's disk has lost promises."""

    def __init__(self, text: str, disk: int) -> None:
        super().__init__(text)
        self.disk = disk


class CloneRefusedError(StreamRefusedError):
    """The other end is a second process of a node that runs."""

    def __init__(self, text: str, process: int) -> None:
        super().__init__(text)
        self.process = process  # the second one's random number


class OutdatedError(StreamRefusedError):
    """The other end says that this process must not take part with its data."""

    def __init__(self, reason: ForgottenError | CloneError) -> None:
        super().__init__(str(reason))
        self.reason = reason  # what is to be done about it


class StrangerError(StreamRefusedError):
    """The other end may belong to the cluster, but is not known here."""

    def __init__(self, text: str, stranger: StreamIdentity) -> None:
        super().__init__(text)
        self.stranger = stranger  # who it is


class ApartError(StreamRefusedError):
    """The other end belongs to a cluster of the same name that was founded apart from this one."""

    def __init__(self, text: str, other: StreamIdentity) -> None:
        super().__init__(text)
        self.other = other  # who it is


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """One end of a stream."""

    cluster: str  # name of the cluster; travels percent-encoded
    node: int  # node id
    boot: int  # boot count of the node's data directory, from 1
    disk: int  # id of the data directory
    # disk by node id of the nodes that founded the cluster; empty while this end does not belong to
    # it yet. Between two ends of which one does not, nothing but metadata passes.
    formed: dict[int, int] = field(default_factory=dict)
    name: str = ""  # what people call the node; "" where it does not say. Travels percent-encoded.
    address: str = ""  # host:port at which the node says that others reach it, likewise
    process: int = 0  # random number of the process, from 1; 0 of one that says none
    starts: Starts = ()  # newest starts of the disk, each with the last batch that its log had then
    # whether the node comes back without what it had, and therefore founds nothing
    rejoins: bool = False
    entry_bytes_max: int = ENTRY_BYTES_MAX  # bytes of the longest entry and payload that it takes
    protocol: int = PROTOCOL_VERSION  # the newest that this end and the one that judged it speak

    @property
    def generation(self) -> int:
        """Generation of the node's members: 0 on a founding disk, the disk's id otherwise."""
        return 0 if self.formed.get(self.node) == self.disk else self.disk

    def is_same_process(self, other: StreamIdentity) -> bool:
        """Return whether both are said by one process of one node."""
        ours = (self.node, self.disk, self.boot, self.process)
        return ours == (other.node, other.disk, other.boot, other.process)

    def is_apart(self, other: StreamIdentity) -> bool:
        """Return whether both belong to clusters, and these were founded apart."""
        return bool(self.formed) and bool(other.formed) and self.formed != other.formed

    def yields_to(self, other: StreamIdentity) -> bool:
        """Return whether this end founded a second cluster, for want of the disk that it had.

        The first one's members name this node on another disk, and are nobody who has lost a
        disk himself.
        """
        lost = self.formed.get(other.node, other.disk) != other.disk
        before = other.formed.get(self.node, self.disk)
        return self.is_apart(other) and not lost and before != self.disk

    def metadata(self, target: int) -> tuple[tuple[str, str], ...]:
        """Return the metadata that tells node `target` who we are."""
        return (
            (CLUSTER_KEY, quote(self.cluster)),
            (NODE_KEY, str(self.node)),
            (TARGET_KEY, str(target)),
            (BOOT_KEY, str(self.boot)),
            (DISK_KEY, str(self.disk)),
            (GENERATION_KEY, str(self.generation)),
            (FORMED_KEY, ",".join(f"{node}:{disk}" for node, disk in self.formed.items())),
            (PROTOCOL_KEY, str(PROTOCOL_VERSION_MIN)),
            (PROTOCOL_MAX_KEY, str(PROTOCOL_VERSION)),
            (NAME_KEY, quote(self.name)),
            (ADDRESS_KEY, quote(self.address)),
            (PROCESS_KEY, str(self.process)),
            (STARTS_KEY, ",".join(f"{boot}:{batch}" for boot, batch in self.starts)),
            (REJOINS_KEY, "1" if self.rejoins else ""),
            (ENTRY_KEY, str(self.entry_bytes_max)),
        )

    def check(
        self, metadata: Iterable[tuple[str, str | bytes]], known: Collection[int]
    ) -> StreamIdentity:
        """Return the identity of the other end.

        Args:
            metadata: what the other end sent.
            known: node ids that it may have.

        Raises:
            StrangerError: all is well but that it is not one of `known`.
            ApartError: it belongs to a cluster that was founded apart.
            StreamRefusedError: it belongs to another cluster, means another node than this one,
                speaks another version, or has lost the disk on which it founded the cluster and
                does not know.
        """
        fields = {key: value for key, value in metadata if isinstance(value, str)}
        protocol = _common_protocol(fields)
        cluster = unquote(fields.get(CLUSTER_KEY, ""))
        if cluster != self.cluster:
            raise StreamRefusedError(
                f"a node of cluster {cluster!r} reached node {self.node} of cluster "
                f"{self.cluster!r}; check the configured addresses"
            )
        target = _number(fields, TARGET_KEY)
        if target != self.node:
            raise StreamRefusedError(
                f"node {target} was meant, but this is node {self.node}; "
                "check the configured addresses"
            )
        node = _number(fields, NODE_KEY)
        found = StreamIdentity(
            cluster,
            node,
            _number(fields, BOOT_KEY),
            _number(fields, DISK_KEY),
            _formed(fields),
            unquote(fields.get(NAME_KEY, "")),
            unquote(fields.get(ADDRESS_KEY, "")),
            _number(fields, PROCESS_KEY) if PROCESS_KEY in fields else 0,
            _starts(fields.get(STARTS_KEY, "")),
            fields.get(REJOINS_KEY, "") == "1",
            _number(fields, ENTRY_KEY) if ENTRY_KEY in fields else ENTRY_BYTES_PLAIN,
            protocol,
        )
        generation = _number(fields, GENERATION_KEY)
        if node not in known:
            text = f"node {node} is not a known peer of node {self.node}"
            raise StrangerError(text, found)
        self._check_formed(found, generation)
        return found

    def _check_formed(self, other: StreamIdentity, generation: int) -> None:
        if not 1 <= other.disk <= _ID_MAX:
            raise StreamRefusedError(f"metadata {DISK_KEY} is {other.disk}, out of range")
        if not other.formed:
            return  # it waits to learn what it is
        if self.is_apart(other):
            raise ApartError(apart_text(self, other), other)
        founding = other.formed
        if generation == 0 and founding.get(other.node) != other.disk:
            raise StreamRefusedError(
                f"node {other.node} speaks as a founding member, but the cluster was founded on "
                "another disk of that node: what the node promised there is lost. Empty its data "
                "directory and start it, so that it joins as a new member"
            )
        if generation != other.generation:
            raise StreamRefusedError(
                f"metadata {GENERATION_KEY} is {generation}, not {other.generation}"
            )


def apart_text(one: StreamIdentity, other: StreamIdentity) -> str:
    """Return the remedy for two nodes whose clusters were founded apart."""
    for second, first in ((one, other), (other, one)):
        if second.yields_to(first):
            return (
                f"cluster {first.cluster!r} was founded twice: first by nodes "
                f"{_names(first.formed)}, as node {first.node} says, and again by nodes "
                f"{_names(second.formed)}, when node {second.node} had lost its disk. Keep the "
                f"data of node {first.node}. Stop node {second.node}, write out what it has "
                "stored since if that is needed ('headrace log salvage'), move its data directory "
                "away and start it: it joins the first cluster as a new member. Only if node "
                f"{first.node} has old data, and the second cluster is what counts, stop that one"
            )
    return (
        f"nodes {one.node} and {other.node} belong to clusters that were founded apart "
        f"(by nodes {_names(one.formed)}, and by nodes {_names(other.formed)}, on their "
        "disks of that time). Find out first which one has the messages that count; then move the "
        "data directories of the other one's nodes away and start them, so that they join"
    )


def _names(formed: dict[int, int]) -> str:
    return ", ".join(str(node) for node in formed)


def _common_protocol(fields: dict[str, str]) -> int:
    """Return the newest protocol version that both ends speak.

    Raises StreamRefusedError: there is none.
    """
    oldest = _number(fields, PROTOCOL_KEY)
    newest = _number(fields, PROTOCOL_MAX_KEY) if PROTOCOL_MAX_KEY in fields else oldest
    if max(oldest, PROTOCOL_VERSION_MIN) <= min(newest, PROTOCOL_VERSION):
        return min(newest, PROTOCOL_VERSION)
    theirs, ours = _span(oldest, newest), _span(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION)
    raise StreamRefusedError(
        f"a node of protocol version {theirs} reached one of version {ours}: they belong to "
        "different releases; stop all nodes to upgrade, and start them with the same one"
    )


def _span(oldest: int, newest: int) -> str:
    return str(oldest) if oldest == newest else f"{oldest} to {newest}"


def _number(fields: dict[str, str], key: str) -> int:
    text = fields.get(key, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise StreamRefusedError(f"metadata {key} is {text!r}, not a number")
    return int(text)


def _formed(fields: dict[str, str]) -> dict[int, int]:
    text = fields.get(FORMED_KEY)
    if text is None or len(text) > FORMED_TEXT_CHARS_MAX:
        raise StreamRefusedError(f"metadata {FORMED_KEY} is missing or too long")
    found: dict[int, int] = {}
    for item in text.split(",") if text else ():
        node, _, disk = item.partition(":")
        if not (_is_number(node) and _is_number(disk)):
            raise StreamRefusedError(f"metadata {FORMED_KEY} has {item!r}, not node:disk")
        if not 1 <= int(node) <= NODE_ID_MAX or not 1 <= int(disk) <= _ID_MAX:
            raise StreamRefusedError(f"metadata {FORMED_KEY} has {item!r}, out of range")
        found[int(node)] = int(disk)
    return dict(sorted(found.items()))


def _starts(text: str) -> Starts:
    if len(text) > STARTS_TEXT_CHARS_MAX:
        raise StreamRefusedError(f"metadata {STARTS_KEY} is too long")
    found = []
    for item in text.split(",") if text else ():
        boot, _, batch = item.partition(":")
        if not (_is_number(boot) and batch.isascii() and batch.isdecimal() and len(batch) <= 18):
            raise StreamRefusedError(f"metadata {STARTS_KEY} has {item!r}, not boot:batch")
        found.append((int(boot), int(batch)))
    return tuple(found)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10
