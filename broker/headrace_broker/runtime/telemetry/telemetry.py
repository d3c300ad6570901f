"""The telemetry of a node: a look each second, and logs in which others read it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace_broker.codecs.column_block import ColumnBlock, Schema, encode_columns
from headrace_broker.config.telemetry import TelemetrySection
from headrace_broker.core.queue.messages.effect import REASON_NAMES
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import TELEMETRY, Cause
from headrace_broker.model.limits import TELEMETRY_BLOCK_ROWS as BLOCK_ROWS
from headrace_broker.runtime.clients.sample_turns import SampleTurns
from headrace_broker.runtime.export.log import ExportLog
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.telemetry.edges import EdgeTaker
from headrace_broker.runtime.telemetry.episodes import Episodes
from headrace_broker.runtime.telemetry.node_log import NodeLog, Nodes
from headrace_broker.runtime.telemetry.queue_notes import QueueNotes
from headrace_broker.runtime.telemetry.sampler import Part, SampleTaker
from headrace_broker.runtime.telemetry.schema import (
    DEBT_EDGES,
    FLOW_EVENTS,
    FLOW_SAMPLES,
    QUEUE_EVENTS,
    SCHEMAS,
    Row,
)
from headrace_broker.runtime.telemetry.shard_log import Bounds
from headrace_broker.runtime.telemetry.sources import Around, Moment, Sources
from headrace_broker.runtime.telemetry.store import Place, TelemetryStore, unix_ms

LOOK_SECONDS: Final = 1.0  # between looks
DIRECTORY: Final = "telemetry"  # in the data directory

# Parts of what may be kept that logs get.
PARTS: Final = {FLOW_SAMPLES: 0.5, DEBT_EDGES: 0.3, FLOW_EVENTS: 0.1, QUEUE_EVENTS: 0.1}

log = logging.getLogger("headrace.node")


def now_us() -> int:
    """Return a time that only goes forward."""
    return time.monotonic_ns() // 1000


class Seen(NamedTuple):
    """Result of one sample."""

    parts: list[Part]  # of samples
    rows: dict[str, Sequence[Row]]  # of the other logs, by name


class Takers(NamedTuple):
    """Samplers of each kind of row."""

    edges: EdgeTaker
    samples: SampleTaker
    episodes: Episodes
    notes: QueueNotes


class Telemetry:
    """Notes how a node fares, and answers other nodes that ask for it."""

    def __init__(self, section: TelemetrySection, sources: Sources, around: Around) -> None:
        self._sources = sources  # parts of the node that keep figures; it is not started yet
        self._around = around  # the node
        self._section = section  # of the configuration
        self._name = sources.node
        byte_count = section.bytes_max
        age_ms = section.age_hours_max * 3_600_000
        self._store = TelemetryStore(
            Place(self._name, around.address),
            os.path.join(around.data_dir, DIRECTORY),
            SCHEMAS if section.enabled else {},
            {name: Bounds(int(byte_count * part), age_ms) for name, part in PARTS.items()},
        )
        nodes = Nodes(self._name, around.names, self._store.answer, around.rpc)
        # by name, of all nodes
        self.logs: Mapping[str, ExportLog] = {name: NodeLog(name, nodes) for name in SCHEMAS}
        cause = Cause(f"{self._name}/{TELEMETRY}", TELEMETRY, TELEMETRY, self._name)
        self._account = sources.ledger.open(cause)
        self._takers: Takers | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._looked = 0.0  # on the loop's clock
        self._complaint = ""  # why the last look is lost, told once

    async def start(self) -> None:
        """Open the logs, and look from now on."""
        if not self._section.enabled:
            return
        await self._store.start()
        self._takers = self._make_takers()
        self._task = asyncio.get_running_loop().create_task(self._look_forever(), name="telemetry")

    async def stop(self) -> None:
        """Take a last sample, and stop."""
        if self._task is not None:
            self._stopping.set()
            await self._task  # a look that is under way has taken what it tells
            self._task = None
            await self._try_to_note(0)
        await self._store.stop()

    def _make_takers(self) -> Takers:
        sources, around, name = self._sources, self._around, self._name
        rows_max = self._section.entities_max
        notes = QueueNotes(name, around.leads, lambda each: around.names.get(each, ""), unix_ms)
        episodes = Episodes(sources, around.boot)

        def dead_lettered(queue: Queue, reason: int, count: int) -> None:
            episodes.dead_lettered(queue, REASON_NAMES.get(reason, ""), count)

        def led(host: QueueHost) -> None:
            notes.led(host.queue)

        around.subscribe(notes.on_events)
        around.duties.on_led = led
        around.duties.on_dead_lettered = dead_lettered
        sources.traffic.purges = []
        return Takers(EdgeTaker(sources, rows_max), SampleTaker(sources, rows_max), episodes, notes)

    async def _look_forever(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._looked = loop.time()
        while True:
            due = max(due + LOOK_SECONDS, loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(due - loop.time()):
                    await self._stopping.wait()
                return
            await self._try_to_note(max(int(1000 * (loop.time() - due)), 0))

    async def _try_to_note(self, lag_ms: int) -> None:
        """Take a sample and record it; an error costs only that sample."""
        try:
            await self._note_now(lag_ms)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != self._complaint:
                log.exception("telemetry sample lost")
            self._complaint = text
        else:
            self._complaint = ""

    async def _note_now(self, lag_ms: int) -> None:
        now = asyncio.get_running_loop().time()
        elapsed_ms = max(int(1000 * (now - self._looked)), 1)
        self._looked = now
        moment = Moment(unix_ms(), elapsed_ms, now_us())
        await self._note(moment, await self._look(moment, lag_ms))

    async def _look(self, moment: Moment, lag_ms: int) -> Seen:
        """Return the rows of a sample; a large one takes several turns of the loop."""
        takers = self._takers
        assert takers is not None
        traffic = self._sources.traffic
        for queue, count in traffic.purges or ():
            takers.notes.purged(queue, count)
        traffic.purges = []
        turns = SampleTurns()
        edges = await takers.edges.take(moment, turns)
        events = takers.episodes.take(moment)
        notes = takers.notes.take()
        left_out = takers.edges.left_out + takers.episodes.left_out + takers.notes.left_out
        takers.notes.left_out = 0
        parts: list[Part] = []
        for some in takers.samples.take(moment, takers.edges.brought, lag_ms, left_out):
            parts += some
            await turns.pause()
        return Seen(parts, {DEBT_EDGES: edges, FLOW_EVENTS: events, QUEUE_EVENTS: notes})

    async def _note(self, moment: Moment, seen: Seen) -> None:
        """Write rows; meanwhile they are telemetry's debt."""
        count = sum(len(part.rows) for part in seen.parts) + sum(map(len, seen.rows.values()))
        self._account.borrow(count, 0)
        try:
            await self._store.note(moment.at_ms, lambda: encode(moment, self._name, seen))
        finally:
            self._account.repay(count, 0)


