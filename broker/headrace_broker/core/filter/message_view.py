"""A message as a filter sees it: properties and headers by name, decoded when asked for.

Values are int, float, bool, bytes of texts and byte arrays, None for what is not there (or void),
and OPAQUE for a table or an array, which is there and equals nothing.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_f32_be, read_f64_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from headrace_broker.core.filter.like_pattern import LongText
from headrace_broker.core.property_reader import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
    PropertyReader,
    field_stop,
    integer_at,
    note_fields,
)
from headrace_broker.model.limits import LIKE_CHARACTERS_MAX, LIKE_CHARACTERS_OF_MESSAGE_MAX

# What is no plain property: numbers that are no flag of one.
HEADER: Final = 0
JMS_PRIORITY: Final = 1  # 4 unless the message says otherwise
JMS_TIMESTAMP: Final = 2  # in milliseconds
JMS_DELIVERY_MODE: Final = 3  # a text
DURABLE: Final = 5  # a boolean

PROPERTIES: Final = {
    "content_type": CONTENT_TYPE,
    "content_encoding": CONTENT_ENCODING,
    "delivery_mode": DELIVERY_MODE,
    "priority": PRIORITY,
    "correlation_id": CORRELATION_ID,
    "reply_to": REPLY_TO,
    "expiration": EXPIRATION,
    "message_id": MESSAGE_ID,
    "timestamp": TIMESTAMP,
    "creation_time": TIMESTAMP,
    "type": TYPE,
    "user_id": USER_ID,
    "app_id": APP_ID,
    "cluster_id": CLUSTER_ID,
}
JMS_NAMES: Final = {
    "JMSPriority": JMS_PRIORITY,
    "JMSTimestamp": JMS_TIMESTAMP,
    "JMSDeliveryMode": JMS_DELIVERY_MODE,
    "JMSMessageID": MESSAGE_ID,
    "JMSCorrelationID": CORRELATION_ID,
    "JMSType": TYPE,
    "JMSXUserID": USER_ID,
}
_SECTION_HEADER: Final = {"priority": PRIORITY, "durable": DURABLE}
_JMS_PRIORITY_DEFAULT: Final = 4
_PERSISTENT: Final = 2

_FEW_BYTES: Final = 512  # of headers among which one is found sooner than it is remembered
_FIELD_STEPS: Final = 4  # to note where one of them stands
_UTF8_BYTES: Final = 4  # of a character at most


@final
class Opaque:
    """A value that can be there or not, and no more."""


OPAQUE: Final = Opaque()


@final
class MessageView:
    """One message at a time.

    However many names a filter asks for, the headers are gone through twice at most, and a long
    text is made ready for LIKE once.
    """

    def __init__(self) -> None:
        # steps that were taken to read the message, beside one for each part of a filter; each some
        # 30 ns
        self.work: i64 = 0
        self._reader = PropertyReader()
        self._blob = b""
        self._values: dict[bytes, object] = {}  # by name, of a message with many bytes of headers
        self._places: dict[bytes, int] = {}  # by name, of all its headers
        self._long: dict[bytes, LongText | None] = {}
        self._long_characters: i64 = 0

    def show(self, blob: bytes, start: i64) -> bool:
        """Turn to the message whose properties' length stands at `start`; False if malformed."""
        self.work = 0
        self._blob = blob
        return self._reader.scan(blob, start)

    def leave(self) -> None:
        """Forget the message, and count what its long texts took."""
        self._blob = b""
        if self._values:
            self._values.clear()
            self._places.clear()
        if self._long:
            for long in self._long.values():
                if long is not None:
                    self.work += long.work
            self._long.clear()
            self._long_characters = 0

    def header(self, name: bytes) -> object:
        """Return the value of a header."""
        reader = self._reader
        byte_count = reader.headers_stop - reader.headers_start
        if byte_count > _FEW_BYTES:
            return self._remembered(name, byte_count)
        self.work += byte_count >> 4
        pos = reader.header(self._blob, name)
        if pos < 0:
            return None
        return _field_value(self._blob, pos, reader.headers_stop)

    def _remembered(self, name: bytes, byte_count: i64) -> object:
        """Return the value of one header of many, or a long one."""
        if name in self._values:
            return self._values[name]
        reader = self._reader
        pos: i64 = -1
        if not self._values:
            self.work += byte_count >> 4
            pos = reader.header(self._blob, name)
        else:
            if not self._places:
                start, stop = reader.headers_start, reader.headers_stop
                self.work += _FIELD_STEPS * note_fields(self._blob, start, stop, self._places)
            if name in self._places:
                pos = self._places[name]
        value = None if pos < 0 else _field_value(self._blob, pos, reader.headers_stop)
        self._values[name] = value
        return value

    def long_text(self, data: bytes) -> LongText | None:
        """Return a text as LIKE looks at it; None where it is too long, or is one too many."""
        if data in self._long:
            return self._long[data]
        long: LongText | None = None
        if len(data) <= LIKE_CHARACTERS_MAX * _UTF8_BYTES:
            text = data.decode("utf-8", "surrogateescape")
            if len(text) <= LIKE_CHARACTERS_MAX:
                self._long_characters += len(text)
                if self._long_characters <= LIKE_CHARACTERS_OF_MESSAGE_MAX:
                    long = LongText(text)
        self._long[data] = long
        return long

    def property(self, field: i64) -> object:
        """Return the value of a property: one of PROPERTIES or JMS_NAMES, or DURABLE."""
        reader = self._reader
        if field == PRIORITY:
            return None if reader.priority < 0 else int(reader.priority)
        if field == JMS_PRIORITY:
            return int(_JMS_PRIORITY_DEFAULT if reader.priority < 0 else reader.priority)
        if field == DELIVERY_MODE:
            return None if reader.delivery_mode < 0 else int(reader.delivery_mode)
        if field == JMS_DELIVERY_MODE:
            return b"PERSISTENT" if reader.delivery_mode == _PERSISTENT else b"NON_PERSISTENT"
        if field == DURABLE:
            return reader.delivery_mode == _PERSISTENT
        if field == EXPIRATION:
            return None if reader.expiration_ms < 0 else int(reader.expiration_ms)
        if field in (TIMESTAMP, JMS_TIMESTAMP):
            seconds = reader.timestamp(self._blob)
            if seconds < 0:
                return None
            return int(seconds) * 1000 if field == JMS_TIMESTAMP else int(seconds)
        return reader.text(self._blob, field)


