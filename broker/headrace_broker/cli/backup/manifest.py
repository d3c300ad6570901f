"""Manifest of a backup: JSON files beside its messages, and checksums of them all.

backup.json          while it is being made: who began it, and what is to be in it
definitions.json     of the whole cluster
queues/ID/state.json while a queue is being read: its point, and the files that are complete
queues/ID/NNNNN.hrb  messages of a queue; see `data_file`
queues/ID/queue.json once all of a queue is there
SHA256SUMS           of all files; `sha256sum -c` reads it
manifest.json        written last: without it there is no backup
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from headrace_broker.cli.backup.data_file import DamagedError, DataWriter
from headrace_broker.cli.backup.store import Store

FORMAT: Final = "headrace-backup"
VERSION: Final = 1
BEGINNING: Final = "backup.json"
DEFINITIONS: Final = "definitions.json"
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a backup: its name in the store, and what has to be found there."""

    name: str
    octets: int
    sha256: str


class DataFile(File, frozen=True, kw_only=True):
    """A file of messages."""

    messages: int
    first_id: int
    last_id: int


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The moment of a queue that is backed up."""

    name: str  # by which the cluster knows it, as long as it is kept
    node: str  # where it is read
    applied_index: int  # position of the queue's log
    time_ms: int  # Unix time
    messages: int  # that there are
    octets: int  # of their bodies
    last_id: int  # id of the newest message that the queue ever had


class QueueBackup(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, complete or not."""

    vhost: str
    name: str
    folder: str
    point: Point
    files: list[DataFile]

    @property
    def messages(self) -> int:
        """Number of messages in the files."""
        return sum(file.messages for file in self.files)

    @property
    def octets(self) -> int:
        """Bytes of the files."""
        return sum(file.octets for file in self.files)


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is not in a backup, and why."""

    vhost: str
    name: str
    reason: str


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that is being made."""

    format: str
    version: int
    id: str  # tells it from all others
    cluster: str  # name of the cluster
    started: str  # time, as in ISO 8601
    selection: list[str]  # which queues, as it was asked for


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A complete backup."""

    format: str
    version: int
    id: str
    cluster: str
    headrace: str  # release that wrote it
    started: str
    finished: str  # time, as in ISO 8601
    definitions: File  # of the whole cluster, as it was when the backup began
    queues: list[QueueBackup]  # by vhost and name
    skipped: list[Skipped]  # queues that were asked for and are not there

    @property
    def messages(self) -> int:
        """Number of messages of all queues."""
        return sum(queue.messages for queue in self.queues)

    @property
    def octets(self) -> int:
        """Bytes of all files of messages."""
        return sum(queue.octets for queue in self.queues)


S = TypeVar("S", bound=msgspec.Struct)


def folder_of(vhost: str, name: str) -> str:
    """Return the folder of a queue; names may hold whatever file systems do not take."""
    digest = hashlib.sha256(f"{len(vhost)}:{vhost}{name}".encode()).hexdigest()
    return f"queues/{digest[:24]}"


def encode(value: msgspec.Struct | Any) -> bytes:
    """Return something as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def decode(data: bytes, kind: type[S], name: str) -> S:
    """Return what a file says; DamagedError where that cannot be understood."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise DamagedError(f"{name} is no JSON: {error}") from error
    if isinstance(found, dict) and "version" in found:
        if found.get("format") != FORMAT:
            raise DamagedError(f"{name}: format: must be '{FORMAT}'")
        if found["version"] != VERSION:
            text = f"{name} has version {found['version']} of the format, known here is {VERSION}"
            raise DamagedError(f"{text}: take a release that is as new as the one that wrote it")
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise DamagedError(f"{name}: {error}") from error


def file_of(name: str, data: bytes) -> File:
    """Return what is to be found in a small file."""
    return File(name=name, octets=len(data), sha256=hashlib.sha256(data).hexdigest())


def write_manifest(store: Store, manifest: Manifest) -> None:
    """Write the checksums of all files, and then the manifest, which makes a backup of them."""
    data = encode(manifest)
    files = [file_of(MANIFEST, data), manifest.definitions]
    for queue in manifest.queues:
        files += queue.files
    lines = "".join(f"{file.sha256}  {file.name}\n" for file in files)
    store.write(SUMS, lines.encode())
    store.write(MANIFEST, data)


def read_manifest(store: Store) -> Manifest:
    """Return what a backup says of itself; FileNotFoundError or DamagedError without."""
    data = store.read(MANIFEST)
    manifest = decode(data, Manifest, MANIFEST)
    try:
        sums = store.read(SUMS).decode("utf-8", "replace")
    except FileNotFoundError:
        raise DamagedError(f"{SUMS} is missing") from None
    if f"{hashlib.sha256(data).hexdigest()}  {MANIFEST}\n" not in sums:
        raise DamagedError(f"{MANIFEST} does not have the checksum that stands in {SUMS}")
    return manifest


def written(name: str, writer: DataWriter) -> DataFile:
    """Return what is known of a file of messages that was written."""
    return DataFile(
        name=name,
        octets=writer.byte_count,
        sha256=writer.sha256,
        messages=writer.messages,
        first_id=writer.first_id,
        last_id=writer.last_id,
    )


def now() -> str:
    """Return the time of day as manifests have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
