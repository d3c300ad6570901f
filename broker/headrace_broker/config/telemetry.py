"""The part of the configuration about what a node notes of itself for others to read."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from headrace_broker.model.limits import (
    TELEMETRY_AGE_HOURS,
    TELEMETRY_BYTES,
    TELEMETRY_ENTITIES,
)

MIB: Final = 1 << 20
GIB: Final = 1 << 30
WILDCARDS: Final = ("0.0.0.0", "[::]", "::")  # noqa: S104  (compared with, not bound to)


class TelemetrySection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Telemetry of each second, and its retention; see docs/telemetry.md.

    Attributes:
        enabled: whether anything is.
        bytes_max: of the disk, for all logs of this node together.
        age_hours_max: rows that are older are dropped, read or not.
        entities_max: rows of samples, and as many of debts, noted at a time; the largest ones.
    """

    enabled: bool = True
    bytes_max: Annotated[int, Meta(ge=4 * MIB, le=64 * GIB)] = TELEMETRY_BYTES
    age_hours_max: Annotated[int, Meta(ge=1, le=8760)] = TELEMETRY_AGE_HOURS
    entities_max: Annotated[int, Meta(ge=10, le=10_000)] = TELEMETRY_ENTITIES


def advertised_address(listener: str, cluster_address: str) -> str:
    """Return where others reach a listener of this node, "" where it has none.

    Args:
        listener: HOST:PORT where it listens, "" for none.
        cluster_address: where the other nodes reach it; its host stands for a listener's on all.
    """
    host, _, port = listener.rpartition(":")
    if host in WILDCARDS:
        host = cluster_address.rpartition(":")[0]
    return f"{host}:{port}" if listener else ""
