"""Commands that set when memory or disk counts as scarce, for the whole cluster."""

from __future__ import annotations

import re
from typing import Final

import click

from headrace_broker.cli.rabbitmqctl.command import command
from headrace_broker.cli.rabbitmqctl.session import EX_DATAERR, EX_USAGE, CommandError, Session
from headrace_broker.cli.session.api_client import path_of

# As RabbitMQ reads them: k, M, ... are of 1024 with and without the "i"; kB, MB, ... of 1000.
PREFIXES: Final = "kMGT"
AMOUNT: Final = re.compile(r"([0-9]{1,15})(?:([kKMGT])(i?)([bB]?))?")


def _bytes(text: str) -> int:
    match = AMOUNT.fullmatch(text)
    if match is None:
        example = "1073741824, 512MiB or 1GB"
        raise CommandError(f"'{text}' is no number of bytes, such as {example}", EX_DATAERR)
    amount, prefix, binary, unit = match.groups()
    if not prefix:
        return int(amount)
    base = 1000 if unit and not binary else 1024
    factor: int = base ** (PREFIXES.index(prefix.replace("K", "k")) + 1)
    return int(amount) * factor


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1000:
        raise CommandError(f"'{text}' is no fraction such as 0.6", EX_DATAERR)
    return value


def _set(session: Session, limit: str, value: float) -> None:
    session.change("PUT", path_of("flow", "limits", limit), {"value": value})


@command("set_vm_memory_high_watermark")
@click.argument("arguments", nargs=-1, metavar="FRACTION | absolute BYTES")
def set_vm_memory_high_watermark(session: Session, arguments: tuple[str, ...]) -> None:
    """Set at how much memory of a node publishers are blocked: 0.6, or absolute 2GiB.

    It counts on all nodes at once and survives restarts.
    """
    if len(arguments) == 2 and arguments[0] == "absolute":
        session.say(f"Setting memory threshold on all nodes to {arguments[1]} bytes ...")
        _set(session, "memory-high-watermark", _bytes(arguments[1]))
    elif len(arguments) == 1:
        session.say(f"Setting memory threshold on all nodes to {arguments[0]} ...")
        _set(session, "memory-high-watermark", _fraction(arguments[0]))
    else:
        raise CommandError("(argument validation): FRACTION or absolute BYTES", EX_USAGE)


@command("set_disk_free_limit")
@click.argument("arguments", nargs=-1, metavar="BYTES | mem_relative FRACTION")
def set_disk_free_limit(session: Session, arguments: tuple[str, ...]) -> None:
    """Set below how much free disk of a node publishers are blocked: 2GB, or mem_relative 1.0.

    It counts on all nodes at once and survives restarts.
    """
    if len(arguments) == 2 and arguments[0] == "mem_relative":
        session.say(f"Setting disk free limit on all nodes to {arguments[1]} times the memory ...")
        _set(session, "disk-free-limit", _fraction(arguments[1]))
    elif len(arguments) == 1:
        session.say(f"Setting disk free limit on all nodes to {arguments[0]} bytes ...")
        _set(session, "disk-free-limit", _bytes(arguments[0]))
    else:
        raise CommandError("(argument validation): BYTES or mem_relative FRACTION", EX_USAGE)
