"""Levels of the logs of a node's processes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tests.broker.runtime.rpc_links import Links

from headrace_broker.runtime.administration.log_level import LogLevels, SetLogLevel

NAMES = {1: "n1", 2: "n1:1", 3: "n1:2"}


def test_all_processes_of_a_node_are_told_and_those_that_are_not_are_named() -> None:
    logger = logging.getLogger("headrace.raft")
    before = logger.level
    told: list[Any] = []

    async def scenario() -> list[str]:
        rpcs = Links((1, 2, 3)).rpcs
        levels = LogLevels(rpcs[1], NAMES, NAMES)
        rpcs[2].serve(SetLogLevel, lambda _, question: told.append(question.levels))
        return await levels.set({"headrace.raft": logging.ERROR})  # the third one is too old

    try:
        assert asyncio.run(scenario()) == ["n1:2"]
        assert told == [{"headrace.raft": logging.ERROR}]
        assert logger.level == logging.ERROR
    finally:
        logger.setLevel(before)
