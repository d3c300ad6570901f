"""The names that the page's forms suggest are those that the node knows."""

from __future__ import annotations

import json
import re
from importlib import resources

import pytest

from headrace_broker.catalog.setting import (
    EXCHANGE_SETTINGS,
    QUEUE_SETTINGS,
    USER_LIMITS,
    VHOST_LIMITS,
)

KNOWN = {**QUEUE_SETTINGS, **EXCHANGE_SETTINGS}


def suggested(name: str) -> list[str]:
    """Return a list of names out of the page's script."""
    static = resources.files("headrace_broker.management.page").joinpath("static")
    text = static.joinpath("setting.js").read_text(encoding="utf-8")
    found = re.search(rf"export const {name} = (\[[^\]]*\]);", text)
    assert found is not None, name
    return [str(each) for each in json.loads(re.sub(r",\s*\]", "]", found[1]))]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("POLICY_SETTINGS", {name for name, each in KNOWN.items() if each.policy}),
        ("OPERATOR_SETTINGS", {name for name, each in KNOWN.items() if each.operator}),
        ("USER_LIMITS", set(USER_LIMITS)),
        ("VHOST_LIMITS", set(VHOST_LIMITS)),
    ],
)
def test_what_is_suggested_is_what_there_is(name: str, known: set[str]) -> None:
    assert suggested(name) == sorted(known)
