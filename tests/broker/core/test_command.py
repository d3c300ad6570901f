from __future__ import annotations

import pytest
from tests.broker.core.conftest import ANNA, batch

from headrace_broker.core.queue.command import (
    archive_command,
    command,
    leader_command,
    lease_command,
)
from headrace_broker.core.queue.command.archive_command import (
    CloseArchive,
    CommitArchive,
    OpenArchive,
)
from headrace_broker.core.queue.command.command import (
    ENQUEUE_BATCH_OFFSET,
    Attach,
    Cancel,
    Close,
    Enqueue,
    Get,
    Malformed,
    NodeDown,
    Purge,
    Remove,
    SetPrefetch,
    Settle,
    SettleItem,
    stamp_command,
)
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.core.queue.command.leader_command import Acquire, Configure, Forget
from headrace_broker.core.queue.command.lease_command import (
    CloseGroup,
    OpenGroup,
    ReleaseLeases,
    RenewLeases,
    SettleLeases,
    TakeLease,
)
from headrace_broker.core.queue.messages.settings import (
    QueueSettings,
    decode_settings,
    encode_settings,
)

U32_MAX = 2**32 - 1

COMMANDS = {
    "enqueue": command.encode_enqueue(ANNA, 7, batch(b"a", b"bc")),
    "settle": command.encode_settle(ANNA, 7, [SettleItem(0, 1, 1, 1), SettleItem(3, 4, 2, 2**62)]),
    "settle nothing": command.encode_settle(ANNA, 7, []),
    "attach": command.encode_attach(ANNA, 7, U32_MAX, 5, True, b"tag"),
    "set prefetch": command.encode_set_prefetch(ANNA, 7, [(3, 5), (U32_MAX, U32_MAX)]),
    "set prefetch of nobody": command.encode_set_prefetch(ANNA, 7, []),
    "cancel": command.encode_cancel(ANNA, 7, 3),
    "get": command.encode_get(ANNA, 7),
    "get by id": command.encode_get(ANNA, 7, 12),
    "extended attach": command.encode_attach(
        ANNA,
        7,
        1,
        5,
        False,
        b"tag",
        filtered=True,
        priority=-3,
        prefetch_bytes=U32_MAX,
        timeout_ms=9,
    ),
    "remove": command.encode_remove(ANNA, 7, [3, 2**62]),
    "purge": command.encode_purge(ANNA, 7),
    "enqueue named": command.encode_enqueue_named(
        ANNA, 7, batch(b"a", b"bc", b""), b"anna", 3, [5, 6, 9, 11], True
    ),
    "open group": lease_command.encode_open_group(9, b"g", 1000, b"opener"),
    "lease": lease_command.encode_lease(9, b"g", 2, 3, 4, 5, 6),
    "renew": lease_command.encode_renew(9, b"g", 2, 1000),
    "settle leases": lease_command.encode_settle_leases(9, b"g", 2, 3),
    "release leases": lease_command.encode_release_leases(9, b"g", 2, 3, True),
    "close group": lease_command.encode_close_group(9, b"g", 2),
    "open archive": archive_command.encode_open_archive(9, b"g", b"opener"),
    "commit archive": archive_command.encode_commit_archive(9, b"g", 2, 3),
    "close archive": archive_command.encode_close_archive(9, b"g", 2),
    "enqueue now": command.encode_enqueue_now(ANNA, 7, batch(b"a", b"bc")),
    "configure": leader_command.encode_configure(2, QueueSettings()),
    "tick": leader_command.encode_tick(),
    "acquire": leader_command.encode_acquire(ANNA, 3, [5, 4]),
    "forget": leader_command.encode_forget([5]),
    "close": command.encode_close(ANNA),
    "node down": command.encode_node_down(1023, U32_MAX),
}


def decoded(name: str) -> command.Command:
    return decode_command(stamp_command(1, COMMANDS[name]))


def test_enqueue_comes_back_with_the_sizes_of_its_bodies() -> None:
    found = decoded("enqueue")
    assert isinstance(found, Enqueue)
    assert (found.session, found.seq, found.sizes.count) == (ANNA, 7, 2)
    assert [found.sizes.byte_count(position) for position in range(2)] == [1, 2]


def test_the_batch_stands_at_its_fixed_offset() -> None:
    assert stamp_command(1, COMMANDS["enqueue"])[ENQUEUE_BATCH_OFFSET:] == batch(b"a", b"bc")


def test_the_stamp_is_the_first_eight_bytes() -> None:
    assert stamp_command(0x0102030405060708, b"x") == bytes([1, 2, 3, 4, 5, 6, 7, 8]) + b"x"


