"""Fields that stand in messages of protobuf without being copied."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.codecs.large_payload import find, wrap
from headrace_protos.cluster.v1.cluster_pb2 import ClusterPayload, QueueCommand, Run

NUMBERS = st.integers(0, 2**62)
OCTETS = st.binary(max_size=300)


@given(NUMBERS, NUMBERS, OCTETS, OCTETS)
def test_octets_behind_the_other_fields_are_read_by_protobuf(
    session: int, first: int, batch: bytes, redelivered: bytes
) -> None:
    fields = Run(session=session, first=first, redelivered=redelivered).SerializeToString()
    octets = b"".join(wrap(b"", 7, wrap(fields, 4, [batch[:5], memoryview(batch)[5:]])))
    run = ClusterPayload.FromString(octets).run
    assert (run.session, run.first, run.batch) == (session, first, batch)
    assert run.redelivered == redelivered


@given(NUMBERS, OCTETS, OCTETS)
def test_octets_are_found_in_what_protobuf_has_written(
    session: int, batch: bytes, redelivered: bytes
) -> None:
    run = Run(session=session, batch=batch, redelivered=redelivered)
    octets = b"before" + run.SerializeToString()
    found = find(octets, 4, 6, len(octets))
    if not batch:
        assert found is None
        return
    assert found is not None
    assert octets[found.start : found.stop] == batch
    assert Run.FromString(found.fields) == Run(session=session, redelivered=redelivered)


def test_octets_that_stand_last_are_found_by_what_is_before_them() -> None:
    octets = QueueCommand(group=7, session=9, data=bytes(1000)).SerializeToString()
    found = find(octets[:64], 3, 0, len(octets))
    assert found is not None
    assert (found.stop - found.start, found.stop) == (1000, len(octets))
    assert QueueCommand.FromString(found.fields) == QueueCommand(group=7, session=9)


def test_octets_that_others_stand_behind_are_not_found_by_what_is_before_them() -> None:
    octets = QueueCommand(group=7, data=bytes(1000), causes=[1, 2]).SerializeToString()
    assert find(octets[:64], 3, 0, len(octets)) is None


@given(st.binary(max_size=40), st.integers(1, 15))
def test_any_octets_are_read_without_an_error(octets: bytes, number: int) -> None:
    found = find(octets, number, 0, len(octets))
    assert found is None or 0 < found.start <= found.stop <= len(octets)


def test_field_that_comes_twice_is_not_found() -> None:
    assert find(b"\x22\x01a\x22\x01b", 4, 0, 6) is None
