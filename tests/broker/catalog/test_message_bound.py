"""Message size limit from the announcements of all nodes."""

from __future__ import annotations

from typing import Any

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.message_bound import bound_of, cluster_bytes, place_problem
from headrace_broker.catalog.result import Refused
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.limits import MESSAGE_BYTES_PLAIN

MIB = 1 << 20


def say(driver: Any, *taken: int) -> None:
    """Announce how large a message nodes 1, 2, ... take; 0: as an earlier release does."""
    for node, byte_count in enumerate(taken, start=1):
        command = commands.AnnounceNode(node, MACHINE_VERSION, message_bytes_max=byte_count)
        assert not isinstance(driver.do(command), Refused)


def test_least_of_all_nodes_holds_and_the_rule_names_that_node(driver: Any) -> None:
    say(driver, 512 * MIB, 64 * MIB, 128 * MIB)
    assert cluster_bytes(driver.catalog) == 64 * MIB
    least, rule = bound_of(driver.catalog, 1, 512 * MIB, "")
    assert least == 64 * MIB
    assert rule == "node 'n2' takes no more (limits.message_bytes_max and memory there)"
    assert bound_of(driver.catalog, 2, 64 * MIB, "here") == (64 * MIB, "here")
    assert bound_of(driver.catalog, 1, 16 * MIB, "") == (16 * MIB, "")


def test_node_of_an_earlier_release_counts_with_what_it_takes_at_most(driver: Any) -> None:
    say(driver, 512 * MIB, 512 * MIB, 0)
    assert cluster_bytes(driver.catalog) == MESSAGE_BYTES_PLAIN
    assert bound_of(driver.catalog, 1, 512 * MIB, "") == (
        MESSAGE_BYTES_PLAIN,
        "node 'n3' has not said that it takes more: earlier releases do not",
    )
    say(driver, 512 * MIB, 512 * MIB, 512 * MIB)
    assert cluster_bytes(driver.catalog) == 512 * MIB


def test_what_every_node_takes_is_not_bounded_by_what_others_let_clients_send(driver: Any) -> None:
    say(driver, MESSAGE_BYTES_PLAIN, 1024, MESSAGE_BYTES_PLAIN)
    assert bound_of(driver.catalog, 1, MESSAGE_BYTES_PLAIN, "") == (MESSAGE_BYTES_PLAIN, "")


def test_node_that_is_removed_bounds_nothing_any_more(driver: Any) -> None:
    say(driver, 512 * MIB, 512 * MIB, 0)
    driver.do(commands.ForgetNode(3))
    assert bound_of(driver.catalog, 1, 512 * MIB, "") == (512 * MIB, "")


def test_announcement_of_less_than_nothing_is_refused(driver: Any) -> None:
    assert isinstance(
        driver.do(commands.AnnounceNode(1, MACHINE_VERSION, message_bytes_max=-1)), Refused
    )


def test_queue_of_nodes_with_larger_messages_does_not_move_to_an_earlier_release(
    driver: Any,
) -> None:
    say(driver, 64 * MIB, 64 * MIB, 0)
    queue = driver.queue("q", "quorum", replicas=2)
    assert queue.members == (1, 2)
    assert "cannot move to node 'n3', which runs an older version" in place_problem(
        driver.catalog, queue, (3,)
    )
    say(driver, 64 * MIB, 64 * MIB, MESSAGE_BYTES_PLAIN)
    assert place_problem(driver.catalog, queue, (3,)) == "", "of its peers it takes everything"
    say(driver, MESSAGE_BYTES_PLAIN, MESSAGE_BYTES_PLAIN, 0)
    assert place_problem(driver.catalog, queue, (3,)) == "", "there are no larger ones"
