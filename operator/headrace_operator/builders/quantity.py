"""Quantities of Kubernetes, such as 1Gi and 500m, as numbers."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_FORM: Final = re.compile(
    r"^\+?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[mkMGTPE]|[eE][+-]?[0-9]+)?$"
)
_LETTERS: Final = "KMGTPE"


def quantity_bytes(quantity: int | str) -> int:
    """Return a quantity as a whole number, rounded up. Raises as `quantity_number`."""
    return int(quantity_number(quantity).to_integral_value(rounding="ROUND_CEILING"))


def quantity_number(quantity: int | str) -> Decimal:
    """Return a quantity as a number.

    Raises:
        ValueError: it is none.
    """
    match = _FORM.match(str(quantity))
    if match is None:
        raise ValueError(f"'{quantity}' is no quantity, such as 512Mi or 10Gi")
    return Decimal(match[1]) * _factor(match[2] or "")


def _factor(suffix: str) -> Decimal:
    if suffix.endswith("i"):
        return Decimal(1024) ** (_LETTERS.index(suffix[0]) + 1)
    if suffix == "m":
        return Decimal("0.001")
    if suffix[:1] in {"e", "E"} and len(suffix) > 1:
        return Decimal(10) ** int(suffix[1:])
    if suffix:
        return Decimal(1000) ** (_LETTERS.index(suffix.upper()) + 1)
    return Decimal(1)
