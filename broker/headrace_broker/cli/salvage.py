"""`headrace log salvage`: writes what is intact of a damaged data directory out, as a backup."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.store import SnapshotError
from headrace_broker.cli.backup.data_file import DataWriter
from headrace_broker.cli.backup.manifest import (
    DEFINITIONS,
    FORMAT,
    MANIFEST,
    VERSION,
    DataFile,
    Manifest,
    Point,
    QueueBackup,
    Skipped,
    encode,
    file_of,
    folder_of,
    now,
    write_manifest,
    written,
)
from headrace_broker.cli.backup.saving import FILE_BYTES
from headrace_broker.cli.backup.store import Store, StoreError, open_store
from headrace_broker.cli.salvaged_queue import SalvagedQueue
from headrace_broker.core.queue.snapshot.restoring import SnapshotError as QueueSnapshotError
from headrace_broker.management.definitions.export import cluster_definitions
from headrace_broker.model import build_info
from headrace_raftlog.model.entry import ENTRY_NORMAL
from headrace_raftlog.model.errors import CorruptLogError, UnknownVersionError
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.inspection.salvage import Salvage

CATALOG_GROUP: Final = 0
REPORT: Final = "salvage.json"  # what could not be read
LOST_VHOST: Final = "/"  # of queues of which the name is lost


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--to", "place", required=True, help="Where to write: a directory or a URL.")
def salvage(directory: Path, place: str) -> None:
    """Write the messages that are intact in a stopped node's data directory out, as a backup.

    'headrace restore' takes it, and 'headrace backup verify' checks it. Nothing in DIRECTORY is
    changed. Exit code 1 when anything could not be read; salvage.json in the backup says what.
    """
    left = Salvage(Files(), str(directory))
    try:
        left.run()
        store = open_store(place)
        if store.size(MANIFEST) >= 0:
            raise click.ClickException(f"{place} holds a backup: choose another place")
        complete = _Writing(left, store).run()
    except (OSError, StoreError, UnknownVersionError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        left.close()
    if not complete:
        raise SystemExit(1)


class _Writing:
    """One run of the command."""

    def __init__(self, left: Salvage, store: Store) -> None:
        self._left = left
        self._store = store
        self._lines: list[str] = []
        self._complete = True

    def run(self) -> bool:
        """Write everything; return whether nothing was unreadable."""
        definitions, names = self._definitions()
        self._store.write(DEFINITIONS, encode(definitions))
        queues: list[QueueBackup] = []
        skipped: list[Skipped] = []
        report: list[dict[str, Any]] = []
        groups = sorted({*self._left.groups, *self._left.broken} - {CATALOG_GROUP})
        for group in groups:
            vhost, name = names.get(group, (LOST_VHOST, f"group-{group}"))
            saved = self._queue(group, vhost, name, report)
            if isinstance(saved, QueueBackup):
                queues.append(saved)
            else:
                skipped.append(saved)
        for group in sorted(names.keys() - set(groups)):
            vhost, name = names[group]
            reason = "nothing of it is in this directory"
            skipped.append(Skipped(vhost=vhost, name=name, reason=reason))
        damaged = [{"file": d.path, "byte": d.offset, "what": d.reason} for d in self._left.damaged]
        self._store.write(REPORT, encode({"damaged": damaged, "queues": report}))
        at = now()
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            id=str(uuid.uuid4()),
            cluster="",
            headrace=build_info.VERSION,
            started=at,
            finished=at,
            definitions=file_of(DEFINITIONS, self._store.read(DEFINITIONS)),
            queues=sorted(queues, key=lambda each: (each.vhost, each.name)),
            skipped=sorted(skipped, key=lambda each: (each.vhost, each.name)),
        )
        write_manifest(self._store, manifest)
        for found in self._left.damaged:
            self._miss(f"{found.path}: byte {found.offset}: {found.reason}")
        for left_out in skipped:
            click.echo(f"{left_out.vhost} {left_out.name}: left out, {left_out.reason}")
        click.echo(
            f"{len(queues)} queues with {manifest.messages} messages are in {self._store.place}; "
            f"{REPORT} there says what could not be read"
        )
        return self._complete

    def _miss(self, line: str) -> None:
        self._complete = False
        click.echo(line)

    def _definitions(self) -> tuple[dict[str, Any], dict[int, tuple[str, str]]]:
        """Return what is readable of the catalog, and the names of its queues by group."""
        catalog = Catalog()
        try:
            found = self._left.group(CATALOG_GROUP)
            first = 1
            if found.snapshot is not None:
                catalog = Catalog.restore(found.snapshot.state)
                first = found.snapshot.index + 1
            for index in range(first, found.last + 1):
                entry = found.entry(index)
                if entry.kind == ENTRY_NORMAL:
                    catalog.apply(index, entry.data)
        except (KeyError, CorruptLogError, SnapshotError, OSError) as error:
            self._miss(f"the catalog is not readable to its end: {error}")
        names = {queue.group: (queue.vhost, queue.name) for queue in catalog.queues()}
        definitions = cluster_definitions(catalog)
        unnamed = {*self._left.groups, *self._left.broken} - set(names) - {CATALOG_GROUP}
        rows = definitions["queues"]
        rows.extend(_declaration(f"group-{group}") for group in sorted(unnamed))
        if unnamed and not definitions["vhosts"]:
            definitions["vhosts"] = [{"name": LOST_VHOST}]
        return definitions, names

    def _queue(
        self, group: int, vhost: str, name: str, report: list[dict[str, Any]]
    ) -> QueueBackup | Skipped:
        try:
            queue = SalvagedQueue(self._left.group(group))
        except QueueSnapshotError as error:
            self._complete = False
            return Skipped(vhost=vhost, name=name, reason=f"its snapshot is not readable: {error}")
        folder = folder_of(vhost, name)
        files = self._files(folder, queue)
        point = Point(
            name="",
            node="",
            applied_index=queue.applied_index,
            time_ms=int(datetime.now(UTC).timestamp() * 1000),
            messages=queue.messages,
            octets=queue.byte_count,
            last_id=queue.last_id,
        )
        saved = QueueBackup(vhost=vhost, name=name, folder=folder, point=point, files=files)
        report.append(
            {
                "vhost": vhost,
                "name": name,
                "group": group,
                "messages": queue.messages,
                "rebuilt_up_to": queue.applied_index,
                "maybe_consumed": queue.repeated,
                "unreadable": [
                    {"entry": index, "message_ids": ids}
                    for index, ids in sorted(queue.unreadable.items())
                ],
                "problem": queue.problem,
            }
        )
        self._tell(vhost, name, queue)
        return saved

    def _tell(self, vhost: str, name: str, queue: SalvagedQueue) -> None:
        text = f"{vhost} {name}: {queue.messages} messages"
        if not queue.unreadable and not queue.problem:
            click.echo(text)
            return
        lost = sum(len(ids) for ids in queue.unreadable.values())
        self._miss(
            f"{text}; {len(queue.unreadable)} entries are not readable, of {lost} messages that "
            f"are known to be lost with them; {queue.repeated} messages stood behind the first and "
            "may have been consumed before"
        )

    def _files(self, folder: str, queue: SalvagedQueue) -> list[DataFile]:
        files: list[DataFile] = []
        blocks = queue.blocks()
        block = next(blocks, None)
        while block is not None:
            name = f"{folder}/{len(files) + 1:05}.hrb"
            with self._store.create(name) as out:
                writer = DataWriter(out)
                while block is not None and writer.byte_count < FILE_BYTES:
                    heads = block.read_heads()
                    writer.add(block, heads[0].id, heads[-1].id)
                    block = next(blocks, None)
                writer.end()
            files.append(written(name, writer))
        return files


def _declaration(name: str) -> dict[str, Any]:
    """Return the definition of a queue of which nothing but its group is known."""
    return {
        "name": name,
        "vhost": LOST_VHOST,
        "durable": True,
        "auto_delete": False,
        "arguments": {"x-queue-type": "quorum"},
    }
