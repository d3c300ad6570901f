"""Changes of a message's raw property block; everything else in it stays byte by byte.

Blocks are well formed, as the frame parser checks them.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from headrace_broker.core.property_reader import PropertyReader, field_stop, find_field

_LONG_INTEGER: Final = 0x6C  # l


def replace_text(properties: bytes, mask: i64, text: bytes) -> bytes:
    """Return the block with another text, 0 to 255 bytes, of the property with a flag."""
    reader = PropertyReader()
    reader.scan_block(properties, 0, len(properties))
    pos = reader.value_start(properties, mask)
    assert pos >= 0, "the property is there"
    out = BytesWriter()
    out.write(properties[:pos])
    out.append(len(text))
    out.write(text)
    out.write(properties[pos + 1 + properties[pos] :])
    return out.getvalue()


def without_header(properties: bytes, name: bytes) -> bytes:
    """Return the block without any header of that name; the header table may become empty."""
    while True:
        reader = PropertyReader()
        reader.scan_block(properties, 0, len(properties))
        start = reader.headers_start
        stop = reader.headers_stop
        value = find_field(properties, start, stop, name)
        if value < 0:
            return properties
        field: i64 = value - len(name) - 1
        after = field_stop(properties, value, stop)
        out = BytesWriter()
        out.write(properties[: start - 4])
        write_i32_be(out, i32(stop - start - (after - field)))
        out.write(properties[start:field])
        out.write(properties[after:])
        properties = out.getvalue()


def with_header_int(properties: bytes, name: bytes, number: i64) -> bytes:
    """Return the block with another value of a header that is there: a long integer."""
    reader = PropertyReader()
    reader.scan_block(properties, 0, len(properties))
    start = reader.headers_start
    stop = reader.headers_stop
    value = find_field(properties, start, stop, name)
    assert value >= 0, "the header is there"
    after = field_stop(properties, value, stop)
    out = BytesWriter()
    out.write(properties[: start - 4])
    write_i32_be(out, i32(stop - start - (after - value) + 9))
    out.write(properties[start:value])
    out.append(_LONG_INTEGER)
    write_i64_be(out, number)
    out.write(properties[after:])
    return out.getvalue()
