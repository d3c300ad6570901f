"""Values of field tables as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_broker.codecs.header_values import bytes_text
from headrace_broker.runtime.contract.plain_table import plain_value


def plain(value: Any) -> Any:
    """Return a field's value as JSON has it; bytes that are no UTF-8 in base64."""
    value = plain_value(value)
    if isinstance(value, bytes):
        return bytes_text(value)
    if isinstance(value, dict):
        return json_table(value)
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return printable(value) if isinstance(value, str) else value


def json_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with values that JSON has; the given one is not changed."""
    return {printable(str(name)): plain(value) for name, value in table.items()}


def printable(text: str) -> str:
    """Return a text without surrogates, which stand for bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
