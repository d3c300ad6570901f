"""How often log-ins may fail: who guesses passwords waits, twice as long each time.

Failures are counted for a user at an address, and for an address whoever is named. Who has logged
in from an address before is not stopped by what others do there, behind one proxy for instance.
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
    LOGIN_PLACES_MAX,
    LOGIN_WAIT_SECONDS_MAX,
)

_DOUBLINGS_MAX: Final = 30
_IPV6_SITE_BITS: Final = 64  # what one site has at least: its addresses count as one


class _Record:
    """What failed somewhere, and until when nothing more is looked at."""

    __slots__ = ("failures", "good", "until", "used")

    def __init__(self, now: float) -> None:
        self.failures = 0
        self.until = now
        self.used = now
        self.good = False  # a log-in was right here before


class _Table:
    """Records by key, those that were used longest ago go first."""

    def __init__(self, free: int) -> None:
        self._free = free  # failures that nobody has to wait for
        self._records: OrderedDict[Hashable, _Record] = OrderedDict()

    def find(self, key: Hashable, now: float) -> _Record | None:
        record = self._records.get(key)
        if record is not None and now - record.used > LOGIN_FORGET_SECONDS:
            del self._records[key]
            return None
        return record

    def use(self, key: Hashable, now: float) -> _Record:
        record = self.find(key, now)
        if record is None:
            record = self._records[key] = _Record(now)
            if len(self._records) > LOGIN_PLACES_MAX:
                self._records.popitem(last=False)
        record.used = now
        self._records.move_to_end(key)
        return record

    def fail(self, key: Hashable, now: float) -> float:
        """Count a failure; return for how long nothing more is looked at."""
        record = self.use(key, now)
        record.failures += 1
        over = record.failures - self._free
        if over <= 0:
            return 0.0
        wait_s = min(float(1 << min(over - 1, _DOUBLINGS_MAX)), LOGIN_WAIT_SECONDS_MAX)
        record.until = now + wait_s
        return wait_s


class LoginLimit:
    """Says who has to wait before a log-in is looked at.

    Args:
        clock: seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._users = _Table(LOGIN_FAILURES_OF_USER)
        self._addresses = _Table(LOGIN_FAILURES_OF_ADDRESS)

    def wait_s(self, user: str, host: str) -> float:
        """Return for how many seconds log-ins of a user from a host are not looked at, 0 for now.

        Args:
            user: who it says to be.
            host: address of the client.
        """
        now = self._clock()
        place = site(host)
        mine = self._users.find((user, place), now)
        if mine is not None and (mine.good or mine.until > now):
            return max(mine.until - now, 0.0)
        all_ = self._addresses.find(place, now)
        return max(all_.until - now, 0.0) if all_ is not None else 0.0

    def failed(self, user: str, host: str) -> float:
        """Count a failure; return for how many seconds the next one is not looked at."""
        now = self._clock()
        place = site(host)
        return max(self._users.fail((user, place), now), self._addresses.fail(place, now))

    def succeeded(self, user: str, host: str) -> None:
        """Forget what a user did wrong at an address; what others did there stays."""
        now = self._clock()
        record = self._users.use((user, site(host)), now)
        record.failures = 0
        record.until = now
        record.good = True


def site(host: str) -> str:
    """Return what counts as one address: of IPv6 the network that a site has at least."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return str(ipaddress.ip_network((address, _IPV6_SITE_BITS), strict=False))
    return str(address)
