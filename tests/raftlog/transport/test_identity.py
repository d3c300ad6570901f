from __future__ import annotations

import pytest

from headrace_raftlog.transport.identity import (
    BOOT_KEY,
    CLUSTER_KEY,
    NODE_KEY,
    PROTOCOL_KEY,
    TARGET_KEY,
    StreamIdentity,
    StreamRefusedError,
)

HERE = StreamIdentity("c", 2, 7)
GOOD = dict(StreamIdentity("c", 1, 5).metadata(2))


def test_right_metadata_names_the_other_end() -> None:
    assert HERE.check(tuple(GOOD.items()), (1, 3)) == StreamIdentity("c", 1, 5)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (CLUSTER_KEY, "other", "'other' reached node 2 of cluster 'c'"),
        (NODE_KEY, "9", "node 9 is not a known peer of node 2"),
        (NODE_KEY, "-1", "headrace-node is '-1', not a number"),
        (TARGET_KEY, "3", "node 3 was meant, but this is node 2"),
        (BOOT_KEY, "", "headrace-boot is '', not a number"),
        (BOOT_KEY, "9" * 30, "headrace-boot"),
        (PROTOCOL_KEY, "2", "protocol version 2 is not spoken here, only 1"),
    ],
)
def test_wrong_metadata_is_refused_by_name(key: str, value: str, text: str) -> None:
    with pytest.raises(StreamRefusedError, match=text):
        HERE.check(tuple((GOOD | {key: value}).items()), (1, 3))


@pytest.mark.parametrize("key", [CLUSTER_KEY, NODE_KEY, TARGET_KEY, BOOT_KEY, PROTOCOL_KEY])
def test_missing_metadata_is_refused(key: str) -> None:
    rest = tuple((k, v) for k, v in GOOD.items() if k != key)
    with pytest.raises(StreamRefusedError):
        HERE.check(rest, (1, 3))
