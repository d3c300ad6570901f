"""/api/log-level: how much the node that is asked writes to its logs."""

from __future__ import annotations

import logging
from typing import Final, Literal, get_args

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.management.http.answer import done, json_answer, unavailable
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.route import ADMINISTRATOR, MONITORING, got, put
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


class LogLevelEndpoints(Endpoints):
    """Answers requests about the level of this node's log. The audit log is written at any."""

    @got(
        "/api/log-level", "Level of the log of the process that answers.", LogLevelView, MONITORING
    )
    async def _get(self, request: web.Request) -> web.Response:
        loggers = {name: logging.getLogger(name).level for name in get_args(Logger)}
        own = {name: _name_of(level) for name, level in loggers.items() if level}
        level = _name_of(logging.getLogger().getEffectiveLevel())
        found = {"node": self._source.overview().node, "level": level, "loggers": own}
        return json_answer(found)

    @put(
        "/api/log-level",
        "Set the level of the logs of this node's processes, or of one logger, until they stop.",
        LogLevelBody,
        ADMINISTRATOR,
    )
    async def _put(self, request: web.Request) -> web.Response:
        body = await decode(request, LogLevelBody)
        levels: dict[str, int] = {body.logger or "": _LEVELS[body.level]}
        if body.logger is None:
            levels |= dict.fromkeys(get_args(Logger), logging.NOTSET)
        missing = await self._node.log_levels.set(levels)
        node = self._source.overview().node
        audit.record("set_log_level", node, level=body.level, logger=body.logger)
        if missing:
            raise unavailable(f"the level is set, but not of {', '.join(missing)}: no answer")
        return done()


def _name_of(level: int) -> str:
    return logging.getLevelName(level).lower()
