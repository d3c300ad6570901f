"""Seeds worth repeating: those that found something once, and those that reach a rare state."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_simulation.simulator.cluster import simulate
from headrace_simulation.simulator.plan import Plan

CORPUS = Path(__file__).parent / "corpus.txt"


def cases():
    """Read lines `seed profile reaches # why`; `-` where the seed chooses or nothing is named."""
    for line in CORPUS.read_text().splitlines():
        text, _, why = line.partition("#")
        words = text.split(maxsplit=2)
        if words:
            assert why.strip(), f"say why: {line}"
            yield pytest.param(*words, id="-".join(words))


@pytest.mark.parametrize(("seed", "profile", "reaches"), list(cases()))
def test_seed(seed, profile, reaches):
    outcome = simulate(Plan(int(seed), None if profile == "-" else profile))
    assert outcome.violation is None
    if reaches.strip() != "-":
        assert outcome.coverage.get(reaches.strip(), 0) > 0