def test_settle_comes_back_item_by_item() -> None:
    found = decoded("settle")
    assert isinstance(found, Settle)
    assert (found.session, found.seq) == (ANNA, 7)
    items = [(item.consumer, item.operation, item.first, item.last) for item in found.items]
    assert items == [(0, 1, 1, 1), (3, 4, 2, 2**62)]


def test_attach_comes_back_with_all_its_fields() -> None:
    found = decoded("attach")
    assert isinstance(found, Attach)
    fields = (found.consumer, found.prefetch, found.exclusive, found.tag)
    assert fields == (U32_MAX, 5, True, b"tag")


def test_an_extended_attach_comes_back_with_all_its_fields() -> None:
    found = decoded("extended attach")
    assert isinstance(found, Attach)
    fields = (found.filtered, found.priority, found.prefetch_bytes, found.timeout_ms)
    assert fields == (True, -3, U32_MAX, 9)


def test_prefetches_come_back_consumer_by_consumer() -> None:
    found = decoded("set prefetch")
    assert isinstance(found, SetPrefetch)
    assert (found.session, found.seq) == (ANNA, 7)
    assert found.items == [(3, 5), (U32_MAX, U32_MAX)]


def test_messages_are_named_by_their_ids() -> None:
    get, remove, acquire, forget = map(decoded, ["get by id", "remove", "acquire", "forget"])
    assert isinstance(get, Get)
    assert get.message_id == 12
    assert isinstance(remove, Remove)
    assert remove.ids == [3, 2**62]
    assert isinstance(acquire, Acquire)
    assert (acquire.session, acquire.consumer, acquire.ids) == (ANNA, 3, [5, 4])
    assert isinstance(forget, Forget)
    assert forget.ids == [5]


def test_an_immediate_enqueue_stands_like_any_other() -> None:
    found = decoded("enqueue now")
    assert isinstance(found, Enqueue)
    assert (found.now, found.batch_offset, found.sizes.count) == (True, ENQUEUE_BATCH_OFFSET, 2)


def every_setting() -> QueueSettings:
    settings = QueueSettings()
    settings.message_ttl_ms = 1
    settings.max_length = 2
    settings.max_length_bytes = 3
    settings.overflow = 1
    settings.delivery_limit = 5
    settings.dead_letter = 2
    settings.single_active = True
    settings.consumer_timeout_ms = 8
    settings.priority_max = 9
    settings.deduplicate = True
    settings.dedup_count = 10
    settings.dedup_ms = 11
    settings.retry_type = 3
    settings.retry_min_ms = 13
    settings.retry_max_ms = 14
    settings.last_value_key = b"fifteen"
    settings.group_key = b"sixteen"
    settings.high_watermark_bytes = 18
    settings.low_watermark_bytes = 17
    settings.high_watermark = 20
    settings.low_watermark = 19
    settings.fairness_key = b"twenty-one"
    settings.publisher_retention_ms = 22
    settings.archive = 1
    settings.archive_max_messages = 24
    settings.archive_max_bytes = 25
    settings.archive_max_age_ms = 26
    return settings


def test_settings_come_back_in_every_field() -> None:
    names = sorted(name for name in dir(QueueSettings()) if not name.startswith("_"))
    wanted, plain = every_setting(), QueueSettings()
    found = decode_settings(encode_settings(wanted))
    assert found is not None
    for name in names:
        assert getattr(found, name) == getattr(wanted, name) != getattr(plain, name), name


def test_configure_comes_back_with_version_and_settings() -> None:
    encoded = leader_command.encode_configure(4, every_setting())
    found = decode_command(stamp_command(1, encoded))
    assert isinstance(found, Configure)
    assert found.version == 4
    assert encode_settings(found.settings) == encode_settings(every_setting())


def test_configure_of_an_earlier_version_says_nothing_that_it_does_not_know() -> None:
    encode = leader_command.encode_configure
    later, plain = every_setting(), every_setting()
    plain.publisher_retention_ms = QueueSettings().publisher_retention_ms
    assert encode(2, later) == encode(2, plain)
    assert encode(3, later) != encode(3, plain)
    plain, new = every_setting(), QueueSettings()
    plain.archive, plain.archive_max_messages = new.archive, new.archive_max_messages
    plain.archive_max_bytes = new.archive_max_bytes
    plain.archive_max_age_ms = new.archive_max_age_ms
    assert encode(3, later) == encode(3, plain)
    assert encode(4, later) != encode(4, plain)


