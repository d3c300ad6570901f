"""Options of the source `headrace_log`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace_client.export import ARCHIVE
from headrace_pipeline.error import OptionError
from headrace_pipeline.limits import PARTITIONS_MAX
from headrace_pipeline.options.connection import Connection, read_connection
from headrace_pipeline.options.option import Options
from headrace_pipeline.schema.column import Table
from headrace_pipeline.schema.log import LOGS

NAME: Final = "headrace_log"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_NUMBER_MAX: Final = (1 << 63) - 1
_GROUP_BYTES_MAX: Final = 255


class Start(NamedTuple):
    """Begin or end of reading."""

    where: str  # EARLIEST or LATEST, of shards that are not in `shards`
    # by name (incarnation, index); incarnation 0 for the present one, index -1 for the latest and
    # -2 for the earliest
    shards: Mapping[str, tuple[int, int]] = {}
    since_ms: int = 0  # Unix time from which on rows are wanted, instead of all that; 0 for none


class Settings(NamedTuple):
    """Options of the source; they hold no secret, and can be pickled."""

    connection: Connection  # where the brokers are
    log: str  # a name of `schema.log.LOGS`
    queues: tuple[str, ...]  # of the archive: names, of which `*` and `?` match any
    start: Start  # where reading begins
    end: Start  # where a batch ends
    rows_max: int  # of a trigger, 0 for all
    bytes_max: int  # likewise, as brokers count them
    partitions_min: int  # tasks, as far as there are rows
    fail_on_data_loss: bool  # or go on with a warning
    group: str  # that says how far it has come; "" for none
    include_headers: bool  # the archive's column `headers` is wanted

    @property
    def table(self) -> Table:
        """Schema of the rows."""
        table = LOGS[self.log]
        return table if self.include_headers else table.without("headers")

    @property
    def is_archive(self) -> bool:
        """True if queues have the shards, and not nodes."""
        return self.log == ARCHIVE

    def wants(self, queue: str) -> bool:
        """Return whether a queue's archive is to be read."""
        return any(_pattern(each).fullmatch(queue) for each in self.queues)

    @property
    def named(self) -> tuple[str, ...]:
        """Queues that are named, and not by a pattern: they must be there."""
        return tuple(each for each in self.queues if not is_pattern(each))


def is_pattern(queue: str) -> bool:
    """Return whether a name matches more than itself."""
    return "*" in queue or "?" in queue


def _pattern(text: str) -> re.Pattern[str]:
    places = {"*": ".*", "?": "."}
    return re.compile("".join(places.get(each) or re.escape(each) for each in text), re.DOTALL)


def read_settings(given: Mapping[str, str]) -> Settings:
    """Read what stands in options; options for batches or streams only are checked later.

    Raises:
        OptionError: one is wrong.
    """
    options = Options(given, NAME)
    connection = read_connection(options)
    log = options.choice("log", tuple(LOGS))
    queues: tuple[str, ...] = ()
    if log == ARCHIVE:
        queues = tuple(each.strip() for each in options.text("queue", "*").split(","))
        if not all(queues):
            raise OptionError("queue", "must be names, or patterns with * and ?, between commas")
    else:
        options.refuse("queue", "only the log archive has queues")
        options.refuse("includeHeaders", "only the log archive has headers")
    group = options.text("group", "")
    if len(group.encode()) > _GROUP_BYTES_MAX:
        raise OptionError("group", f"must have at most {_GROUP_BYTES_MAX} bytes")
    settings = Settings(
        connection,
        log,
        queues,
        _start(options),
        _place("endingOffsets", options.text("endingOffsets", LATEST)),
        options.integer("maxRowsPerTrigger", 0, 0, _NUMBER_MAX),
        options.integer("maxBytesPerTrigger", 0, 0, _NUMBER_MAX),
        options.integer("minPartitions", 0, 0, PARTITIONS_MAX),
        options.flag("failOnDataLoss", True),
        group,
        options.flag("includeHeaders", False),
    )
    options.done()
    return settings


def check_batch(settings: Settings, given: Mapping[str, str]) -> Settings:
    """Return settings of a batch, which begins at the earliest row unless something else is said.

    Raises:
        OptionError: an option is for streams.
    """
    options = Options(given, NAME)
    for name in ("maxRowsPerTrigger", "maxBytesPerTrigger"):
        options.refuse(name, "is for streams; a batch reads all up to endingOffsets")
    options.refuse("group", "is for streams: a batch keeps no place")
    end = settings.end
    if end.where == EARLIEST or any(index == _EARLIEST for _, index in end.shards.values()):
        raise OptionError(
            "endingOffsets", "must be latest or JSON with indexes: nothing ends there"
        )
    if "startingoffsets" in {name.lower() for name in given} or settings.start.since_ms:
        return settings
    return settings._replace(start=Start(EARLIEST))


def check_stream(given: Mapping[str, str]) -> None:
    """Refuse options for batches only.

    Raises:
        OptionError: an option is.
    """
    Options(given, NAME).refuse("endingOffsets", "is for batches; a stream goes on")


def _start(options: Options) -> Start:
    since_ms = options.integer("startingTimestamp", 0, 0, _NUMBER_MAX // 1000)
    if since_ms:
        options.refuse("startingOffsets", "cannot be given together with startingTimestamp")
    found = _place("startingOffsets", options.text("startingOffsets", LATEST))
    return found._replace(since_ms=since_ms)


_LATEST: Final = -1
_EARLIEST: Final = -2
_PLACES: Final = {EARLIEST: _EARLIEST, LATEST: _LATEST}
_RULE: Final = (
    'must be earliest, latest or JSON such as {"n1": 500, "n2": "latest"}: shards by name, and the '
    'index of the row, [incarnation, index], "earliest" or "latest"; what a checkpoint has will do'
)


def _place(option: str, text: str) -> Start:
    """Read earliest, latest, or JSON; shards that it does not name are read from the earliest on.

    Raises:
        OptionError: it is none of these.
    """
    if text.lower() in _PLACES:
        return Start(text.lower())
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if isinstance(given, dict) and "version" in given:
        given = given.get("shards")
    if not isinstance(given, dict):
        raise OptionError(option, f"{_RULE}; not {text!r}")
    shards = {name: _index(option, name, value) for name, value in given.items()}
    return Start(EARLIEST if option == "startingOffsets" else LATEST, shards)


def _index(option: str, name: str, value: Any) -> tuple[int, int]:
    if isinstance(value, str) and value in _PLACES:
        return 0, _PLACES[value]
    numbers = value[:2] if isinstance(value, list) else [0, value]
    right = len(numbers) == 2 and all(
        isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= _NUMBER_MAX
        for each in numbers
    )
    if not right:
        raise OptionError(option, f"{_RULE}; {name} has {value!r}")
    return numbers[0], numbers[1]
