"""/api/log-level: how much the node that is asked writes to its log."""

from __future__ import annotations

import logging
from typing import Final, Literal, get_args

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.management.http.access import administrator, monitor
from headrace_broker.management.http.answer import done, json_answer
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.route import ADMINISTRATOR, MONITORING, Route, got, put
from headrace_broker.management.http.status_source import StatusSource
from headrace_broker.runtime.security import audit

Level = Literal["debug", "info", "warning", "error", "critical"]
Logger = Literal[
    "headrace.alarm",
    "headrace.catalog",
    "headrace.cluster",
    "headrace.connection",
    "headrace.http",
    "headrace.listener",
    "headrace.node",
    "headrace.queue",
    "headrace.raft",
    "headrace.security",
]

_LEVELS: Final[dict[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


class LogLevelBody(msgspec.Struct):
    """Body of PUT /api/log-level.

    Attributes:
        level: from which on lines are written.
        logger: that it counts for; absent for all, which ends what was set for single ones.
    """

    level: Level
    logger: Logger | None = None


class LogLevelView(TypedDict):
    """Lines of this level and above are written, by some loggers of one of their own."""

    node: str
    level: str
    loggers: dict[str, str]


class LogLevelEndpoints:
    """Answers requests about the level of this node's log. The audit log is written at any."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """Return the route table."""
        path = "/api/log-level"
        return [
            got(path, self._get, "Level of the log of this node.", LogLevelView, MONITORING),
            put(
                path,
                self._put,
                "Set the level of the log of this node, or of one logger, until it stops.",
                LogLevelBody,
                ADMINISTRATOR,
            ),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        monitor()
        loggers = {name: logging.getLogger(name).level for name in get_args(Logger)}
        own = {name: _name_of(level) for name, level in loggers.items() if level}
        level = _name_of(logging.getLogger().getEffectiveLevel())
        found = {"node": self._source.overview().node, "level": level, "loggers": own}
        return json_answer(found)

    async def _put(self, request: web.Request) -> web.Response:
        administrator()
        body = await decode(request, LogLevelBody)
        logging.getLogger(body.logger).setLevel(_LEVELS[body.level])
        if body.logger is None:
            for name in get_args(Logger):
                logging.getLogger(name).setLevel(logging.NOTSET)
        node = self._source.overview().node
        audit.record("set_log_level", node, level=body.level, logger=body.logger)
        return done()


def _name_of(level: int) -> str:
    return logging.getLevelName(level).lower()
