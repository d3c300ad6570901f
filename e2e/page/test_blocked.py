"""A publisher that is held back, seen at the page with its cause, and set free there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.publisher import Publisher

SEEN_MS_MAX: Final = 2000
ENDLESS: Final = 1 << 30


@pytest.fixture
def orders(
    shared_cluster: Cluster, queue_name: Callable[[str], str], api: Callable[..., Any]
) -> Any:
    """A queue without consumers whose watermark a policy sets, among other things."""
    name = queue_name("orders")
    body = {
        "pattern": f"^{name}",
        "definition": {"high-watermark": 50, "low-watermark": 10, "delivery-limit": 7},
        "priority": 3,
    }
    policy = f"/api/policies/%2F/{quote(name)}"
    api("PUT", policy, body)
    channel = shared_cluster.connect("n1").channel()
    channel.queue_declare(name, durable=True)
    yield name
    shared_cluster.connect("n1").channel().queue_delete(name)
    api("DELETE", policy)


def test_a_blocked_publisher_appears_with_its_cause_and_goes_on_when_its_watermark_is_raised(
    shared_cluster: Cluster, orders: str, queue_name: Callable[[str], str], visit, api
) -> None:
    leader = shared_cluster.leader(orders)
    other = next(node for node in ("n1", "n2", "n3") if node != leader)
    name = queue_name("shop")
    seen = visit(other)
    seen.log_in()
    seen.open("connections")
    with Publisher([shared_cluster.port(leader)], orders, ENDLESS, 100, 5, name) as publisher:
        row = seen.row(name)
        row.locator("td", has_text=f"watermark: {orders}").wait_for()
        assert row.locator("td", has_text="flow").count() == 1
        assert int(row.get_attribute("data-seen-after-ms")) <= SEEN_MS_MAX

        row.locator("a").click()
        sentence = seen.page.locator(".sentence[data-limit=watermark]")
        sentence.wait_for()
        assert f"by queue '{orders}' (leader {leader})" in sentence.text_content()
        assert "it has no consumers" in sentence.text_content()
        seen.row(orders).locator("td", has_text="100").wait_for()  # of the load is its own

        seen.open("flow")
        node = seen.page.locator(".node[data-limit=watermark]", has_text=name)
        node.click()
        seen.page.locator(".panel .sentence[data-limit=watermark]").wait_for()
        assert seen.page.locator(".node.layer1", has_text="(default)").count() == 1
        assert seen.page.locator(".link.held").count() >= 1

        raise_watermark(seen.page, orders)
        before = len(publisher.confirmed)
        assert publisher.wait_confirmed(before + 1000, 60)
        seen.page.locator(".tile[data-tone=good]", has_text="State").wait_for()
        publisher.halt()
    check_policy(api, orders)
    assert seen.faults == []
    assert seen.violations == []


def raise_watermark(page: Any, queue: str) -> None:
    """Use the form of the queue's page."""
    page.evaluate("view => { location.hash = view; }", f"#/queues/%2F/{quote(queue)}")
    page.locator(".tile[data-tone=warn]", has_text="saturated").wait_for()
    field = page.locator("input[name=high-watermark]")
    assert field.input_value() == "50"
    field.fill("some")
    page.click("text=Set watermarks")
    page.locator(".problem", has_text="must be a number").wait_for()
    field.fill("1000000")
    page.fill("input[name=low-watermark]", "")
    page.click("text=Set watermarks")
    page.locator(".toast", has_text="was made").wait_for()


def check_policy(api: Callable[..., Any], queue: str) -> None:
    """Check that the rest of the queue's policy stays, and no other queue gets this one."""
    entry = api("GET", f"/api/queues/%2F/{quote(queue)}")
    assert entry["policy"] == f"watermark.{queue}"
    assert entry["effective_policy_definition"] == {
        "high-watermark": 1_000_000,
        "delivery-limit": 7,
    }
    path = f"/api/policies/%2F/watermark.{quote(queue)}"
    policy = api("GET", path)
    assert policy["priority"] == 4
    assert policy["pattern"].startswith("^")
    assert policy["pattern"].endswith("$")
    api("DELETE", path)
    again = f"/api/queues/%2F/{quote(queue)}"
    wait_for("the first policy", lambda: api("GET", again)["policy"] == queue)
