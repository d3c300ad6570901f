"""/api/user-limits."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from headrace_broker.catalog.command import SetUserLimits
from headrace_broker.catalog.setting import USER_LIMITS
from headrace_broker.management.http.access import administrator
from headrace_broker.management.http.administration import Administration, known_user
from headrace_broker.management.http.answer import check, done, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import ADMINISTRATOR, Route, deleted, listed, put
from headrace_broker.management.resources.vhosts import LimitBody, LimitsView

_LIMITS: Final = {"limit": {"enum": list(USER_LIMITS)}}


class UserLimitEndpoints:
    """Answers requests about limits of users."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the route table."""
        return [
            listed(
                "/api/user-limits", self._all_limits, "Limits of users.", LimitsView, ADMINISTRATOR
            ),
            listed(
                "/api/user-limits/{user}",
                self._limits,
                "Limits of a user.",
                LimitsView,
                ADMINISTRATOR,
            ),
            put(
                "/api/user-limits/{user}/{limit}",
                self._put_limit,
                "Set a limit of a user.",
                LimitBody,
                ADMINISTRATOR,
                values=_LIMITS,
            ),
            deleted(
                "/api/user-limits/{user}/{limit}",
                self._delete_limit,
                "Remove a limit of a user.",
                ADMINISTRATOR,
                values=_LIMITS,
            ),
        ]

    async def _all_limits(self, request: web.Request) -> web.Response:
        administrator()
        users = self._node.view.users()
        rows = [row for user in users for row in self._render_limits(user.name)]
        return await listing(request, rows, dict, name=_limited)

    async def _limits(self, request: web.Request) -> web.Response:
        administrator()
        rows = self._render_limits((await known_user(self._node, request)).name)
        return await listing(request, rows, dict, name=_limited)

    def _render_limits(self, user: str) -> list[LimitsView]:
        limits = self._node.view.user_limits(user)
        return [{"user": user, "value": limits}] if limits else []

    async def _put_limit(self, request: web.Request) -> web.Response:
        administrator()
        body = await decode(request, LimitBody)
        user, limit = request.match_info["user"], request.match_info["limit"]
        check(await self._node.submit(SetUserLimits(user, {limit: body.value})))
        return done()

    async def _delete_limit(self, request: web.Request) -> web.Response:
        administrator()
        user = (await known_user(self._node, request)).name
        limit = request.match_info["limit"]
        if limit not in USER_LIMITS:
            raise not_found(f"limit '{limit}' of users")
        check(await self._node.submit(SetUserLimits(user, {limit: -1})))
        return done()


def _limited(row: LimitsView) -> str:
    return row["user"]
