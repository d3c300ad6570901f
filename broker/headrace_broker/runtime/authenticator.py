"""Log-ins of users, checked without stalling the node."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable

from headrace_broker.model.definition import User
from headrace_broker.runtime.password import PasswordChecker


def is_loopback(host: str | None) -> bool:
    """Return whether an address, as in a socket's peer name, is this machine's loopback."""
    try:
        address = ipaddress.ip_address((host or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class Authenticator:
    """Checks passwords in a thread; one that proved right before is known at once.

    How long a refusal takes does not tell whether there is such a user.

    Args:
        user: looks a user up.
    """

    def __init__(self, user: Callable[[str], User | None]) -> None:
        self._user = user
        self._checker = PasswordChecker()

    def admits(self, name: str, loopback: bool) -> bool:
        """Return whether there is such a user and it may come from there."""
        user = self._user(name)
        return user is not None and (loopback or not user.loopback_only)

    async def check(self, name: str, password: str, loopback: bool) -> bool:
        """Return whether the password is right and the user may come from there."""
        user = self._user(name)
        if user is not None and user.loopback_only and not loopback:
            user = None
        if self._checker.remembered(user, password):
            return True
        return await asyncio.to_thread(self._checker.verify, user, password)