def property_of(name: str) -> int:
    """Return the field that a name means, or HEADER; KeyError for an unknown property."""
    if name in JMS_NAMES:
        return JMS_NAMES[name]
    if name.startswith("JMS") and not name.startswith(("JMSX", "JMS_")):
        raise KeyError(name)
    section, dot, rest = name.partition(".")
    if dot and section in ("properties", "p"):
        return PROPERTIES[rest]
    if dot and section in ("header", "h"):
        return _SECTION_HEADER[rest]
    return HEADER


def header_name(name: str) -> str:
    """Return the header that a selector's name means, if `property_of` says HEADER."""
    section, dot, rest = name.partition(".")
    return rest if dot and rest and section in ("application_properties", "a") else name


def _field_value(blob: bytes, pos: i64, stop: i64) -> object:
    kind: i64 = blob[pos]
    if kind in (0x53, 0x78):  # S, x
        return blob[pos + 5 : field_stop(blob, pos, stop)]
    if kind == 0x74:  # t
        return blob[pos + 1] != 0
    if kind == 0x64:  # d
        return read_f64_be(blob, pos + 1)
    if kind == 0x66:  # f
        return read_f32_be(blob, pos + 1)
    if kind == 0x44:  # D
        scale: i64 = blob[pos + 1]
        return float(int(read_i32_be(blob, pos + 2))) / 10.0 ** int(scale)
    if kind == 0x54:  # T
        return int(read_i64_be(blob, pos + 1))
    if kind == 0x56:  # V
        return None
    if kind in (0x41, 0x46):  # A, F
        return OPAQUE
    return int(integer_at(blob, pos))
