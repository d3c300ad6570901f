"""Quantities of Kubernetes as numbers."""

from __future__ import annotations

import pytest

from headrace_operator.builders.quantity import quantity_bytes


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (5, 5),
        ("5", 5),
        ("+5", 5),
        ("1Ki", 1024),
        ("1.5Gi", 3 << 29),
        (".5Mi", 1 << 19),
        ("2k", 2000),
        ("3M", 3_000_000),
        ("1E", 10**18),
        ("1e3", 1000),
        ("12E2", 1200),
        ("1500m", 2),
        ("100m", 1),
    ],
)
def test_a_quantity_is_a_number(text: int | str, number: int) -> None:
    assert quantity_bytes(text) == number


@pytest.mark.parametrize("text", ["", "x", "1KiB", "1 Gi", "-1", "1.2.3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity_bytes(text)
