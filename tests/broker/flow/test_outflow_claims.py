"""Shares of nodes in the admission to a queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.outflow_claims import CLAIM_MAX, OutflowClaims
from headrace_broker.flow.paced_confirms import RATE_MAX
from headrace_broker.model.limits import OUTFLOW_LEASE_US, OUTFLOW_MIN

NODES = (1, 2, 3)


def test_nodes_of_which_nothing_is_heard_get_the_same() -> None:
    assert OutflowClaims().parts(3000, NODES, 0) == {1: 1000, 2: 1000, 3: 1000}


def test_parts_are_as_the_weights() -> None:
    claims = OutflowClaims()
    claims.receive(1, 7, 0)
    claims.receive(2, 2, 0)
    assert claims.parts(3000, NODES, 0) == {1: 2100, 2: 600, 3: 300}


def test_what_a_node_has_said_counts_until_nothing_is_heard_of_it() -> None:
    claims = OutflowClaims()
    claims.receive(1, 8, 0)
    assert claims.parts(3000, NODES, OUTFLOW_LEASE_US)[1] == 2400
    assert claims.parts(3000, NODES, OUTFLOW_LEASE_US + 1)[1] == 1000


def test_no_bound_is_none_for_everybody() -> None:
    claims = OutflowClaims()
    claims.receive(1, 8, 0)
    assert claims.parts(0, NODES, 0) == {1: 0, 2: 0, 3: 0}


@given(
    st.integers(1, 200 * RATE_MAX), st.dictionaries(st.sampled_from(NODES), st.integers(0, 1 << 60))
)
def test_whatever_is_claimed_each_gets_something_and_together_no_more(
    bound: int, weights: dict[int, int]
) -> None:
    claims = OutflowClaims()
    for node, weight in weights.items():
        claims.receive(node, weight, 0)
    parts = claims.parts(bound, NODES, 0)
    assert set(parts) == set(NODES)
    assert all(part >= OUTFLOW_MIN for part in parts.values())
    assert sum(parts.values()) <= bound + len(NODES) * OUTFLOW_MIN
    assert max(parts.values()) <= bound * CLAIM_MAX // (CLAIM_MAX + 2) + OUTFLOW_MIN
