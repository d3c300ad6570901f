"""Size of a field's value in bytes, by its type byte: for all readers of field tables.

Source: AMQP 0-9-1 section 4.2.5 with the field types of RabbitMQ's errata
(https://www.rabbitmq.com/amqp-0-9-1-errata.html, section 3).
"""

from __future__ import annotations

from typing import Final

UNKNOWN_SIZE: Final = 255  # of a type that there is not
VARIABLE_SIZE: Final = 254  # of a type whose values begin with their length, a u32


def _value_sizes() -> bytes:
    sizes = bytearray([UNKNOWN_SIZE]) * 256
    for types, size in ((b"V", 0), (b"tbB", 1), (b"su", 2), (b"Iif", 4), (b"D", 5), (b"lLdT", 8)):
        for code in types:
            sizes[code] = size
    for code in b"AFSx":
        sizes[code] = VARIABLE_SIZE
    return bytes(sizes)


VALUE_SIZES: Final = _value_sizes()  # bytes of a value by its type byte
