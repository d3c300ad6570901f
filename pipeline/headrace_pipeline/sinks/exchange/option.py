"""The options of the sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace_client.publisher import SEQUENCE_MAX
from headrace_pipeline.error import OptionError
from headrace_pipeline.limits import SINK_UNCONFIRMED_BYTES, SINK_UNCONFIRMED_MESSAGES
from headrace_pipeline.options.connection import Connection, read_connection
from headrace_pipeline.options.option import Options
from headrace_pipeline.sinks.exchange.column import EXCHANGE, ROUTING_KEY
from headrace_pipeline.sinks.exchange.fingerprint import BITS

FAIL: Final = "fail"
DROP: Final = "drop"
ROUND_MAX: Final = SEQUENCE_MAX >> BITS  # of a batch's number: with a fingerprint it is an epoch
_ID_BYTES_MAX: Final = 200  # of a publisher id, to which the number of a partition is added


class SinkOptions(NamedTuple):
    """Options of the sink."""

    connection: Connection  # to the brokers
    exchange: str  # of rows that name none; "" is the default exchange
    routing_key: str  # of rows that name none
    mandatory: bool  # a message that reaches no queue is refused
    confirms: bool  # every message is awaited until it is safe
    on_refused: str  # FAIL or DROP
    persistent: bool  # of rows that do not say it
    unconfirmed_max: int  # messages of a task
    unconfirmed_bytes_max: int  # their bytes
    publisher_id: str  # "" for one that is made up
    round: int  # of a batch write with a publisher id: higher for each one with other rows
    give_up_after_s: float  # seconds without a node after which a task fails


def read_options(options: Options, columns: Sequence[str], streaming: bool) -> SinkOptions:
    """Take all options.

    Args:
        options: as Spark gives them.
        columns: of the DataFrame.
        streaming: whether batches come one after the other.

    Raises:
        OptionError: one is wrong.
    """
    if streaming:
        options.refuse("epoch", "belongs to batch writes; of a stream it is the batch's number")
    found = SinkOptions(
        read_connection(options),
        options.text("exchange", ""),
        options.text("routingKey", ""),
        options.flag("mandatory", True),
        options.flag("confirms", True),
        options.choice("onRefused", (FAIL, DROP), FAIL),
        options.flag("persistent", True),
        options.integer("maxInFlight", SINK_UNCONFIRMED_MESSAGES, 1, 1 << 20),
        options.integer("maxInFlightBytes", SINK_UNCONFIRMED_BYTES, 1, 1 << 30),
        options.text("publisherId", ""),
        options.integer("epoch", 0, 0, ROUND_MAX),
        float(options.integer("giveUpAfterSeconds", 120, 1, 86_400)),
    )
    options.done()
    _check(found, columns)
    return found


def _check(options: SinkOptions, columns: Sequence[str]) -> None:
    named = options.exchange or EXCHANGE in columns
    if not (named or options.routing_key or ROUTING_KEY in columns):
        rule = "is needed, or option routingKey or a column routing_key, which name a queue"
        raise OptionError("exchange", rule)
    if options.round and not options.publisher_id:
        raise OptionError("epoch", "belongs to option publisherId")
    if len(options.publisher_id.encode()) > _ID_BYTES_MAX:
        raise OptionError("publisherId", f"must have at most {_ID_BYTES_MAX} bytes")
    if not options.confirms:
        if options.publisher_id:
            raise OptionError("publisherId", "needs confirms: without them nothing is sent again")
        if options.on_refused == FAIL and options.mandatory:
            rule = "must be drop, or mandatory be false, where confirms is false: nobody waits"
            raise OptionError("onRefused", rule)
