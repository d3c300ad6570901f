"""Log-ins of users, checked without stalling the node, and not more often than is good."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from headrace_broker.model.definition import User
from headrace_broker.model.limits import LOGIN_CROWDED_SECONDS
from headrace_broker.runtime.security import audit
from headrace_broker.runtime.security.login_limit import LoginLimit, network, site
from headrace_broker.runtime.security.login_turns import CrowdedError, LoginTurns
from headrace_broker.runtime.security.password import PasswordChecker
from headrace_broker.runtime.security.unproven_log import unproven

_LOG: Final = logging.getLogger("headrace.security")


def is_loopback(host: str | None) -> bool:
    """Return whether an address, as in a socket's peer name, is this machine's loopback."""
    try:
        address = ipaddress.ip_address((host or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


REFUSED: Final = "refused"
SUCCEEDED: Final = "succeeded"
DELAYED: Final = "delayed"  # not looked at: too many have failed
PROTOCOLS: Final = ("amqp", "grpc", "http")  # of `audit.Actor`
RESULTS: Final = (SUCCEEDED, REFUSED, DELAYED)


async def _renew_nothing(user: User, kept: User) -> bool:
    return False


def _always_first(user: str) -> int:
    return 0


class Verdict:
    """Result of a log-in; true when it is right.

    Attributes:
        right: see above.
        wait_s: it was not looked at, nor will others be for so many seconds: too many have failed.
        epoch: `CatalogView.session_epoch` as of the password that was looked at.
    """

    __slots__ = ("epoch", "right", "wait_s")

    def __init__(self, right: bool, wait_s: float = 0.0, epoch: int = 0) -> None:
        self.right = right
        self.wait_s = wait_s
        self.epoch = epoch

    def __bool__(self) -> bool:
        return self.right


class Authenticator:
    """Checks passwords in a thread; one that proved right before is known at once.

    How long a refusal takes does not tell whether there is such a user.

    Args:
        user: looks a user up.
        clock: seconds of a clock that never goes back.
        epoch: returns the epoch of a user's sessions.

    Attributes:
        renew: has a user's hash replaced: called with the user and with that as it is to be kept;
            returns whether that is done.
        counts: log-ins by protocol and result.
    """

    def __init__(
        self,
        user: Callable[[str], User | None],
        clock: Callable[[], float] = time.monotonic,
        epoch: Callable[[str], int] = _always_first,
    ) -> None:
        self.renew: Callable[[User, User], Awaitable[bool]] = _renew_nothing
        self._user = user
        self._epoch = epoch
        self.counts = {(each, result): 0 for each in PROTOCOLS for result in RESULTS}
        self._checker = PasswordChecker()
        self._limit = LoginLimit(clock)
        self._turns = LoginTurns(clock)
        self._looks: dict[tuple[str, str, bytes], asyncio.Task[Verdict]] = {}

    def admits(self, name: str, host: str) -> bool:
        """Return whether there is such a user and it may come from there.

        Args:
            name: of a user, proven by other means.
            host: address of the client.
        """
        user = self._user(name)
        right = user is not None and (not user.loopback_only or is_loopback(host))
        if not right:
            audit.record("login", name, "refused")
        self._count(SUCCEEDED if right else REFUSED)
        return right

    def _count(self, result: str) -> None:
        actor = audit.ACTOR.get()
        key = (actor.protocol if actor is not None else "", result)
        if key in self.counts:
            self.counts[key] += 1

    async def check(self, name: str, password: str, host: str) -> Verdict:
        """Return whether the password is right and the user may come from there.

        Args:
            name: of the user.
            password: that shall prove it.
            host: address of the client.
        """
        verdict = await self._judge(name, password, host)
        self._count(SUCCEEDED if verdict else DELAYED if verdict.wait_s else REFUSED)
        return verdict

    async def _judge(self, name: str, password: str, host: str) -> Verdict:
        found = self._known(name, password, host)
        if found is not None:
            return found
        key = (name, site(host), self._checker.mark_of(password))
        look = self._looks.get(key)
        if look is None:
            look = asyncio.create_task(self._look(name, password, host), name="log-in")
            self._looks[key] = look
            look.add_done_callback(lambda _: self._looks.pop(key, None))
        return await asyncio.shield(look)  # others may wait for it, too

    async def _look(self, name: str, password: str, host: str) -> Verdict:
        """Check a password in turn; simultaneous requests for the same one share the answer."""
        before, suspect = self._limit.was_right(name, host), self._limit.is_suspect(host)
        try:
            async with self._turns.turn(network(host), name, before, suspect):
                found = self._known(name, password, host)  # others have failed meanwhile
                if found is not None:
                    return found
                user, epoch = self._candidate(name, host), self._epoch(name)
                kept = await asyncio.to_thread(self._checker.verify, user, password)
                right = await self._settle(name, password, host, user, kept)
                return Verdict(right, epoch=epoch)
        except CrowdedError:
            return Verdict(False, LOGIN_CROWDED_SECONDS)

    async def _settle(
        self, name: str, password: str, host: str, user: User | None, kept: User | None
    ) -> bool:
        """Note what became of a look at a password, and return whether it is right."""
        if kept is None or user is None:
            audit.record("login", name, "refused")
            wait_s = self._limit.failed(name, host)
            if wait_s:
                text = "log-ins of '%s' from %s throttled for %d s"
                _LOG.warning(text, name, host, wait_s, extra=unproven(host))
            return False
        self._limit.succeeded(name, host)
        if kept is not user and not await self.renew(user, kept):
            self._checker.forget(user, password)  # so that the next log-in tries again
        return True

    def _candidate(self, name: str, host: str) -> User | None:
        user = self._user(name)
        if user is not None and user.loopback_only and not is_loopback(host):
            return None
        return user

    def _known(self, name: str, password: str, host: str) -> Verdict | None:
        """Return what can be said without a look at the password's hash.

        While others guess a user's password at an address, it is right there all the same if it was
        before: what is remembered is glanced at, so often and no more.
        """
        wait_s = self._limit.wait_s(name, host)
        if wait_s > 0 and not self._limit.may_glance(name, host):
            return Verdict(False, wait_s)
        if not self._checker.remembered(self._candidate(name, host), password):
            return Verdict(False, wait_s) if wait_s > 0 else None
        if wait_s > 0:
            self._limit.glanced(name, host)  # the failures of others go on counting
        else:
            self._limit.succeeded(name, host)
        return Verdict(True, epoch=self._epoch(name))
