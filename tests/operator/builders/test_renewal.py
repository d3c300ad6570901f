"""Renewal of certificates: no node is ever shown one that it does not trust."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_operator.builders.certificate import Facts
from headrace_operator.builders.renewal import SETTLE, decide
from headrace_operator.specs.cluster_tls import CertificateLife

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LIFE = CertificateLife(days=90, renew_before_days=30, authority_days=365)
WANTED = {"mill-0": frozenset(["mill-0"]), "mill-1": frozenset(["mill-1"])}
DAY = timedelta(days=1)


class World:
    """Secrets that follow the decisions, and pods that see them later, up to SETTLE."""

    def __init__(self, life: CertificateLife) -> None:
        self.life = life
        self.now = BEGIN
        self.wanted = dict(WANTED)
        self.authorities: list[Facts] = []
        self.leaves: dict[str, Facts] = {}
        self.past: list[tuple[datetime, tuple[bytes, ...], dict[str, Facts]]] = []
        self._numbers = itertools.count()

    def step(self) -> datetime:
        """Carry out one decision; return when to look again."""
        decision = decide(self.now, self.life, self.wanted, self.authorities, self.leaves)
        if decision.drop:
            alive = [each for each in self.authorities if each.not_after > self.now]
            self.authorities = alive[:1]
        if decision.new_authority:
            ends = self.now + self.life.authority_days * DAY
            key = str(next(self._numbers)).encode()
            self.authorities.insert(0, Facts(self.now, ends, frozenset(), key, key))
        for name in decision.issue:
            issuer = self.authorities[decision.issuer]
            ends = min(self.now + self.life.days * DAY, issuer.not_after)
            self.leaves[name] = Facts(self.now, ends, self.wanted[name], b"", issuer.key)
        keys = tuple(each.key for each in self.authorities)
        self.past.append((self.now, keys, dict(self.leaves)))
        return decision.next_at

    def check(self) -> None:
        """Check that a pod that has seen recent secrets trusts all current certificates."""
        shown = self.leaves
        recent = [row for row in self.past if row[0] > self.now - SETTLE]
        last = [row for row in self.past if row[0] <= self.now - SETTLE][-1:]
        for _, keys, leaves in [*last, *recent]:
            for leaf in shown.values():
                assert leaf.authority in keys
            for leaf in leaves.values():
                assert leaf.authority in [each.key for each in self.authorities]
        for leaf in shown.values():
            assert leaf.not_after > self.now


def test_at_first_everything_is_made() -> None:
    decision = decide(BEGIN, LIFE, WANTED, [], {})
    assert decision.new_authority
    assert decision.issue == ("mill-0", "mill-1")
    assert decision.issuer == 0
    assert decision.next_at == BEGIN + 60 * DAY


def test_nothing_is_done_before_its_time() -> None:
    world = World(LIFE)
    world.now = world.step() - timedelta(seconds=1)
    assert not decide(world.now, LIFE, WANTED, world.authorities, world.leaves).changes
    world.now += timedelta(seconds=1)
    decision = decide(world.now, LIFE, WANTED, world.authorities, world.leaves)
    assert decision.issue == ("mill-0", "mill-1")
    assert not decision.new_authority


def test_a_node_that_comes_and_one_with_other_names_get_certificates_of_their_own() -> None:
    world = World(LIFE)
    world.step()
    wanted = {"mill-0": frozenset(["mill-0", "other"]), "mill-2": frozenset(["mill-2"])}
    decision = decide(BEGIN, LIFE, wanted, world.authorities, world.leaves)
    assert decision.issue == ("mill-0", "mill-2")


def test_an_authority_is_replaced_in_three_steps() -> None:
    world = World(LIFE)
    world.step()
    world.now = BEGIN + (365 - 90 - 30) * DAY
    world.step()
    assert len(world.authorities) == 2
    new, old = world.authorities
    assert {leaf.authority for leaf in world.leaves.values()} == {old.key}
    world.now += SETTLE
    world.step()
    assert len(world.authorities) == 2
    assert {leaf.authority for leaf in world.leaves.values()} == {new.key}
    world.now += SETTLE
    world.step()
    assert world.authorities == [new]


def test_when_the_authority_has_ended_all_begins_anew() -> None:
    world = World(LIFE)
    world.step()
    world.now = BEGIN + 400 * DAY
    decision = decide(world.now, LIFE, WANTED, world.authorities, world.leaves)
    assert decision.new_authority
    assert decision.drop
    assert decision.issue == ("mill-0", "mill-1")


@pytest.mark.parametrize(
    "life",
    [
        LIFE,
        CertificateLife(days=2, renew_before_days=1, authority_days=4),
        CertificateLife(days=825, renew_before_days=1, authority_days=1650),
        CertificateLife(days=100, renew_before_days=99, authority_days=200),
    ],
)
@settings(max_examples=40)
@given(late=st.lists(st.integers(0, 20), min_size=60, max_size=60), nodes=st.integers(0, 59))
def test_nobody_is_cut_off_over_years(life: CertificateLife, late: list[int], nodes: int) -> None:
    """The operator comes up to 20 hours late each time, and a node comes in the middle."""
    world = World(life)
    for number, hours in enumerate(late):
        if number == nodes:
            world.wanted["mill-2"] = frozenset(["mill-2"])
        later = world.step()
        world.check()
        assert later > world.now
        world.now = later + timedelta(hours=hours)
        world.check()
    assert len(world.authorities) <= 2
