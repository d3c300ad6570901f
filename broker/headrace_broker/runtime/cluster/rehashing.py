"""Hashes of passwords that came from another broker give way to slow ones at the first log-in."""

from __future__ import annotations

import logging
from typing import Final

from headrace_broker.catalog.command import RehashUser
from headrace_broker.catalog.result import Exists, Ok
from headrace_broker.model.definition import User
from headrace_broker.runtime.cluster.catalog_service import CatalogService, CatalogUnavailableError

REHASH_SECONDS_MAX: Final = 2.0  # that a log-in waits for it; it is right without

_LOG: Final = logging.getLogger("headrace.security")


class Rehashing:
    """Replaces hashes in the catalog."""

    def __init__(self, catalog: CatalogService) -> None:
        self._catalog = catalog  # where users are kept

    async def renew(self, user: User, kept: User) -> bool:
        """Keep a user's new hash instead of its present one; returns whether that is done.

        A password that somebody changes meanwhile stays changed.
        """
        command = RehashUser(user.name, user.password_hash, kept.salt, kept.password_hash)
        try:
            result = await self._catalog.submit(command, REHASH_SECONDS_MAX)
        except CatalogUnavailableError as error:
            _LOG.warning("password rehash postponed: %s", error)
            return False
        return isinstance(result, Ok | Exists)
