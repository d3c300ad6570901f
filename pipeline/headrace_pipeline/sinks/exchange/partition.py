"""Publishes the rows of one partition through this process's connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa

from headrace_client import error as client_error
from headrace_client.blocking import Publisher
from headrace_pipeline.error import FencedError
from headrace_pipeline.options.reach import client
from headrace_pipeline.sinks.exchange.identity import Identity
from headrace_pipeline.sinks.exchange.option import DROP, FAIL, SinkOptions
from headrace_pipeline.sinks.exchange.publish import RowPublisher, Tally
from headrace_pipeline.sinks.exchange.row import rows


def publish_batches(
    options: SinkOptions, who: Identity | None, name: str, batches: Iterable[pa.RecordBatch]
) -> Tally:
    """Publish batches of `column.uniform`, and wait until all is safe; connects with the first row.

    Args:
        options: of the sink.
        who: to the broker; None for nobody that it knows again.
        name: of the stream in listings.
        batches: the rows' numbers are their places in them.

    Raises:
        RowsRefusedError: rows were refused, and options say that this fails.
        FencedError: somebody else publishes under a later epoch.
        HeadraceError: it is not known what became of some rows.
    """
    filled = (each for each in batches if each.num_rows)
    first = next(filled, None)
    if first is None:
        return Tally()
    number = 1
    with fencing(who), publisher(options, who, name) as sender:
        found = row_publisher(options, sender, 0 if who is not None else None)
        for batch in chain((first,), filled):
            for part in rows(batch, number, options.persistent):
                found.publish(part)
            number += batch.num_rows
        found.finish()
    return found.tally


def row_publisher(
    options: SinkOptions, sender: Publisher, offset: int | None, of: str = ""
) -> RowPublisher:
    """Return what publishes rows as options say; for the others see `RowPublisher`."""
    fails = options.on_refused == FAIL
    proves = fails and offset is not None
    return RowPublisher(sender, offset, fails, proves, options.unconfirmed_max, of)


@contextlib.contextmanager
def publisher(options: SinkOptions, who: Identity | None, name: str) -> Iterator[Publisher]:
    """Open a publisher; at the end it is waited for.

    Without confirms what was refused is told then, and passed over where options say so.
    """
    drops = not options.confirms and options.on_refused == DROP
    passed_over = (client_error.PublishRefusedError,) if drops else ()
    found = client(options.connection).publisher(
        options.exchange,
        options.routing_key,
        mandatory=options.mandatory,
        confirms=options.confirms,
        publisher_id=who.publisher_id if who is not None else "",
        epoch=who.epoch if who is not None else None,
        name=name,
        unconfirmed_max=options.unconfirmed_max,
        unconfirmed_bytes_max=options.unconfirmed_bytes_max,
        give_up_after_s=options.give_up_after_s,
    )
    with contextlib.suppress(*passed_over), found:
        yield found


@contextlib.contextmanager
def fencing(who: Identity | None) -> Iterator[None]:
    """Explain the fencing of a publisher by a later epoch.

    Raises:
        FencedError: somebody does.
    """
    try:
        yield
    except client_error.FencedError as error:
        name, epoch = who if who is not None else ("", 0)
        raise FencedError(
            f"publisher {name!r}, epoch {epoch}: {error}. Either another driver has gone on with "
            "this query: then this one must stop; or the rows of this partition, or their order, "
            "are not those of an earlier attempt: then sort them within partitions, or take "
            "another checkpoint or publisherId, which publishes again what is there of this batch"
        ) from None
