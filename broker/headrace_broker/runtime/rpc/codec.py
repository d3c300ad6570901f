"""Values of compiled classes in requests and answers: arrays of their fields.

A compiled class says nothing of its fields to a decoder, so the tables here do. The classes must
not be data classes: msgspec would send those by itself, as maps, which other releases do not read.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace_broker.core.queue.state.archive_effect import (
    ArchiveAnswer,
    ArchiveGroupInfo,
    ArchiveInfo,
)
from headrace_broker.core.queue.state.lease_effect import GroupInfo, LeaseAnswer, LeaseInfo

# Arguments of each class, in order, with their types; attributes have the same names.
_FIELDS: Final[dict[type, dict[str, Any]]] = {
    LeaseInfo: {"number": int, "state": int, "count": int, "byte_count": int, "rows": list[int]},
    GroupInfo: {
        "name": bytes,
        "epoch": int,
        "next_number": int,
        "settled": int,
        "deadline_ms": int,
        "leases": list[LeaseInfo],
    },
    LeaseAnswer: {
        "request": int,
        "status": int,
        "group": GroupInfo | None,
        "count": int,
        "byte_count": int,
        "ready": int,
        "gone": list[LeaseInfo],
    },
    ArchiveGroupInfo: {"name": bytes, "epoch": int, "committed": int, "committed_ms": int},
    ArchiveInfo: {
        "mode": int,
        "since_ms": int,
        "first": int,
        "following": int,
        "byte_count": int,
        "first_ms": int,
        "last_ms": int,
        "groups": list[ArchiveGroupInfo],
    },
    ArchiveAnswer: {
        "request": int,
        "status": int,
        "group": ArchiveGroupInfo | None,
        "first": int,
        "following": int,
    },
}
_TYPES: Final = {kind: tuple[tuple(fields.values())] for kind, fields in _FIELDS.items()}  # type: ignore[misc]


def fields_of(value: Any) -> list[Any]:
    """Return a compiled value as the array of its fields.

    Raises NotImplementedError: it is of no class that travels.
    """
    names = _FIELDS.get(type(value))
    if names is None:
        raise NotImplementedError(f"{type(value).__name__} is not sent between nodes")
    return [getattr(value, name) for name in names]


def value_of(kind: type, fields: Any) -> Any:
    """Return a compiled value from the array of its fields.

    Raises:
        msgspec.ValidationError: they are not its fields.
    """
    try:
        return kind(*msgspec.convert(fields, _TYPES[kind], dec_hook=value_of))
    except OverflowError as error:  # which a decoder would let through
        raise ValueError(f"a number of {kind.__name__} is too large") from error


ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=fields_of)


def decoder_of(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of a type that may hold values of compiled classes."""
    return msgspec.msgpack.Decoder(kind, dec_hook=value_of)
