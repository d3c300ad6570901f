"""Fair shares of the places before a log-in."""

from __future__ import annotations

import pytest

from headrace_broker.runtime.calls.fair_places import FairPlaces, NoPlaceError


def test_who_comes_when_there_is_none_gets_the_oldest_of_the_address_with_the_most():
    places: FairPlaces[str] = FairPlaces(4, 3)
    for address, holder in (("b", "b1"), ("a", "a1"), ("a", "a2"), ("a", "a3")):
        assert places.take(address, holder) is None
    assert places.take("c", "c1") == "a1"
    assert places.take("c", "c2") == "a2"
    assert (places.taken, places.of("a"), places.of("b"), places.of("c")) == (4, 1, 1, 2)
    assert not places.leave("a", "a1")
    assert places.leave("a", "a3")
    assert (places.taken, places.of("a")) == (3, 0)


def test_an_address_that_has_its_part_gets_only_its_own():
    places: FairPlaces[str] = FairPlaces(10, 2)
    places.take("b", "b1")
    places.take("a", "a1")
    places.take("a", "a2")
    assert places.take("a", "a3") == "a1"
    assert (places.of("a"), places.of("b"), places.most) == (2, 1, 2)


def test_who_keeps_a_place_is_passed_over():
    keep = {"a1", "b1"}
    places: FairPlaces[str] = FairPlaces(3, 2, lambda holder: holder not in keep)
    for address, holder in (("a", "a1"), ("a", "a2"), ("b", "b1")):
        places.take(address, holder)
    assert places.take("c", "c1") == "a2"
    keep.add("c1")
    with pytest.raises(NoPlaceError):
        places.take("d", "d1")
    assert places.taken == 3
    assert not places.leave("d", "d1")


def test_what_has_no_address_yet_takes_places_too():
    places: FairPlaces[str] = FairPlaces(3, 3)
    assert places.take("a", "a1", besides=1) is None
    assert places.take("a", "a2", besides=2) == "a1"
