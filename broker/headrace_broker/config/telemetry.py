"""The part of the configuration about what a node notes of itself for others to read."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from headrace_broker.model.limits import TELEMETRY_AGE_HOURS, TELEMETRY_BYTES, TELEMETRY_ENTITIES

MIB: Final = 1 << 20
GIB: Final = 1 << 30
WILDCARDS: Final = ("0.0.0.0", "[::]", "::")  # noqa: S104  (compared with, not bound to)


class TelemetrySection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Telemetry of each second, and its retention; see docs/telemetry.md."""

    enabled: bool = True  # whether anything is
    # of the disk, for all logs of this node together
    bytes_max: Annotated[int, Meta(ge=4 * MIB, le=64 * GIB)] = TELEMETRY_BYTES
    # rows that are older are dropped, read or not
    age_hours_max: Annotated[int, Meta(ge=1, le=8760)] = TELEMETRY_AGE_HOURS
    # rows of samples, and as many of debts, noted at a time; the largest ones
    entities_max: Annotated[int, Meta(ge=10, le=10_000)] = TELEMETRY_ENTITIES


def advertised_address(listener: str, cluster_address: str) -> str:
    """Return where others reach a listener (HOST:PORT, "" for none) of this node, "" for none.

    The cluster address's host stands for a listener's on all.
    """
    host, _, port = listener.rpartition(":")
    if host in WILDCARDS:
        host = cluster_address.rpartition(":")[0]
    return f"{host}:{port}" if listener else ""
