"""/api/user-limits."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from aiohttp import web

from headrace_broker.catalog.command import SetUserLimits
from headrace_broker.catalog.setting import USER_LIMITS
from headrace_broker.management.http.answer import done, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import ADMINISTRATOR, deleted, listed, put
from headrace_broker.management.resources.vhosts import LimitBody, LimitsView

_LIMITS: Final = {"limit": {"enum": list(USER_LIMITS)}}


class UserLimitEndpoints(Endpoints):
    """Answers requests about limits of users."""

    @listed("/api/user-limits", "Limits of users.", LimitsView, ADMINISTRATOR)
    @listed("/api/user-limits/{user}", "Limits of a user.", LimitsView, ADMINISTRATOR)
    async def _limits(self, request: web.Request) -> web.Response:
        named, view = "user" in request.match_info, self._node.view
        users = [await self._known_user(request)] if named else view.users()
        found = {user.name: view.user_limits(user.name) for user in users}
        rows = [{"user": name, "value": limits} for name, limits in found.items() if limits]
        return await listing(request, rows, dict, name=itemgetter("user"))

    @put(
        "/api/user-limits/{user}/{limit}",
        "Set a limit of a user.",
        LimitBody,
        ADMINISTRATOR,
        values=_LIMITS,
    )
    async def _put_limit(self, request: web.Request) -> web.Response:
        body = await decode(request, LimitBody)
        user, limit = request.match_info["user"], request.match_info["limit"]
        await self._submit(SetUserLimits(user, {limit: body.value}))
        return done()

    @deleted(
        "/api/user-limits/{user}/{limit}",
        "Remove a limit of a user.",
        ADMINISTRATOR,
        values=_LIMITS,
    )
    async def _delete_limit(self, request: web.Request) -> web.Response:
        user = (await self._known_user(request)).name
        limit = request.match_info["limit"]
        if limit not in USER_LIMITS:
            raise not_found(f"limit '{limit}' of users")
        await self._submit(SetUserLimits(user, {limit: -1}))
        return done()