def encode(moment: Moment, node: str, seen: Seen) -> dict[str, list[ColumnBlock]]:
    """Return the sampled rows as blocks, by log."""
    found = {name: _encode_rows(SCHEMAS[name], rows) for name, rows in seen.rows.items()}
    found[FLOW_SAMPLES] = encode_samples(moment, node, seen.parts)
    return found


def _encode_rows(schema: Schema, rows: Sequence[Row]) -> list[ColumnBlock]:
    return [
        encode_columns(schema, list(zip(*rows[start : start + BLOCK_ROWS], strict=True)))
        for start in range(0, len(rows), BLOCK_ROWS)
    ]


def encode_samples(moment: Moment, node: str, parts: Iterable[Part]) -> list[ColumnBlock]:
    """Return rows of samples as blocks: of one kind, where there are many; else of all."""
    schema = SCHEMAS[FLOW_SAMPLES]
    places = {name: place for place, (name, _) in enumerate(schema.columns)}
    blocks: list[ColumnBlock] = []
    columns: list[list[Any]] = [[] for _ in schema.columns]
    for part in parts:
        count = len(part.rows)
        if columns[0] and len(columns[0]) + count > BLOCK_ROWS:
            blocks.append(encode_columns(schema, columns))
            columns = [[] for _ in schema.columns]
        common = {"at": moment.at_ms, "elapsed_ms": moment.elapsed_ms, "node": node}
        given = dict(zip(part.fields, zip(*part.rows, strict=True), strict=False))
        for name, place in places.items():
            values = given.get(name)
            columns[place] += values if values is not None else [common.get(name)] * count
        kinds = columns[places["kind"]]
        kinds[len(kinds) - count :] = [part.kind] * count
    if columns[0]:
        blocks.append(encode_columns(schema, columns))
    return blocks
