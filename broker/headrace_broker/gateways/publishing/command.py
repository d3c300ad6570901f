"""Inputs of a publisher that a limit may keep waiting: publishes, and commands among them."""

from __future__ import annotations

from typing import Final, TypeAlias

from mypy_extensions import i64

from headrace_broker.model.message import Publish

ORDERED: Final = 0  # overtakes nothing
OVERTAKES_PUBLISHES: Final = 1  # but no other command
OVERTAKES_ALL: Final = 2  # but no barrier
BARRIER: Final = 3  # overtaken by nothing, and overtakes nothing


class Command:
    """An input other than publishes; protocols add the fields to run it."""

    def __init__(self, order: i64, byte_count: i64, closes: bool) -> None:
        self.order = order  # ORDERED, OVERTAKES_PUBLISHES, OVERTAKES_ALL or BARRIER
        self.byte_count = byte_count  # held while it waits
        self.closes = closes  # it ends the channel


BufferedInput: TypeAlias = list[Publish] | Command
