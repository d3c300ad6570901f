"""Judgement of peers by what a node has heard of their disks."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.limits import DISKS_REMEMBERED_MAX
from headrace_raftlog.model.mark import Mark, survived
from headrace_raftlog.transport.identity import (
    CloneRefusedError,
    ForgottenDiskError,
    StreamIdentity,
)
from headrace_raftlog.transport.peer_memory import PeerMemory

DISK = 33


def process(boot: int, number: int, *starts: tuple[int, int], disk: int = DISK) -> StreamIdentity:
    """Return what process `number` of node 3 says of itself."""
    return StreamIdentity("c", 3, boot, disk, {3: DISK}, "n3", "h:3", number, starts)


def memory(batch: int = 500) -> PeerMemory:
    """Return the memory of node 1: boot 8 of node 3 has promised something, up to a batch."""
    known = PeerMemory(1)
    met = process(8, 80, (7, 200), (8, 300))
    known.met(met)
    known.promised(met, 300)
    known.heard(met, batch)
    return known


def test_least_batch_found_by_later_starts_is_what_survived() -> None:
    starts = ((7, 200), (8, 300), (9, 280))
    assert [survived(starts, boot) for boot in (6, 7, 8, 9)] == [200, 280, 280, -1]


@pytest.mark.parametrize(
    "peer",
    [
        process(8, 80, (7, 200), (8, 300)),  # the same process
        process(60, 80, (7, 200), (8, 300)),  # it has raised its boot
        process(61, 90, (8, 300), (61, 500)),  # it had raised it, and that was not heard
        StreamIdentity("c", 3, 1, DISK, {}, "n3", "h:3", 90, ((1, 0),)),  # never took part
        process(9, 90, (8, 300), (9, 500)),  # all is there
        process(9, 90, (8, 300), (9, 507)),  # and what was not heard of
        process(12, 90, (12, 500)),  # starts in between are not known any more
        process(1, 90, (1, 0), disk=34),  # another disk
    ],
)
def test_who_has_what_was_heard_of_is_let_in(peer: StreamIdentity) -> None:
    memory().judge(peer, None)


@pytest.mark.parametrize(
    "peer",
    [
        process(9, 90, (8, 300), (9, 499)),  # the end is cut off
        process(10, 90, (8, 300), (9, 499), (10, 600)),  # and later batches hide it
        process(9, 90, (9, 300)),  # a copy of boot 8 while it ran
        process(8, 90, (7, 200), (8, 600)),  # a copy from before boot 8, as far by now
        process(7, 70, (7, 200)),  # an older one
    ],
)
def test_who_lacks_what_was_heard_of_is_refused(peer: StreamIdentity) -> None:
    with pytest.raises(ForgottenDiskError, match="node 1 has heard of batch 500") as refused:
        memory().judge(peer, None)
    assert refused.value.disk == DISK


def test_second_process_is_named_a_clone_while_the_first_runs() -> None:
    known = memory()
    first = process(8, 80, (8, 300))
    with pytest.raises(CloneRefusedError, match="node 3 runs twice") as refused:
        known.judge(process(8, 81, (8, 300)), first)
    assert refused.value.process == 81
    with pytest.raises(ForgottenDiskError):
        known.judge(process(8, 81, (8, 300)), None)
    known.judge(process(9, 90, (9, 500)), first)  # restarted, and that is not noticed yet


def test_disks_that_are_only_told_of_do_not_stand_for_the_one_that_was_met() -> None:
    known = memory()
    for disk in range(100, 100 + DISKS_REMEMBERED_MAX):
        known.told(3, Mark(disk, 1, 90, 5), None)
    (*_, last) = known.marks()[3]
    assert last == Mark(DISK, 8, 80, 500)
    again = PeerMemory(1, known.marks())
    assert again.met(process(9, 90, (9, 500))) == 0


def test_nodes_of_an_earlier_release_are_not_judged() -> None:
    known = memory()
    earlier = StreamIdentity("c", 3, 9, DISK, {3: DISK})
    known.judge(earlier, None)
    known.met(earlier)
    with pytest.raises(ForgottenDiskError):
        known.judge(process(9, 90, (9, 300)), None)


def test_batches_of_a_process_that_was_not_met_last_change_nothing() -> None:
    known = memory()
    known.heard(process(8, 81), 900)
    assert known.marks() == {3: (Mark(DISK, 8, 80, 500),)}
    known.heard(process(8, 80), 400)
    assert known.marks() == {3: (Mark(DISK, 8, 80, 500),)}


def test_memory_survives_being_written_and_read() -> None:
    again = PeerMemory(1, memory().marks())
    assert not again.changed
    with pytest.raises(ForgottenDiskError):
        again.judge(process(9, 90, (9, 300)), None)


def test_disks_heard_last_are_remembered() -> None:
    known = memory()
    for disk in range(100, 100 + DISKS_REMEMBERED_MAX - 1):
        known.met(process(1, disk, (1, 0), disk=disk))
    assert DISK in [mark.disk for mark in known.marks()[3]]
    known.met(process(1, 200, (1, 0), disk=200))
    assert DISK not in [mark.disk for mark in known.marks()[3]]
    assert len(known.marks()[3]) == DISKS_REMEMBERED_MAX


def test_only_what_has_changed_is_news() -> None:
    known = memory()
    assert known.news() == [(3, Mark(DISK, 8, 80, 500))]
    assert known.news() == []
    known.heard(process(8, 80), 501)
    assert known.news() == [(3, Mark(DISK, 8, 80, 501))]
    assert known.everything() == [(3, Mark(DISK, 8, 80, 501))]


def test_batch_that_was_heard_is_a_change_until_it_was_taken() -> None:
    known = memory()
    changes: list[bool] = []
    known.changed = False
    changes.append(known.changed)
    known.heard(process(8, 80), 501)
    known.heard(process(8, 80), 400)
    changes.append(known.changed)
    known.changed = False
    changes.append(known.changed)
    assert known.marks() == {3: (Mark(DISK, 8, 80, 501),)}
    changes.append(known.changed)
    assert changes == [False, True, False, False]


def test_batch_that_was_heard_counts_for_whoever_comes_next() -> None:
    known = memory()
    known.heard(process(8, 80), 501)
    with pytest.raises(ForgottenDiskError, match="has heard of batch 501"):
        known.judge(process(9, 90, (9, 500)), None)
    known.heard(process(8, 80), 502)
    known.met(process(9, 90, (9, 504)))
    with pytest.raises(ForgottenDiskError, match="has heard of batch 504"):
        known.judge(process(9, 91, (9, 503)), None)


def test_batches_of_a_boot_that_was_not_heard_are_none_of_the_one_before() -> None:
    """Nothing was heard of boot 9, which synced batches 501 to 520."""
    known = memory()
    known.met(process(10, 100, (8, 300), (9, 500), (10, 520)))
    assert known.marks() == {3: (Mark(DISK, 8, 80, 500),)}
    known.judge(process(11, 110, (8, 300), (9, 500), (10, 520), (11, 530)), None)


# Copies that run beside their original


FIRST = process(8, 80, (7, 200), (8, 300))  # runs all along
COPY = process(9, 90, (7, 200), (8, 300), (9, 500))


def test_copy_that_was_let_in_makes_nobody_outdated_until_it_promises_something() -> None:
    known = memory()
    known.judge(COPY, None)
    known.met(COPY)
    known.heard(COPY, 501)
    known.judge(FIRST, None)
    known.judge(process(9, 91, (8, 300), (9, 502)), None)  # the first one, restarted
    known.promised(COPY, 501)
    for first in (FIRST, process(9, 91, (8, 300), (9, 502))):
        with pytest.raises(ForgottenDiskError, match="a second process was started"):
            known.judge(first, None)


def test_copy_that_is_met_first_makes_nobody_outdated_until_it_promises_something() -> None:
    known = PeerMemory(1)
    known.met(COPY)
    assert (known.news(), known.everything()) == ([], []), "of no process by name"
    known.judge(FIRST, None)
    with pytest.raises(ForgottenDiskError):
        known.judge(process(7, 70, (7, 200)), None)
    with pytest.raises(ForgottenDiskError):
        known.judge(process(9, 91, (8, 300), (9, 499)), None)
    known.met(FIRST)
    assert known.marks() == {3: (Mark(DISK, 8, 80, 500),)}
    known.met(COPY)
    known.promised(COPY, 501)
    with pytest.raises(ForgottenDiskError):
        known.judge(FIRST, None)


@pytest.mark.parametrize("running", [COPY, None])
def test_another_node_names_the_process_before_the_copy(running: StreamIdentity | None) -> None:
    known = PeerMemory(1)
    known.met(COPY)
    assert not known.told(3, Mark(DISK, 8, 80, 450), running)
    assert known.everything() == [(3, Mark(DISK, 8, 80, 500))]
    known.judge(FIRST, None)


def test_copy_that_has_promised_something_elsewhere_is_named_by_who_tells() -> None:
    known = memory()
    known.met(COPY)
    assert not known.told(3, Mark(DISK, 9, 90, 501), COPY)
    assert known.everything() == [(3, Mark(DISK, 9, 90, 501))]


def test_second_process_is_named_a_clone_before_the_running_one_has_promised_anything() -> None:
    known = memory()
    known.met(COPY)
    with pytest.raises(CloneRefusedError, match="node 3 runs twice"):
        known.judge(process(9, 91, (8, 300), (9, 400)), COPY)


# What other nodes tell


def test_what_another_node_has_heard_counts_later() -> None:
    known = PeerMemory(1)
    assert not known.told(3, Mark(DISK, 8, 80, 500), None)
    with pytest.raises(ForgottenDiskError):
        known.judge(process(9, 90, (9, 300)), None)


@pytest.mark.parametrize("mark", [Mark(DISK, 7, 70, 900), Mark(DISK, 8, 80, 400)])
def test_older_news_change_nothing(mark: Mark) -> None:
    known = memory()
    assert not known.told(3, mark, None)
    assert known.marks() == {3: (Mark(DISK, 8, 80, 500),)}


@pytest.mark.parametrize(
    ("running", "ends"),
    [
        (process(9, 90, (9, 300)), True),  # let in here, where nobody knew of batch 500
        (process(9, 90, (9, 500)), False),
        (process(8, 80, (8, 300)), False),
        (process(7, 70, (7, 200)), False),  # judged when the newer one comes
        (process(1, 10, (1, 0), disk=34), False),
        (StreamIdentity("c", 3, 9, DISK, {3: DISK}), False),
    ],
)
def test_session_with_who_has_forgotten_ends_when_another_node_knows(
    running: StreamIdentity, ends: bool
) -> None:
    known = PeerMemory(1)
    known.met(running)
    assert known.told(3, Mark(DISK, 8, 80, 500), running) is ends
    if ends:
        with pytest.raises(ForgottenDiskError):
            known.judge(running, None)


def test_of_two_processes_that_began_alike_all_nodes_keep_the_same() -> None:
    one, other = process(8, 80, (8, 300)), process(8, 81, (8, 300))
    here, there = PeerMemory(1), PeerMemory(2)
    here.met(one)
    here.promised(one, 500)
    there.met(other)
    there.promised(other, 310)
    [(_, mark)] = here.news()
    [(_, mark_there)] = there.news()
    assert there.told(3, mark, other)
    assert not here.told(3, mark_there, one)


def test_node_that_comes_with_another_disk_is_noticed_once() -> None:
    known = memory()
    anew = process(1, 90, (1, 0), disk=34)
    known.told(3, Mark(34, 1, 90, 5), None)  # somebody else has met it first
    assert known.met(anew) == DISK
    assert known.met(anew) == 0
    later = PeerMemory(1, known.marks())
    assert later.met(process(2, 91, (1, 0), (2, 9), disk=34)) == 0
    assert later.met(process(1, 92, (1, 0), disk=35)) == 34


def test_node_that_was_never_met_has_no_former_disk() -> None:
    assert PeerMemory(1).met(process(8, 80, (8, 300))) == 0
