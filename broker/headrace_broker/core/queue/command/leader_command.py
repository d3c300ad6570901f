"""Commands that the leader's host proposes by itself; layout as in `command`, version 1.

    CONFIGURE  u8 machine version | settings (see `settings`), to the end of the entry
    TICK       nothing: its time stamp says it all
    ACQUIRE    u64 session | u32 consumer | u32 n | n x u64 message id
    FORGET     u32 n | n x u64 message id

They are not numbered; to apply one again changes nothing more.
"""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from headrace_broker.core.queue.command.command import (
    ACQUIRE,
    COMMAND_VERSION,
    CONFIGURE,
    FORGET,
    TICK,
    Command,
    write_ids,
    write_u32,
)
from headrace_broker.core.queue.messages.settings import QueueSettings, encode_settings


@final
class Configure(Command):
    """Set the machine version, at least, and the settings from now on."""

    def __init__(self, version: i64, settings: QueueSettings) -> None:
        self.version = version
        self.settings = settings


@final
class Tick(Command):
    """Do everything that is due at the time of the stamp."""


@final
class Acquire(Command):
    """Give a filtered consumer those of the messages that are available, as it has credit."""

    def __init__(self, session: i64, consumer: i64, ids: list[int]) -> None:
        self.session = session
        self.consumer = consumer
        self.ids = ids


@final
class Forget(Command):
    """Dead letters with these ids have arrived where they were to go."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


def encode_configure(version: i64, settings: QueueSettings) -> bytes:
    """Encode CONFIGURE."""
    out = _command(CONFIGURE)
    out.append(int(version))
    out.write(encode_settings(settings, version))
    return out.getvalue()


def encode_tick() -> bytes:
    """Encode TICK."""
    return _command(TICK).getvalue()


def encode_acquire(session: i64, consumer: i64, ids: list[int]) -> bytes:
    """Encode ACQUIRE of messages, in order, for a filtered consumer."""
    out = _command(ACQUIRE)
    write_i64_be(out, session)
    write_u32(out, consumer)
    write_ids(out, ids)
    return out.getvalue()


def encode_forget(ids: list[int]) -> bytes:
    """Encode FORGET of kept dead letters."""
    out = _command(FORGET)
    write_ids(out, ids)
    return out.getvalue()


def _command(kind: int) -> BytesWriter:
    out = BytesWriter()
    out.append(kind)
    out.append(COMMAND_VERSION)
    return out
