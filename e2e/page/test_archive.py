"""Archive of a queue and its readers, at the queue's page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from e2e.harness.cluster import Cluster
from e2e.harness.export_driver import ExportDriver

from headrace_protos.broker.v1 import export_pb2 as pb

ARGUMENTS = {"x-queue-type": "quorum", "x-archive": "full"}


@pytest.fixture
def channel(shared_cluster: Cluster) -> Any:
    found = shared_cluster.connect("n1").channel()
    found.confirm_delivery()
    return found


@pytest.fixture
def kept(channel: Any, queue_name: Callable[[str], str]) -> Iterator[str]:
    """A queue with an archive of three messages, and two more that wait."""
    name = queue_name("kept")
    channel.queue_declare(name, durable=True, arguments=ARGUMENTS)
    for number in range(5):
        channel.basic_publish("", name, f"letter {number}".encode())
    take(channel, name, 3)
    yield name
    channel.queue_delete(name)


def take(channel: Any, queue: str, count: int) -> None:
    for _ in range(count):
        method, _, _ = channel.basic_get(queue)
        channel.basic_ack(method.delivery_tag)


def test_the_state_of_an_archive_and_of_its_groups_is_seen_and_a_group_closed(
    visit, shared_cluster: Cluster, channel: Any, kept: str, api: Callable[..., Any]
) -> None:
    seen = visit()
    seen.log_in()
    seen.open(f"queues/%2F/{quote(kept)}")
    archive = seen.page.locator("section", has=seen.page.locator("h2:text-is('Archive')"))
    archive.locator(".facts > div:has-text('Rows') dd:text-is('0 to 2')").wait_for()
    archive.locator(".empty", has_text="Nobody reads it").wait_for()

    nodes = [node.grpc for node in shared_cluster.local.nodes]
    with ExportDriver(nodes, pb.EXPORT_LOG_ARCHIVE, "lake") as job:
        [shard] = job.shards("/", kept)
        job.open(shard, "once")
        take(channel, kept, 2)  # the page hears that the queue has changed
        archive.locator(".facts > div:has-text('Rows') dd:text-is('0 to 4')").wait_for()
        row = archive.locator("tbody tr", has_text="lake")
        row.locator("td").first.locator("text=5").wait_for()
        row.locator("button.row-link").click()
        seen.page.locator("dialog[open]", has_text="it has not read 5 rows").wait_for()
        seen.page.click("dialog button:text-is('Close group')")
        seen.page.locator(".toast", has_text="was closed").wait_for()
        archive.locator(".empty", has_text="Nobody reads it").wait_for()
    assert api("GET", f"/api/queues/%2F/{quote(kept)}/archive")["groups"] == []
    assert seen.faults == []
    assert seen.violations == []


def test_a_queue_without_an_archive_says_nothing_of_one(
    visit, channel: Any, queue_name: Callable[[str], str]
) -> None:
    name = queue_name("plain")
    channel.queue_declare(name, durable=True)
    seen = visit()
    seen.log_in()
    seen.open(f"queues/%2F/{quote(name)}")
    seen.page.locator(".facts", has_text="Operator policy").wait_for()
    seen.page.locator("section", has_text="Bindings").locator("tbody tr").first.wait_for()
    assert not seen.page.locator("h2:text-is('Archive')").is_visible()
    assert seen.faults == []
    channel.queue_delete(name)
