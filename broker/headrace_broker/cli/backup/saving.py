"""Makes a backup: definitions, then queue by queue, and goes on where one was cut off."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from headrace_broker.cli.backup.cluster import Cluster, PointLostError, QueueGoneError
from headrace_broker.cli.backup.data_file import Block, DamagedError, DataWriter
from headrace_broker.cli.backup.manifest import (
    BEGINNING,
    DEFINITIONS,
    FORMAT,
    MANIFEST,
    VERSION,
    Beginning,
    DataFile,
    Manifest,
    Point,
    QueueBackup,
    Skipped,
    decode,
    encode,
    file_of,
    folder_of,
    now,
    write_manifest,
    written,
)
from headrace_broker.cli.backup.rate import Rate
from headrace_broker.cli.backup.store import Store
from headrace_broker.cli.session.session import CommandError
from headrace_broker.model import build_info
from headrace_broker.runtime.backup.chunk import read_heads
from headrace_protos.broker.v1.backup_pb2 import ReadPointResponse

FILE_BYTES: Final = 64 << 20  # of a file of messages, after which the next one begins
NOT_DURABLE: Final = "it is not durable: a restart of its node would lose its messages as well"
POINTS_MAX: Final = 4  # points of one queue that are tried before it is left out


class Listener(Protocol):
    """Hears how far a backup is."""

    def queue(self, vhost: str, name: str) -> None:
        """Another queue begins."""

    def add_bytes(self, more: int) -> None:
        """So much more was read."""


class Saving:
    """One backup."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        rate: Rate,
        listener: Listener,
        ttl_ms: int,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._store = store  # where it goes
        self._cluster = cluster  # where it comes from
        self._rate = rate  # how fast it may be
        self.listener = listener  # is told how far it is
        self._ttl_ms = ttl_ms  # for how long a point is kept when this process does not read
        self._file_bytes = file_bytes  # after which the next file begins

    def begin(
        self, cluster_name: str, selection: list[str], definitions: Callable[[], Any]
    ) -> Beginning:
        """Begin a backup, or go on with one that asked for the same.

        Raises CommandError: there is another one; DamagedError: it cannot be understood.
        """
        store = self._store
        if store.size(MANIFEST) >= 0:
            raise CommandError(f"{store.place} holds a complete backup: choose another place")
        with contextlib.suppress(FileNotFoundError):
            found = decode(store.read(BEGINNING), Beginning, BEGINNING)
            if (found.cluster, found.selection) != (cluster_name, selection):
                text = (
                    f"{store.place} holds the beginning of a backup of cluster '{found.cluster}'"
                    f" with --queues {' '.join(found.selection)}: say the same to go on with it,"
                    " or choose another place"
                )
                raise CommandError(text)
            if store.size(DEFINITIONS) >= 0:
                return found
        store.write(DEFINITIONS, encode(definitions()))
        beginning = Beginning(
            format=FORMAT,
            version=VERSION,
            id=str(uuid.uuid4()),
            cluster=cluster_name,
            started=now(),
            selection=selection,
        )
        store.write(BEGINNING, encode(beginning))
        return beginning

    def queue(self, vhost: str, name: str) -> QueueBackup | Skipped:
        """Back a queue up, or say why that cannot be; what is complete already is kept.

        Raises CommandError: it is not served; StoreError, OSError: nothing can be written.
        """
        folder = folder_of(vhost, name)
        complete = self._found(f"{folder}/queue.json")
        if complete is not None:
            self.listener.add_bytes(complete.octets)
            return complete
        reason = ""
        for _ in range(POINTS_MAX):
            try:
                saved = self._save(vhost, name, folder)
            except PointLostError as error:
                reason = str(error)
                self._store.remove_folder(folder)
            except QueueGoneError:
                self._store.remove_folder(folder)
                return Skipped(vhost=vhost, name=name, reason="it was deleted meanwhile")
            else:
                self._store.write(f"{folder}/queue.json", encode(saved))
                self._cluster.close_point(saved.point.name)
                return saved
        text = f"{POINTS_MAX} points of it were given up, the last one because {reason}"
        return Skipped(vhost=vhost, name=name, reason=text)

    def end(
        self, beginning: Beginning, queues: list[QueueBackup], skipped: list[Skipped]
    ) -> Manifest:
        """Write what makes a backup of all these files."""
        definitions = file_of(DEFINITIONS, self._store.read(DEFINITIONS))
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            id=beginning.id,
            cluster=beginning.cluster,
            headrace=build_info.VERSION,
            started=beginning.started,
            finished=now(),
            definitions=definitions,
            queues=sorted(queues, key=lambda each: (each.vhost, each.name)),
            skipped=sorted(skipped, key=lambda each: (each.vhost, each.name)),
        )
        write_manifest(self._store, manifest)
        return manifest

    # Inner

    def _found(self, name: str) -> QueueBackup | None:
        """Return what was written of a queue, None unless all its files are there."""
        try:
            found = decode(self._store.read(name), QueueBackup, name)
        except (FileNotFoundError, DamagedError):
            return None
        sizes = [self._store.size(file.name) for file in found.files]
        return found if sizes == [file.octets for file in found.files] else None

    def _save(self, vhost: str, name: str, folder: str) -> QueueBackup:
        saved = self._resumed(f"{folder}/state.json")
        if saved is None:
            self._store.remove_folder(folder)
            opened = self._cluster.open_point(vhost, name, self._ttl_ms)
            point = Point(
                name=opened.point,
                node=opened.node,
                applied_index=opened.applied_index,
                time_ms=opened.time_ms,
                messages=opened.messages,
                octets=opened.octets,
                last_id=opened.last_id,
            )
            saved = QueueBackup(vhost=vhost, name=name, folder=folder, point=point, files=[])
            self._store.write(f"{folder}/state.json", encode(saved))
        after = saved.files[-1].last_id if saved.files else 0
        self.listener.add_bytes(saved.octets)
        chunks = _Chunks(self._cluster.read_point(saved.point.name, after, self._rate.chunk_bytes))
        while chunks.next is not None:
            saved.files.append(self._write(f"{folder}/{len(saved.files) + 1:05}.hrb", chunks))
            self._store.write(f"{folder}/state.json", encode(saved))
            self._cluster.keep_point(saved.point.name, saved.files[-1].last_id, 0)
        if saved.messages != saved.point.messages:
            text = f"{saved.messages} messages were read of {saved.point.messages}"
            raise PointLostError(text)
        return saved

    def _resumed(self, name: str) -> QueueBackup | None:
        """Return what is there of a queue whose point is still kept."""
        found = self._found(name)
        if found is None:
            return None
        done = found.files[-1].last_id if found.files else 0
        try:
            self._cluster.keep_point(found.point.name, done, self._ttl_ms)
        except PointLostError:
            return None
        return found

    def _write(self, name: str, chunks: _Chunks) -> DataFile:
        """Write the next file of a queue."""
        with self._store.create(name) as out:
            writer = DataWriter(out)
            while chunks.next is not None and (
                writer.messages == 0 or writer.byte_count < self._file_bytes
            ):
                chunk = chunks.take()
                byte_count = len(chunk.heads) + len(chunk.batch)
                [first] = read_heads(chunk.heads[: len(chunk.heads) // chunk.messages])
                writer.add(Block(chunk.heads, chunk.batch), first.id, chunk.last_id)
                self._rate.take(byte_count)
                self.listener.add_bytes(byte_count)
            writer.end()
        return written(name, writer)


class _Chunks:
    """Chunks one by one, with a look at the next."""

    def __init__(self, chunks: Iterator[ReadPointResponse]) -> None:
        self._chunks = chunks
        self.next: ReadPointResponse | None = next(chunks, None)  # the one that comes

    def take(self) -> ReadPointResponse:
        """Return the next one."""
        taken = self.next
        assert taken is not None, "who takes has looked"
        self.next = next(self._chunks, None)
        return taken
