"""Recorded logs of a release, and digests of the states that its code made of them.

`logs.xz` holds entries as MessagePack, compressed; `record.json` what is compared: digests and
constants. A recorded release is never recorded again.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from tests.broker.catalog.conftest import Driver, RandomCommands
from tests.broker.core.archive_log import archive_log
from tests.broker.core.conftest import random_log, rich_log
from tests.broker.core.lease_log import lease_log
from tests.releases import bounds, constants

from headrace_broker.catalog.machine import Catalog
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION, QueueMachine
from headrace_broker.core.queue.messages import settings

DIRECTORY: Final = Path(__file__).resolve().parent
STEPS: Final = 600
CHECKS: Final = 10  # digests of a log, spread evenly, beside those of
LAST: Final = 10  # its last entries
SHORT: Final = 50  # entries of a log that has one after each
STAMP_BYTES: Final = 8
CATALOG: Final = "catalog"  # with which the names of its logs begin


class Record(msgspec.Struct):
    """Digests and constants of a release.

    Attributes:
        digests: log -> position in it -> the first digits of the state's digest there.
        settings: field of a queue's settings -> the value that stands for its absence.
        limits: those of model/limits.py that applying modules import.
        constants: "module.NAME" of those modules -> value.
    """

    version: str
    digests: dict[str, dict[int, str]]
    settings: dict[str, int]
    limits: dict[str, int | float]
    constants: dict[str, int | str]


def newest(seed: int, length: int) -> list[bytes]:
    """Entries as of `archive_log`, of a queue that goes to the newest machine version."""
    plain, raised = b"\x09\x01\x04", bytes([9, 1, MACHINE_VERSION])
    return [
        data[:STAMP_BYTES] + raised + data[STAMP_BYTES + 3 :]
        if data[STAMP_BYTES : STAMP_BYTES + 3] == plain
        else data
        for data in archive_log(seed, length)
    ]


def catalog_log(seed: int, length: int) -> list[bytes]:
    """Entries of a catalog in which everything is declared, changed and deleted."""
    driver, source = Driver().bootstrap(), RandomCommands(seed)
    for _ in range(length):
        driver.do(source.next())
    return driver.log


RANDOM: Final[dict[str, Callable[[int, int], list[bytes]]]] = {
    "plain": random_log,
    "rich": rich_log,
    "lease": lease_log,
    "archive": archive_log,
    "newest": newest,
    CATALOG: catalog_log,
}
BOUNDS: Final = (
    bounds.expiry,
    bounds.sessions,
    bounds.turns,
    bounds.lease_groups,
    bounds.large_leases,
    bounds.archives,
    bounds.publishers,
    bounds.deferred,
)
SEEDS: Final = range(3)


def make_logs() -> dict[str, list[bytes]]:
    """Return all logs that are recorded of a release."""
    made = {f"{name}-{seed}": make(seed, STEPS) for name, make in RANDOM.items() for seed in SEEDS}
    made |= {make.__name__: make() for make in BOUNDS}
    return made | {f"{CATALOG}-bounds": bounds.catalog()}


def digests_of(name: str, entries: list[bytes]) -> dict[int, str]:
    """Apply a log to a new machine; return digests on the way and at the end."""
    step = 1 if len(entries) <= SHORT else -(-len(entries) // CHECKS)
    found: dict[int, str] = {}
    queue, catalog = QueueMachine(), Catalog()
    of_catalog = name.startswith(CATALOG)
    for index, data in enumerate(entries, 1):
        if of_catalog:
            catalog.apply(index, data)
        else:
            queue.apply(index, data)
        if index % step == 0 or index > len(entries) - LAST:
            digest = catalog.digest() if of_catalog else queue.digest().hex()
            found[index] = digest[:32]
    return found


def setting_defaults() -> dict[str, int]:
    """Return the values of a queue's settings that CONFIGURE leaves out."""
    return {str(field): value for field, value in settings._PLAIN_NUMBERS.items()}


def record(version: str) -> Path:
    """Record a release, whose code this is, and return where; FileExistsError if it was before."""
    directory = DIRECTORY / version
    if directory.exists():
        raise FileExistsError(f"{directory}: what is recorded stays as it is")
    logs = make_logs()
    made = Record(
        version,
        {name: digests_of(name, entries) for name, entries in logs.items()},
        setting_defaults(),
        constants.limits(),
        constants.own_constants(),
    )
    directory.mkdir()
    (directory / "logs.xz").write_bytes(lzma.compress(msgspec.msgpack.encode(logs), preset=9))
    text = msgspec.json.format(msgspec.json.encode(made), indent=1)
    (directory / "record.json").write_bytes(text + b"\n")
    return directory


def recorded() -> list[str]:
    """Return the versions that are recorded."""
    return sorted(path.parent.name for path in DIRECTORY.glob("*/record.json"))


def load(version: str) -> tuple[Record, dict[str, list[bytes]]]:
    """Return a release's record and logs."""
    directory = DIRECTORY / version
    packed = lzma.decompress((directory / "logs.xz").read_bytes())
    return (
        msgspec.json.decode((directory / "record.json").read_bytes(), type=Record),
        msgspec.msgpack.decode(packed, type=dict[str, list[bytes]]),
    )
