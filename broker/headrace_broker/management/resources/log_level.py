"""/api/log-level: how much the node that is asked writes to its log."""

from __future__ import annotations

import logging
from typing import Final, Literal

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.management.access import administrator, monitor
from headrace_broker.management.answer import done, json_answer
from headrace_broker.management.body import decode
from headrace_broker.management.route import ADMINISTRATOR, MONITORING, Route, got, put
from headrace_broker.management.status_source import StatusSource
from headrace_broker.runtime import audit

Level = Literal["debug", "info", "warning", "error", "critical"]

_LEVELS: Final[dict[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


class LogLevelBody(msgspec.Struct):
    """Body of PUT /api/log-level."""

    level: Level


class LogLevelView(TypedDict):
    """What a node writes: lines of this level and above it."""

    node: str
    level: str


class LogLevelEndpoints:
    """Answers requests about the level of this node's log. The audit log is written at any."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """Return what is answered."""
        path = "/api/log-level"
        return [
            got(path, self._get, "Level of the log of this node.", LogLevelView, MONITORING),
            put(
                path,
                self._put,
                "Set the level of the log of this node, until it stops.",
                LogLevelBody,
                ADMINISTRATOR,
            ),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        monitor()
        level = logging.getLevelName(logging.getLogger().getEffectiveLevel()).lower()
        return json_answer({"node": self._source.overview().node, "level": level})

    async def _put(self, request: web.Request) -> web.Response:
        administrator()
        level = (await decode(request, LogLevelBody)).level
        logging.getLogger().setLevel(_LEVELS[level])
        audit.record("set_log_level", self._source.overview().node, level=level)
        return done()
