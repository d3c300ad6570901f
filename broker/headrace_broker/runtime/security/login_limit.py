"""Rate limit of failed log-ins: the delay doubles with each failure.

Failures lock a user at an address, never an address: others there, behind one proxy for instance,
and the user elsewhere go on. Where many fail, log-ins only take their turns more slowly
(`login_turns`).
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from headrace_broker.model.limits import (
    LOGIN_FAILURES_OF_ADDRESS,
    LOGIN_FAILURES_OF_USER,
    LOGIN_FORGET_SECONDS,
    LOGIN_GLANCES_MAX,
    LOGIN_GLANCES_PER_SECOND,
    LOGIN_PLACES_MAX,
    LOGIN_WAIT_SECONDS_MAX,
)

_DOUBLINGS_MAX: Final = 30
_IPV6_SITE_BITS: Final = 64  # what one site has at least: its addresses count as one
_IPV6_NETWORK_BITS: Final = 48  # what one who asks is given at most, usually


class _Record:
    """Failures from one source, and the end of its delay."""

    __slots__ = ("failures", "until", "used")

    def __init__(self, now: float) -> None:
        self.failures = 0
        self.until = now
        self.used = now


class _Failures:
    """Records by key, those that were used longest ago go first."""

    def __init__(self, free: int) -> None:
        self._free = free  # failures without a delay
        self._records: OrderedDict[Hashable, _Record] = OrderedDict()

    def find(self, key: Hashable, now: float) -> _Record | None:
        record = self._records.get(key)
        if record is not None and now - record.used > LOGIN_FORGET_SECONDS:
            del self._records[key]
            return None
        return record

    def fail(self, key: Hashable, now: float) -> float:
        """Count a failure; return the delay until the next log-in."""
        record = self.find(key, now)
        if record is None:
            record = self._records[key] = _Record(now)
            if len(self._records) > LOGIN_PLACES_MAX:
                self._records.popitem(last=False)
        record.used = now
        self._records.move_to_end(key)
        record.failures += 1
        over = record.failures - self._free
        if over <= 0:
            return 0.0
        wait_s = min(float(1 << min(over - 1, _DOUBLINGS_MAX)), LOGIN_WAIT_SECONDS_MAX)
        record.until = now + wait_s
        return wait_s

    def forget(self, key: Hashable) -> None:
        self._records.pop(key, None)

    def __len__(self) -> int:
        return len(self._records)


class _Glances:
    """Budget of passwords compared with remembered ones while a user is locked."""

    __slots__ = ("at", "left")

    def __init__(self, now: float) -> None:
        self.at = now
        self.left = float(LOGIN_GLANCES_MAX)

    def take(self, now: float) -> bool:
        more = (now - self.at) * LOGIN_GLANCES_PER_SECOND
        self.at = now
        self.left = min(self.left + more, LOGIN_GLANCES_MAX)
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def give_back(self) -> None:
        self.left = min(self.left + 1, LOGIN_GLANCES_MAX)


class LoginLimit:
    """Delay of log-ins after failures.

    Args:
        clock: seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._users = _Failures(LOGIN_FAILURES_OF_USER)
        self._addresses = _Failures(LOGIN_FAILURES_OF_ADDRESS)
        self._right: OrderedDict[Hashable, _Glances] = OrderedDict()

    def wait_s(self, user: str, host: str) -> float:
        """Return the delay in seconds for log-ins of a user from a host, 0 for none.

        Args:
            user: who it says to be.
            host: address of the client.
        """
        now = self._clock()
        mine = self._users.find((user, site(host)), now)
        return max(mine.until - now, 0.0) if mine is not None else 0.0

    def was_right(self, user: str, host: str) -> bool:
        """Return whether the user has logged in from there before."""
        return (user, site(host)) in self._right

    def may_glance(self, user: str, host: str) -> bool:
        """Return whether a password may be compared with remembered ones, though others failed.

        Only where the user has logged in from before, and not so often that guessing would pay.
        """
        glances = self._right.get((user, site(host)))
        return glances is not None and glances.take(self._clock())

    def is_suspect(self, host: str) -> bool:
        """Return whether so many log-ins failed at an address that guessing is to be supposed."""
        found = self._addresses.find(site(host), self._clock())
        return found is not None and found.failures > LOGIN_FAILURES_OF_ADDRESS

    def failed(self, user: str, host: str) -> float:
        """Count a failure; return the delay in seconds of the user's next log-in."""
        now = self._clock()
        place = site(host)
        self._addresses.fail(place, now)
        return self._users.fail((user, place), now)

    def succeeded(self, user: str, host: str) -> None:
        """Forget a user's failures at an address; those of others there stay."""
        key = (user, site(host))
        self._users.forget(key)
        self._remember(user, host)

    def glanced(self, user: str, host: str) -> None:
        """Note that a glance found a password right: it does not count, but the failures stay."""
        self._remember(user, host)
        self._right[(user, site(host))].give_back()

    def _remember(self, user: str, host: str) -> None:
        key = (user, site(host))
        if key not in self._right:
            self._right[key] = _Glances(self._clock())
            if len(self._right) > LOGIN_PLACES_MAX:
                self._right.popitem(last=False)
        self._right.move_to_end(key)


def site(host: str) -> str:
    """Return what counts as one address: of IPv6 the network that a site has at least."""
    return _network(host, _IPV6_SITE_BITS)


def network(host: str) -> str:
    """Return the unit that takes turns: of IPv6 the network that one customer gets at most."""
    return _network(host, _IPV6_NETWORK_BITS)


def _network(host: str, ipv6_bits: int) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return str(ipaddress.ip_network((address, ipv6_bits), strict=False))
    return str(address)
