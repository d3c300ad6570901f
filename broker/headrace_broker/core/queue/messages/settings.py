"""Settings of a queue: the arguments and policies that its machine uses.

As bytes (in CONFIGURE commands and snapshots), big-endian:

    u8 version | n x (u8 field | i64 value, or u16 m | m bytes) in ascending order of fields

Fields that have their default are left out, so that fields can be added.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i16_be, write_i64_be
from mypy_extensions import i16, i64

from headrace_broker.core.queue.messages.byte_reader import ByteReader
from headrace_broker.model.limits import (
    ARCHIVE_AGE_MS,
    ARCHIVE_BYTES,
    ARCHIVE_MESSAGES,
    PUBLISHER_RETENTION_MS,
)

SETTINGS_VERSION: Final = 1

UNSET: Final = -1
NEWEST: Final = 255  # machine version: above all that there are
_VERSION_3: Final = 3
_VERSION_4: Final = 4
_VERSION_5: Final = 5
_LAST_OF_VERSION_2: Final = 21  # field
_LAST_OF_VERSION_3: Final = 22
_SINGLE_ACTIVE: Final = 7  # fields
_PRIORITY_MAX: Final = 9
_DEDUP_COUNT: Final = 10

OVERFLOW_DROP_HEAD: Final = 0
OVERFLOW_REJECT_PUBLISH: Final = 1
OVERFLOW_REJECT_PUBLISH_DLX: Final = 2  # refused publishes are dead-lettered as well

DEAD_LETTER_NONE: Final = 0
DEAD_LETTER_AT_MOST_ONCE: Final = 1
DEAD_LETTER_AT_LEAST_ONCE: Final = 2  # kept until FORGET says that they have arrived

RETRY_DISABLED: Final = 0
RETRY_ALL: Final = 1
RETRY_FAILED: Final = 2  # what came back counted as a failed delivery
RETRY_RETURNED: Final = 3  # what was released

ARCHIVE_NONE: Final = 0
ARCHIVE_HEADERS: Final = 1  # rows of settled messages, whose bodies are hidden
ARCHIVE_FULL: Final = 2

PRIORITY_MAX: Final = 255  # what the property of a message can carry
PRIORITY_MAX_OF_QUORUM: Final = 31  # where nothing is said; and the most before version 5


@final
class QueueSettings:
    """Settings of a queue; those of a new one change nothing about first in, first out."""

    def __init__(self) -> None:
        self.message_ttl_ms: i64 = UNSET  # most time that a message waits, UNSET for ever
        self.max_length: i64 = UNSET  # most messages that wait, UNSET for no limit
        self.max_length_bytes: i64 = UNSET  # the same in bytes of bodies
        self.overflow: i64 = OVERFLOW_DROP_HEAD  # an OVERFLOW constant
        self.delivery_limit: i64 = UNSET  # failed deliveries that a message survives, or UNSET
        self.dead_letter: i64 = DEAD_LETTER_NONE  # a DEAD_LETTER constant
        self.single_active = False  # only one consumer at a time gets deliveries
        self.consumer_timeout_ms: i64 = UNSET  # most time unsettled, UNSET for ever
        self.priority_max: i64 = 0  # highest priority told apart, 0 to PRIORITY_MAX
        self.deduplicate = False  # drop publishes whose x-deduplication-header is remembered
        self.dedup_count: i64 = 0  # most values remembered
        self.dedup_ms: i64 = UNSET  # how long a value is remembered, UNSET while there is room
        self.retry_type: i64 = RETRY_DISABLED  # RETRY constant: what comes back is held
        self.retry_min_ms: i64 = 0  # for how long after the first time
        self.retry_max_ms: i64 = 0  # the longest
        self.last_value_key = b""  # header: of each value the newest message waits; b"" none
        self.group_key = b""  # header whose equal values go to one consumer at a time, b"" none
        self.high_watermark_bytes: i64 = 0  # of bodies, past which confirms are deferred; 0 never
        self.low_watermark_bytes: i64 = 0  # at which they are given again, at most the high one
        self.high_watermark: i64 = 0  # as high_watermark_bytes, in messages
        self.low_watermark: i64 = 0  # likewise
        self.fairness_key = b""  # header whose values take turns, b"" none; not with another key
        self.publisher_retention_ms: i64 = PUBLISHER_RETENTION_MS  # after the last message
        self.archive: i64 = ARCHIVE_NONE  # ARCHIVE constant: what is kept of settled messages
        self.archive_max_messages: i64 = ARCHIVE_MESSAGES  # most of these
        self.archive_max_bytes: i64 = ARCHIVE_BYTES  # bytes of their bodies
        self.archive_max_age_ms: i64 = ARCHIVE_AGE_MS  # since they were settled, UNSET for any

    @property
    def reads_headers(self) -> bool:
        """True if every message's header table has to be read."""
        return self.deduplicate or (
            len(self.last_value_key) + len(self.group_key) + len(self.fairness_key) > 0
        )


