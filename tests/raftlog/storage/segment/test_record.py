"""Records and batches: they are read as written, and nothing else passes for one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry, HardState
from headrace_raftlog.storage.segment import record

SALT = 0x89ABCDEF
POSITIVE = st.integers(0, 2**63 - 1)


def a_batch(start: int, number: int, records: list[bytes], count: int | None = None) -> bytes:
    body = b"".join(records)
    count = len(records) if count is None else count
    groups = record.encode_groups([7] if records else [])
    size = len(body) + record.BATCH_FRAME_BYTES + 2 * len(groups)
    batch = (
        record.encode_head(SALT, record.HEAD_PLAIN, number, size, count, groups)
        + body
        + record.encode_trailer(SALT, number, start, count, groups)
    )
    return batch.ljust(record.sector_end(start + size) - start, b"\0")


def entry_record(entry: Entry) -> bytes:
    return record.encode_entry(SALT, 5, 7, entry) + entry.data


@given(POSITIVE, POSITIVE, st.integers(0, 2), st.binary(max_size=100), st.binary(max_size=9))
def test_entry_is_read_as_written(
    index: int, term: int, kind: int, data: bytes, lead: bytes
) -> None:
    entry = Entry(index, term, kind, data)
    stored = lead + record.encode_entry(SALT, 2**32 - 1, 2**62, entry) + data
    assert record.record_bytes(stored, len(lead), len(stored), SALT) == 40 + len(data)
    assert record.record_type_at(stored, len(lead)) == record.RECORD_ENTRY
    assert record.record_group_at(stored, len(lead)) == 2**62
    assert record.record_era_at(stored, len(lead)) == 2**32 - 1
    assert record.decode_entry(stored, len(lead)) == entry


@given(POSITIVE, POSITIVE, POSITIVE)
def test_hard_state_is_read_as_written(term: int, vote: int, commit: int) -> None:
    state = HardState(term, vote, commit)
    stored = record.encode_state(SALT, 1, 9, state)
    assert record.record_bytes(stored, 0, len(stored), SALT) == len(stored)
    assert record.decode_state(stored, 0) == state


def test_byte_layout_of_an_entry_is_the_documented_one() -> None:
    header = record.encode_entry(0, 0x0708, 0x0102, Entry(0x0304, 0x0506, ENTRY_CONFIG, b"abc"))
    assert header[4:].hex() == (
        "03000000010200d908070000"
        "020100000000000006050000000000000403000000000000"
    )  # fmt: skip


@given(st.binary(max_size=60), st.integers(0, 2**30))
def test_any_flipped_bit_of_a_record_is_noticed(data: bytes, where: int) -> None:
    stored = bytearray(entry_record(Entry(3, 2, 0, data)))
    stored[where % len(stored)] ^= 1 << (where >> 20 & 7)
    assert record.record_bytes(bytes(stored), 0, len(stored), SALT) == -1


def test_copy_of_a_record_differs_only_in_its_flag() -> None:
    lead = b"lead"
    stored = entry_record(Entry(3, 2, 1, b"data"))
    copy = record.encode_copy(SALT, lead + stored, len(lead), len(lead) + len(stored))
    assert record.record_bytes(copy, 0, len(copy), SALT) == len(stored)
    assert (record.record_is_copy_at(stored, 0), record.record_is_copy_at(copy, 0)) == (False, True)
    assert (copy[4:10], copy[12:]) == (stored[4:10], stored[12:])
    assert record.header_is_checked(copy, 0)


@given(st.binary(max_size=60), st.integers(0, record.HEADER_BYTES * 8 - 33))
def test_any_flipped_bit_of_a_header_is_noticed_without_its_payload(data: bytes, bit: int) -> None:
    stored = bytearray(entry_record(Entry(3, 2, 0, data)))
    assert record.header_is_checked(bytes(stored), 0)
    stored[record.HEADER_BYTES :] = bytes(len(data))
    assert record.header_is_checked(bytes(stored), 0)
    stored[4 + bit // 8] ^= 1 << bit % 8
    assert not record.header_is_checked(bytes(stored), 0)


@given(
    st.integers(0, 255),
    st.sampled_from((0, record.FLAG_COPY)),
    st.integers(0, 2**32 - 1),
    st.tuples(POSITIVE, POSITIVE, POSITIVE),
)
def test_check_of_a_header_is_that_of_its_bytes(
    kind: int, flags: int, era: int, numbers: tuple[int, int, int]
) -> None:
    stored = record.encode_record(SALT, 17, kind, era, *numbers, b"abc", flags)
    assert record.header_is_checked(stored, 0)
    assert record.record_fields(stored, 0) == (3, 17, kind, flags, era, *numbers)


def test_header_of_an_old_record_proves_nothing() -> None:
    stored = bytearray(entry_record(Entry(3, 2, 0, b"data")))
    stored[11] = 0
    assert not record.header_is_checked(bytes(stored), 0)


def test_head_and_trailer_name_the_groups() -> None:
    data = a_batch(0, 5, [entry_record(Entry(1, 1, 0, b"a"))])
    batch = record.read_batch(data, 0, 5, SALT)
    assert record.groups_at(data, 0) == [7]
    assert record.groups_at(data, batch.offsets[0] + 41) == [7]


def test_record_of_another_log_is_not_taken() -> None:
    stored = entry_record(Entry(3, 2, 0, b"data"))
    assert record.record_bytes(stored, 0, len(stored), SALT + 1) == -1


def test_record_reaching_beyond_its_batch_is_not_taken() -> None:
    stored = entry_record(Entry(3, 2, 0, b"data"))
    assert record.record_bytes(stored, 0, len(stored) - 1, SALT) == -1
    assert record.record_bytes(stored, 0, 39, SALT) == -1


def test_batch_is_read_with_the_offsets_of_its_records() -> None:
    records = [entry_record(Entry(n, 1, 0, bytes(n * 100))) for n in range(1, 6)]
    data = bytes(512) + a_batch(512, 4, records) + bytes(512)
    batch = record.read_batch(data, 512, 4, SALT)
    assert batch.damage == -1
    assert batch.end == len(data) - 512
    assert [record.decode_entry(data, at).index for at in batch.offsets] == [1, 2, 3, 4, 5]


def test_empty_batch_is_a_batch() -> None:
    data = bytes(512) + a_batch(512, 1, [])
    assert record.read_batch(data, 512, 1, SALT).end == 1024


def test_batch_with_another_number_is_refused() -> None:
    data = a_batch(0, 5, [])
    batch = record.read_batch(data, 0, 4, SALT)
    assert (batch.end, batch.damage) == (0, 0)
    assert batch.reason == "batch 5 stands here, expected batch 4"


def test_batch_with_another_count_of_records_is_refused() -> None:
    entries = [entry_record(Entry(1, 1, 0, b"a"))]
    assert record.read_batch(a_batch(0, 5, entries, 1), 0, 5, SALT).end == 512
    assert record.read_batch(a_batch(0, 5, entries, 2), 0, 5, SALT).end == 0


def test_batch_moved_to_another_offset_is_refused() -> None:
    data = bytes(512) + a_batch(0, 5, [])
    batch = record.read_batch(data, 512, 5, SALT)
    assert batch.end == 0
    assert "trailer of batch 5" in batch.reason


def test_every_flipped_byte_of_a_batch_is_noticed_at_its_record() -> None:
    records = [entry_record(Entry(1, 1, 0, b"x" * 200)), entry_record(Entry(2, 1, 0, b"y" * 200))]
    intact = a_batch(0, 1, records)
    assert record.read_batch(intact, 0, 1, SALT).end == len(intact)
    for at in range(len(intact)):
        broken = bytearray(intact)
        broken[at] ^= 0x10
        batch = record.read_batch(bytes(broken), 0, 1, SALT)
        assert batch.end == 0, f"byte {at}"
        assert batch.damage <= at < batch.damage + 240 or batch.damage >= 576, f"byte {at}"


@given(st.binary(max_size=1500))
def test_random_bytes_are_never_a_batch(data: bytes) -> None:
    assert record.read_batch(data, 0, 1, SALT).end == 0
