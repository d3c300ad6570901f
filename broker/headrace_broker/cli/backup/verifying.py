"""Reads a backup as a whole and says what of it is not as it was written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from headrace_broker.cli.backup.data_file import Block, DamagedError, read_blocks
from headrace_broker.cli.backup.manifest import DataFile, File, Manifest
from headrace_broker.cli.backup.store import Store


class SummedSource:
    """A file that is read, with the checksum and number of its bytes."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.byte_count = 0
        self.digest = hashlib.sha256()

    def read(self, byte_count: int = -1) -> bytes:
        """Read on."""
        data = self._source.read(byte_count)
        self.byte_count += len(data)
        self.digest.update(data)
        return data

    def check(self, file: File) -> None:
        """Compare what was read with what has to be there; DamagedError if it differs."""
        if self.byte_count != file.octets:
            text = f"{file.name} has {self.byte_count} bytes, the manifest says {file.octets}"
            raise DamagedError(text)
        if self.digest.hexdigest() != file.sha256:
            raise DamagedError(f"{file.name} does not have the checksum that the manifest says")


def read_file(store: Store, file: DataFile) -> Iterator[Block]:
    """Return the blocks of a file of messages; DamagedError, at the end, where it is not whole."""
    try:
        opened = store.open(file.name)
    except FileNotFoundError:
        raise DamagedError(f"{file.name} is missing") from None
    with opened:
        source = SummedSource(opened)
        messages = first = last = 0
        for block in read_blocks(source, file.name):  # type: ignore[arg-type]  # it only reads
            heads = block.read_heads()
            first, last = first or heads[0].id, heads[-1].id
            messages += block.messages
            yield block
        source.check(file)
    if (messages, first, last) != (file.messages, file.first_id, file.last_id):
        raise DamagedError(f"{file.name} holds other messages than the manifest says")


def verify(store: Store, manifest: Manifest, done: Callable[[int], None]) -> list[str]:
    """Return what is wrong with a backup; `done` is called with bytes that were read."""
    problems: list[str] = []
    try:
        definitions = store.read(manifest.definitions.name)
    except FileNotFoundError:
        problems.append(f"{manifest.definitions.name} is missing")
    else:
        if hashlib.sha256(definitions).hexdigest() != manifest.definitions.sha256:
            name = manifest.definitions.name
            problems.append(f"{name} does not have the checksum that the manifest says")
    for queue in manifest.queues:
        last = 0
        for file in queue.files:
            if file.first_id <= last:
                problems.append(f"{file.name} begins before the end of the file before it")
            last = file.last_id
            try:
                for block in read_file(store, file):
                    done(len(block.heads) + len(block.batch))
            except DamagedError as error:
                problems.append(str(error))
        if queue.messages != queue.point.messages:
            problems.append(
                f"queue '{queue.name}' in vhost '{queue.vhost}': {queue.messages} messages in its"
                f" files, {queue.point.messages} at its point"
            )
    return problems
