from __future__ import annotations

import pytest

from headrace_raftlog.model.limits import ENTRY_BYTES_MAX
from headrace_raftlog.transport import identity
from headrace_raftlog.transport.identity import (
    ADDRESS_KEY,
    BOOT_KEY,
    CLUSTER_KEY,
    DISK_KEY,
    ENTRY_KEY,
    FORMED_KEY,
    GENERATION_KEY,
    NAME_KEY,
    NODE_KEY,
    PROCESS_KEY,
    PROTOCOL_KEY,
    PROTOCOL_MAX_KEY,
    REJOINS_KEY,
    STARTS_KEY,
    TARGET_KEY,
    ApartError,
    StreamIdentity,
    StreamRefusedError,
)

FORMED = {1: 11, 2: 22, 3: 33}
HERE = StreamIdentity("c", 2, 7, 22, FORMED)
THERE = StreamIdentity("c", 1, 5, 11, FORMED)
GOOD = dict(THERE.metadata(2))


def test_right_metadata_names_the_other_end() -> None:
    assert HERE.check(tuple(GOOD.items()), (1, 3)) == THERE


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (CLUSTER_KEY, "other", "'other' reached node 2 of cluster 'c'"),
        (NODE_KEY, "9", "node 9 is not a known peer of node 2"),
        (NODE_KEY, "-1", "headrace-node is '-1', not a number"),
        (TARGET_KEY, "3", "node 3 was meant, but this is node 2"),
        (BOOT_KEY, "", "headrace-boot is '', not a number"),
        (BOOT_KEY, "9" * 30, "headrace-boot"),
        (PROTOCOL_MAX_KEY, "x", "headrace-protocol-max is 'x', not a number"),
        (DISK_KEY, "0", "headrace-disk is 0, out of range"),
        (DISK_KEY, str(1 << 32), "out of range"),
        (GENERATION_KEY, "5", "headrace-generation is 5, not 0"),
        (FORMED_KEY, "1:11,x", "headrace-formed has 'x', not node:disk"),
        (FORMED_KEY, "1:11,2000:5", "headrace-formed has '2000:5', out of range"),
        (FORMED_KEY, "1:11," * 1000, "too long"),
    ],
)
def test_wrong_metadata_is_refused_by_name(key: str, value: str, text: str) -> None:
    with pytest.raises(StreamRefusedError, match=text):
        HERE.check(tuple((GOOD | {key: value}).items()), (1, 3))


OPTIONAL = (
    PROTOCOL_MAX_KEY,
    NAME_KEY,
    ADDRESS_KEY,
    PROCESS_KEY,
    STARTS_KEY,
    REJOINS_KEY,
    ENTRY_KEY,
)


@pytest.mark.parametrize("key", [key for key in GOOD if key not in OPTIONAL])
def test_missing_metadata_is_refused(key: str) -> None:
    rest = tuple((k, v) for k, v in GOOD.items() if k != key)
    with pytest.raises(StreamRefusedError):
        HERE.check(rest, (1, 3))


@pytest.mark.parametrize(
    ("ours", "oldest", "newest", "common"),
    [
        ((4, 4), "4", None, 4),  # a release that speaks one only
        ((4, 5), "4", None, 4),
        ((4, 5), "4", "5", 5),
        ((4, 5), "4", "9", 5),
        ((5, 7), "4", "6", 6),
        ((4, 4), "3", None, "version 3 reached one of version 4: .*; stop all nodes to upgrade"),
        ((4, 5), "6", "7", "version 6 to 7 reached one of version 4 to 5: "),
        ((4, 5), "5", "3", "version 5 to 3 reached one of"),
    ],
)
def test_two_releases_speak_the_newest_protocol_that_both_know(
    monkeypatch: pytest.MonkeyPatch,
    ours: tuple[int, int],
    oldest: str,
    newest: str | None,
    common: int | str,
) -> None:
    monkeypatch.setattr(identity, "PROTOCOL_VERSION_MIN", ours[0])
    monkeypatch.setattr(identity, "PROTOCOL_VERSION", ours[1])
    fields = GOOD | {PROTOCOL_KEY: oldest}
    del fields[PROTOCOL_MAX_KEY]
    if newest is not None:
        fields[PROTOCOL_MAX_KEY] = newest
    if isinstance(common, int):
        assert HERE.check(tuple(fields.items()), (1, 3)).protocol == common
        return
    with pytest.raises(StreamRefusedError, match=common):
        HERE.check(tuple(fields.items()), (1, 3))


