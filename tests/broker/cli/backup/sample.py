"""Backups of made-up messages."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

from headrace_broker.cli.backup.data_file import Block, DataWriter
from headrace_broker.cli.backup.manifest import (
    DEFINITIONS,
    FORMAT,
    VERSION,
    DataFile,
    Manifest,
    Point,
    QueueBackup,
    encode,
    file_of,
    folder_of,
    write_manifest,
)
from headrace_broker.cli.backup.store import DirectoryStore, Store
from headrace_broker.codecs.batch import encode_batch
from headrace_broker.model.message import Publish
from headrace_broker.runtime.backup.chunk import _HEAD, Head

PLAIN = b"\x00\x00"
ROUTE = b"\x02ex\x03key"


def block(first: int, *bodies: bytes, properties: bytes = PLAIN, due_ms: int = 0) -> Block:
    """Messages with ids from `first` on."""
    publishes = [Publish(1, ROUTE, False, False, properties, body) for body in bodies]
    heads = [
        Head(first + at, 1_000, 0, due_ms, 2, 1, len(body), 3, 3 if due_ms else 1)
        for at, body in enumerate(bodies)
    ]
    return Block(b"".join(_HEAD.pack(*head, 0) for head in heads), encode_batch(publishes))


def data_file(*blocks: Block) -> bytes:
    """A file of messages."""
    out = io.BytesIO()
    writer = DataWriter(out)
    for each in blocks:
        heads = each.read_heads()
        writer.add(each, heads[0].id, heads[-1].id)
    writer.end()
    return out.getvalue()


def queue_of(store: Store, name: str, *files: list[Block], vhost: str = "/") -> QueueBackup:
    """A queue whose files are in a store."""
    folder = folder_of(vhost, name)
    found = []
    for number, blocks in enumerate(files, 1):
        data = data_file(*blocks)
        path = f"{folder}/{number:05}.hrb"
        store.write(path, data)
        heads = [head for each in blocks for head in each.read_heads()]
        found.append(
            DataFile(
                name=path,
                octets=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                messages=len(heads),
                first_id=heads[0].id,
                last_id=heads[-1].id,
            )
        )
    messages = sum(file.messages for file in found)
    point = Point(
        name="1-1",
        node="1",
        applied_index=9,
        time_ms=5,
        messages=messages,
        octets=messages,
        last_id=99,
    )
    return QueueBackup(vhost=vhost, name=name, folder=folder, point=point, files=found)


def backup_at(path: Path) -> tuple[Store, Manifest]:
    """A whole backup: a queue with two files, and an empty one."""
    store = DirectoryStore(path)
    definitions = encode({"queues": []})
    store.write(DEFINITIONS, definitions)
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        id="b1",
        cluster="local",
        headrace="0.1",
        started="2026-11-22T05:00:00+00:00",
        finished="2026-11-22T05:00:01+00:00",
        definitions=file_of(DEFINITIONS, definitions),
        queues=[
            queue_of(store, "orders", [block(1, b"a", b"bb"), block(5, b"c")], [block(7, b"d")]),
            queue_of(store, "none"),
        ],
        skipped=[],
    )
    write_manifest(store, manifest)
    return store, manifest