# Field -> attribute that it holds, a number or the name of a header. They are read and set by name,
# which is slow: only CONFIGURE and snapshots have settings.
_NUMBERS: Final = {
    1: "message_ttl_ms",
    2: "max_length",
    3: "max_length_bytes",
    4: "overflow",
    5: "delivery_limit",
    6: "dead_letter",
    _SINGLE_ACTIVE: "single_active",  # 0 or 1
    8: "consumer_timeout_ms",
    _PRIORITY_MAX: "priority_max",
    _DEDUP_COUNT: "dedup_count",  # UNSET where it does not deduplicate
    11: "dedup_ms",
    12: "retry_type",
    13: "retry_min_ms",
    14: "retry_max_ms",
    17: "high_watermark_bytes",
    18: "low_watermark_bytes",
    19: "high_watermark",
    20: "low_watermark",
    22: "publisher_retention_ms",
    23: "archive",
    24: "archive_max_messages",
    25: "archive_max_bytes",
    26: "archive_max_age_ms",
}
_NAMES: Final = {15: "last_value_key", 16: "group_key", 21: "fairness_key"}


def _numbers(settings: QueueSettings) -> dict[int, int]:
    found = {field: int(getattr(settings, name)) for field, name in _NUMBERS.items()}
    if not settings.deduplicate:
        found[_DEDUP_COUNT] = UNSET
    return found


def _names(settings: QueueSettings) -> dict[int, bytes]:
    return {field: getattr(settings, name) for field, name in _NAMES.items()}


_PLAIN_NUMBERS: Final = _numbers(QueueSettings())
_FIELDS: Final = sorted([*_NUMBERS, *_NAMES])


def encode_settings(settings: QueueSettings, machine_version: i64 = NEWEST) -> bytes:
    """Encode settings, without what a machine of that version does not know; equal ones alike."""
    out = BytesWriter()
    out.append(SETTINGS_VERSION)
    numbers = _numbers(settings)
    names = _names(settings)
    if machine_version < _VERSION_5:
        numbers[_PRIORITY_MAX] = min(numbers[_PRIORITY_MAX], PRIORITY_MAX_OF_QUORUM)
    for field in _FIELDS:
        if field > _LAST_OF_VERSION_2 and machine_version < _VERSION_3:
            break
        if field > _LAST_OF_VERSION_3 and machine_version < _VERSION_4:
            break
        if field in numbers:
            if numbers[field] != _PLAIN_NUMBERS[field]:
                out.append(field)
                write_i64_be(out, numbers[field])
        elif names[field]:
            out.append(field)
            write_i16_be(out, i16(len(names[field])))
            out.write(names[field])
    return out.getvalue()


def decode_settings(data: bytes) -> QueueSettings | None:
    """Decode what `encode_settings` gave; None where it is malformed or holds an unknown field."""
    reader = ByteReader(data, 0)
    if reader.u8() != SETTINGS_VERSION:
        return None
    settings = QueueSettings()
    while not reader.failed and reader.position < len(data):
        field = reader.u8()
        if field in _NUMBERS:
            _set_number(settings, field, reader.s64())
        elif field in _NAMES:
            setattr(settings, _NAMES[field], reader.read_bytes(reader.u16()))
        else:
            return None
    return settings if reader.at_end() and _plausible(settings) else None


def _set_number(settings: QueueSettings, field: int, value: int) -> None:
    if field == _SINGLE_ACTIVE:
        settings.single_active = value == 1
    else:
        setattr(settings, _NUMBERS[field], value)
    if field == _DEDUP_COUNT:
        settings.deduplicate = True


def _plausible(settings: QueueSettings) -> bool:
    return (
        min(_numbers(settings).values()) >= UNSET
        and settings.overflow <= OVERFLOW_REJECT_PUBLISH_DLX
        and settings.dead_letter <= DEAD_LETTER_AT_LEAST_ONCE
        and settings.retry_type <= RETRY_RETURNED
        and settings.priority_max <= PRIORITY_MAX
        and 0 <= settings.low_watermark_bytes <= settings.high_watermark_bytes
        and 0 <= settings.low_watermark <= settings.high_watermark
        and settings.publisher_retention_ms >= 0
        and 0 <= settings.archive <= ARCHIVE_FULL
        and settings.archive_max_messages >= 0
        and settings.archive_max_bytes >= 0
    )