def test_a_release_that_speaks_several_is_understood_by_one_that_speaks_its_oldest() -> None:
    said = dict(THERE.metadata(2))
    assert int(said[PROTOCOL_KEY]) == identity.PROTOCOL_VERSION_MIN
    assert int(said[PROTOCOL_MAX_KEY]) == identity.PROTOCOL_VERSION


def test_what_a_node_says_of_its_process_arrives_and_may_be_missing() -> None:
    said = StreamIdentity("c", 1, 9, 11, FORMED, "n1", "h:1", 99, ((8, 120), (9, 150)), True)
    fields = dict(said.metadata(2))
    assert HERE.check(tuple(fields.items()), (1, 3)) == said
    for key in (PROCESS_KEY, STARTS_KEY, REJOINS_KEY):
        del fields[key]
    earlier = HERE.check(tuple(fields.items()), (1, 3))
    assert (earlier.process, earlier.starts, earlier.rejoins) == (0, (), False)


@pytest.mark.parametrize("text", ["1", "1:", ":1", "1:2,", "1:-2", "1:2:3", "1:2," * 300 + "1:2"])
def test_damaged_list_of_starts_is_refused(text: str) -> None:
    with pytest.raises(StreamRefusedError, match=STARTS_KEY):
        HERE.check(tuple((GOOD | {STARTS_KEY: text}).items()), (1, 3))


def test_lost_disk_is_refused_as_a_founding_member_and_welcome_as_a_new_one() -> None:
    wiped = StreamIdentity("c", 1, 1, 77, FORMED)
    fields = dict(wiped.metadata(2))
    assert HERE.check(tuple(fields.items()), (1, 3)) == wiped
    assert wiped.generation == 77
    with pytest.raises(StreamRefusedError, match="Empty its data directory and start it"):
        HERE.check(tuple((fields | {GENERATION_KEY: "0"}).items()), (1, 3))


def test_clusters_that_were_founded_apart_do_not_mix() -> None:
    alone = StreamIdentity("c", 1, 5, 11, {1: 11})
    with pytest.raises(
        StreamRefusedError, match=r"founded apart \(by nodes 1, 2, 3, and by nodes 1,"
    ):
        HERE.check(alone.metadata(2), (1, 3))


def test_second_cluster_of_a_node_that_lost_its_disk_is_told_from_the_first() -> None:
    first = StreamIdentity("c", 2, 5, 22, {1: 11})  # joined later, hence not a founder
    second = StreamIdentity("c", 1, 1, 77, {1: 77})
    assert second.is_apart(first)
    assert second.yields_to(first)
    assert not first.yields_to(second)
    for here, there in ((first, second), (second, first)):
        with pytest.raises(
            ApartError, match=r"^cluster 'c' was founded twice.*Stop node 1"
        ) as found:
            here.check(there.metadata(here.node), (1, 2))
        assert found.value.other == there
        assert "Keep the data of node 2" in str(found.value)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (StreamIdentity("c", 1, 5, 11, {1: 11}), StreamIdentity("c", 2, 5, 22, {1: 11})),
        (StreamIdentity("c", 1, 5, 11), StreamIdentity("c", 2, 5, 22, {1: 99})),
        (StreamIdentity("c", 1, 5, 11, {1: 11}), StreamIdentity("c", 2, 5, 22)),
        (StreamIdentity("c", 1, 5, 11, {1: 11}), StreamIdentity("c", 2, 5, 22, {3: 33})),
        # Both say that the other one has lost a disk: an old copy may have been put back.
        (
            StreamIdentity("c", 1, 5, 71, {1: 71, 2: 72}),
            StreamIdentity("c", 2, 5, 22, {1: 11, 2: 22}),
        ),
    ],
)
def test_neither_of_two_nodes_gives_way_where_nobody_founded_again_or_both_did(
    here: StreamIdentity, there: StreamIdentity
) -> None:
    assert not here.yields_to(there)
    assert not there.yields_to(here)


def test_end_that_waits_to_belong_is_taken_whatever_its_disk() -> None:
    new = StreamIdentity("c", 1, 1, 77)
    assert HERE.check(new.metadata(2), (1, 3)) == new
    waiting = StreamIdentity("c", 2, 1, 22)
    assert waiting.check(THERE.metadata(2), (1, 3)) == THERE


def test_node_that_does_not_say_how_long_entries_are_takes_those_of_earlier_releases() -> None:
    assert HERE.check(tuple(GOOD.items()), (1, 3)).entry_bytes_max == ENTRY_BYTES_MAX
    older = tuple((key, value) for key, value in GOOD.items() if key != ENTRY_KEY)
    assert HERE.check(older, (1, 3)).entry_bytes_max == 32 << 20