@pytest.mark.parametrize(("asked", "told"), [(5, 5), (31, 31), (32, 31), (255, 31)])
def test_an_earlier_version_is_told_no_priority_that_is_new(asked: int, told: int) -> None:
    wanted, known = QueueSettings(), QueueSettings()
    wanted.priority_max, known.priority_max = asked, told
    encode = leader_command.encode_configure
    assert encode(4, wanted) == encode(4, known)
    found = decode_command(stamp_command(1, encode(5, wanted)))
    assert isinstance(found, Configure)
    assert found.settings.priority_max == asked


def test_numbers_of_a_publisher_come_back_behind_the_batch() -> None:
    found = decoded("enqueue named")
    assert isinstance(found, Enqueue)
    assert (found.session, found.seq, found.sizes.count, found.patient) == (ANNA, 7, 3, True)
    named = found.named
    assert named is not None
    assert (named.publisher, named.epoch, named.rows) == (b"anna", 3, [5, 6, 9, 11])


def test_commands_of_groups_come_back_with_all_their_fields() -> None:
    opened, leased, renewed, settled, released, closed = map(
        decoded, ["open group", "lease", "renew", "settle leases", "release leases", "close group"]
    )
    assert isinstance(opened, OpenGroup)
    assert (opened.request, opened.name, opened.ttl_ms) == (9, b"g", 1000)
    assert opened.opener == b"opener"
    assert isinstance(leased, TakeLease)
    assert (leased.request, leased.name, leased.epoch, leased.number) == (9, b"g", 2, 3)
    assert (leased.messages, leased.byte_count, leased.ttl_ms) == (4, 5, 6)
    assert isinstance(renewed, RenewLeases)
    assert (renewed.request, renewed.epoch, renewed.ttl_ms) == (9, 2, 1000)
    assert isinstance(settled, SettleLeases)
    assert (settled.request, settled.epoch, settled.last) == (9, 2, 3)
    assert isinstance(released, ReleaseLeases)
    assert (released.request, released.epoch, released.first, released.failed) == (9, 2, 3, True)
    assert isinstance(closed, CloseGroup)
    assert (closed.request, closed.name, closed.epoch) == (9, b"g", 2)


def test_commands_of_groups_that_read_come_back_with_all_their_fields() -> None:
    opened, committed, closed = map(decoded, ["open archive", "commit archive", "close archive"])
    assert isinstance(opened, OpenArchive)
    assert (opened.request, opened.name, opened.opener) == (9, b"g", b"opener")
    assert isinstance(committed, CommitArchive)
    assert (committed.request, committed.name, committed.epoch) == (9, b"g", 2)
    assert committed.up_to == 3
    assert isinstance(closed, CloseArchive)
    assert (closed.request, closed.name, closed.epoch) == (9, b"g", 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02",
        b"\x01\x00" + bytes(8),  # field 0
        b"\x01\x63" + bytes(8),  # a field of the future
        b"\x01\x12" + bytes(7) + b"\x01",  # a low watermark above the high one
        b"\x01\x01" + bytes(7),
        b"\x01\x04" + bytes(7) + b"\x03",  # overflow
        b"\x01\x01" + b"\xff" * 7 + b"\xfe",  # -2
        b"\x01\x0f\x00\x02a",
        b"\x01\x17" + bytes(7) + b"\x03",  # archive
        b"\x01\x18" + b"\xff" * 8,
    ],
)
def test_settings_that_make_no_sense_are_malformed(data: bytes) -> None:
    assert decode_settings(data) is None
    found = decode_command(stamp_command(1, b"\x09\x01\x02" + data))
    assert isinstance(found, Malformed)


def test_the_other_commands_come_back_as_they_are() -> None:
    cancel, get, purge, close = map(decoded, ["cancel", "get", "purge", "close"])
    assert isinstance(cancel, Cancel)
    assert cancel.consumer == 3
    assert isinstance(get, Get)
    assert isinstance(purge, Purge)
    assert isinstance(close, Close)
    assert close.session == ANNA
    down = decoded("node down")
    assert isinstance(down, NodeDown)
    assert (down.node, down.boot_keep) == (1023, U32_MAX)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_cut_short_anywhere_is_malformed(name: str) -> None:
    data = stamp_command(1, COMMANDS[name])
    for length in range(len(data)):
        assert isinstance(decode_command(data[:length]), Malformed), length


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_with_a_byte_too_many_is_malformed(name: str) -> None:
    # An ENQUEUE ends with the last body: its batch says where.
    assert isinstance(decode_command(stamp_command(1, COMMANDS[name] + b"\x00")), Malformed)


@pytest.mark.parametrize("name", COMMANDS)
def test_another_version_or_kind_is_malformed(name: str) -> None:
    encoded = COMMANDS[name]
    for head in (
        b"\x00\x01",
        b"\x19\x01",
        b"\xff\x01",
        encoded[:1] + b"\x00",
        encoded[:1] + b"\x04",
    ):
        found = decode_command(stamp_command(1, head + encoded[2:]))
        assert isinstance(found, Malformed)
        assert "unknown command" in found.reason


