"""Values of field tables as JSON has them."""

from __future__ import annotations

import base64
import datetime
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Return a field's value as JSON has it; octets that are no UTF-8 in base64."""
    if isinstance(value, datetime.datetime):
        return int(value.timestamp())
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {printable(str(name)): plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return printable(value) if isinstance(value, str) else value


def printable(text: str) -> str:
    """Return a text without surrogates, which stand for octets that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
