"""Places before a log-in, in fair shares by address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class NoPlaceError(Exception):
    """All places are taken by who keeps theirs."""


class FairPlaces(Generic[T]):
    """A number of places, and a part of them for each address.

    Whoever comes when there is none gets that of another from the address that has the most, of its
    own address where that has its part: the one that has had it the longest.

    Args:
        places_max: of all addresses.
        of_address_max: of one.
        may_lose: returns whether a holder may lose its place; anybody where it is left out.

    Attributes:
        taken: number of places.
    """

    def __init__(
        self,
        places_max: int,
        of_address_max: int,
        may_lose: Callable[[T], bool] = lambda holder: True,
    ) -> None:
        self.taken = 0
        self._places_max = places_max
        self._of_address_max = of_address_max
        self._may_lose = may_lose
        self._by_address: dict[str, dict[T, None]] = {}  # the oldest first

    def of(self, address: str) -> int:
        """Return how many an address has."""
        return len(self._by_address.get(address, ()))

    @property
    def most(self) -> int:
        """Places of the address that has the most."""
        return max(map(len, self._by_address.values()), default=0)

    def take(self, address: str, holder: T, besides: int = 0) -> T | None:
        """Take a place; return the holder that lost it, None if there was room.

        Args:
            address: where the holder comes from.
            holder: of the place, until it leaves or loses it.
            besides: places that are taken by what has no address yet.

        Raises:
            NoPlaceError: everybody keeps theirs.
        """
        loser: T | None = None
        if self.of(address) >= self._of_address_max:
            loser = self._push_out([address])
        elif self.taken + besides >= self._places_max:
            loser = self._push_out(sorted(self._by_address, key=self.of, reverse=True))
        self._by_address.setdefault(address, {})[holder] = None
        self.taken += 1
        return loser

    def leave(self, address: str, holder: T) -> bool:
        """Give a place back; return whether it had not been lost."""
        holders: dict[T, None] | dict[Any, None] = self._by_address.get(address, {})
        if holder not in holders:
            return False
        del holders[holder]
        self.taken -= 1
        if not holders:
            del self._by_address[address]
        return True

    def _push_out(self, addresses: list[str]) -> T:
        """Take a place away.

        Raises:
            NoPlaceError: everybody keeps theirs.
        """
        for address in addresses:
            for holder in self._by_address[address]:
                if self._may_lose(holder):
                    self.leave(address, holder)
                    return holder
        raise NoPlaceError
