"""Passwords of users, checked without stalling the node."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headrace_broker.model.definition import User
from headrace_broker.runtime.password import hash_password

REMEMBERED_MAX: Final = 4096  # proven passwords; thousands of clients log in after a fail-over


class Authenticator:
    """Checks passwords in a thread, and remembers proven ones under a key of this process.

    What is remembered is bound to the stored hash, so a changed password is a new one at once.

    Args:
        user: looks a user up.
    """

    def __init__(self, user: Callable[[str], User | None]) -> None:
        self._user = user
        self._key: Final = secrets.token_bytes(32)
        self._proven: OrderedDict[bytes, None] = OrderedDict()

    async def check(self, name: str, password: str, loopback: bool) -> bool:
        """Return whether the password is right and the user may come from there."""
        user = self._user(name)
        if user is None or (user.loopback_only and not loopback):
            return False
        typed = password.encode("utf-8", "surrogateescape")
        parts = (name.encode(), user.salt, user.password_hash, typed)
        proof = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        mark = hmac.new(self._key, proof, hashlib.sha256).digest()
        if mark in self._proven:
            self._proven.move_to_end(mark)
            return True
        found = await asyncio.to_thread(hash_password, password, user.salt)
        if not hmac.compare_digest(found, user.password_hash):
            return False
        self._proven[mark] = None
        if len(self._proven) > REMEMBERED_MAX:
            self._proven.popitem(last=False)
        return True
