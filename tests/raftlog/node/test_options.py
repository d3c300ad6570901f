from __future__ import annotations

from typing import Any

import pytest

from headrace_raftlog.node.options import NodeOptions

GOOD: dict[str, Any] = {"cluster": "c", "node": 1, "peers": {1: "h:1"}, "data_dir": "d"}


def test_good_options_are_taken() -> None:
    assert NodeOptions(**GOOD).tick_ms == 100


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"node": 2}, "no address of this node, 2"),
        ({"peers": {1: "h:1", 1024: "h:2"}}, "node id 1024"),
        ({"peers": {1: "h:1", 0: "h:2"}}, "node id 0"),
        ({"peers": {1: "h"}}, "'h' for node 1, not host:port"),
        ({"peers": {1: "h:x"}}, "not host:port"),
        ({"tick_ms": 1}, "tick_ms is 1"),
        ({"tick_ms": 100_000}, "tick_ms is 100000"),
    ],
)
def test_wrong_option_is_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        NodeOptions(**(GOOD | change))