@pytest.mark.parametrize(
    "encoded",
    [
        command.encode_enqueue(0, 1, batch(b"a")),
        command.encode_enqueue(ANNA, 0, batch(b"a")),
        command.encode_enqueue(ANNA, 2**62, batch(b"a")),
        command.encode_enqueue(-1, 1, batch(b"a")),
        command.encode_close(2**62),
        command.encode_attach(ANNA, 1, 0, 1, False, b""),
        command.encode_attach(ANNA, 1, 1, 0, False, b""),
        command.encode_set_prefetch(ANNA, 1, [(0, 1)]),
        command.encode_set_prefetch(ANNA, 1, [(1, 1), (1, 0)]),
        command.encode_settle(ANNA, 1, [SettleItem(1, 0, 1, 1)]),
        command.encode_settle(ANNA, 1, [SettleItem(1, 5, 1, 1)]),
        command.encode_settle(ANNA, 1, [SettleItem(1, 1, 2, 1)]),
        command.encode_settle(ANNA, 1, [SettleItem(1, 1, 1, -1)]),
        command.encode_enqueue_named(ANNA, 1, batch(b"a"), b"", 1, [1, 2]),
        command.encode_enqueue_named(ANNA, 1, batch(b"a"), b"p", 1, [1, 3]),
        command.encode_enqueue_named(ANNA, 1, batch(b"a"), b"p", 1, []),
        command.encode_enqueue_named(ANNA, 1, batch(b"a"), b"p", 1, [0, 1]),
        command.encode_enqueue_named(ANNA, 1, batch(b"a", b"b"), b"p", 1, [1, 2, 2, 3]),
        command.encode_enqueue_named(ANNA, 1, batch(b"a"), b"p", 2**62, [1, 2]),
        command.encode_enqueue_named(ANNA, 1, batch(b"a"), b"p", 1, [2**62, 2**62 + 1]),
        lease_command.encode_open_group(1, b"", 1, b"a"),
        lease_command.encode_open_group(1, b"g", 1, b""),
        lease_command.encode_open_group(1, b"g", 1, bytes(65)),
        lease_command.encode_open_group(1, b"g", 1 << 40, b"a"),
        lease_command.encode_lease(1, b"g", 1, 0, 1, 1, 1),
        lease_command.encode_lease(1, b"g", 1, 1, 0, 1, 1),
        lease_command.encode_lease(1, b"g", 1, 1, 1, 1, 0),
        lease_command.encode_renew(1, b"g", 1, 0),
        lease_command.encode_settle_leases(1, b"g", 1, 2**62),
        lease_command.encode_release_leases(1, b"g", 1, 1, False)[:-1] + b"\x02",
        archive_command.encode_open_archive(1, b"", b"a"),
        archive_command.encode_open_archive(1, b"g", b""),
        archive_command.encode_open_archive(1, b"g", bytes(65)),
        archive_command.encode_commit_archive(1, b"", 1, 1),
        archive_command.encode_commit_archive(1, b"g", 1, 2**62),
    ],
)
def test_numbers_out_of_range_are_malformed(encoded: bytes) -> None:
    assert isinstance(decode_command(stamp_command(1, encoded)), Malformed)


def test_an_unknown_flag_of_attach_is_malformed() -> None:
    encoded = bytearray(command.encode_attach(ANNA, 1, 1, 1, True, b""))
    encoded[26] = 2
    assert isinstance(decode_command(stamp_command(1, bytes(encoded))), Malformed)


def test_a_tag_that_is_no_short_string_is_refused() -> None:
    command.encode_attach(ANNA, 1, 1, 1, False, bytes(255))
    with pytest.raises(ValueError, match="256 bytes, at most 255"):
        command.encode_attach(ANNA, 1, 1, 1, False, bytes(256))


def test_control_commands_pass_publishes_and_what_forgets_sessions_does_not():
    passing = (
        command.encode_settle(1, 1, []),
        command.encode_attach(1, 1, 1, 1, False, b""),
        command.encode_cancel(1, 1, 1),
        command.encode_get(1, 1),
        command.encode_purge(1, 1),
    )
    waiting = (
        command.encode_enqueue(1, 1, batch(b"x")),
        command.encode_close(1),
        command.encode_node_down(1, 0),
        command.encode_node_down(1, 2),
        b"",
        b"\xff",
    )
    assert [command.passes_publishes(each) for each in passing] == [True] * len(passing)
    assert [command.passes_publishes(each) for each in waiting] == [False] * len(waiting)
