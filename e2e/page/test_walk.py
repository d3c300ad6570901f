"""Every view, by keyboard and at the width of a phone, without a word to anybody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import pytest
from e2e.harness.cluster import Cluster
from e2e.harness.consumer import Consumer

VIEWS: Final = (
    *("overview", "flow", "queues", "connections", "channels"),
    *("exchanges", "policies", "access", "limits"),
)
OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PHONE: Final = {"viewport": {"width": 360, "height": 740}}


@pytest.fixture
def queue(shared_cluster: Cluster, queue_name: Callable[[str], str]) -> Any:
    """A queue with messages and a consumer of some."""
    name = queue_name("mails")
    channel = shared_cluster.connect("n1").channel()
    channel.queue_declare(name, durable=True)
    for number in range(30):
        channel.basic_publish("", name, f"letter {number}".encode())
    yield name
    shared_cluster.connect("n1").channel().queue_delete(name)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [{}, PHONE], ids=["wide", "phone"])
def test_no_view_asks_anybody_else_breaks_a_rule_or_is_wider_than_the_window(
    visit, queue: str, theme: str, size: dict[str, Any]
) -> None:
    seen = visit(color_scheme=theme, **size)
    seen.log_in()
    for view in (*VIEWS, f"queues/%2F/{quote(queue)}"):
        seen.open(view)
        seen.page.locator(f"nav a[href='#/{view.split('/')[0]}'][aria-current=page]").wait_for(
            state="attached"
        )
        seen.page.locator("tbody tr, .limit, .empty:visible").first.wait_for(state="attached")
        assert seen.page.evaluate(OVERFLOW) <= 0, view
    assert seen.hosts == {seen.address}
    assert seen.violations == []
    assert seen.faults == []


def test_everything_is_reached_by_keyboard(visit, queue: str) -> None:
    seen = visit()
    page = seen.page
    page.goto(f"http://{seen.address}/")
    page.wait_for_selector("input[name=user]:focus")
    page.keyboard.type("guest")
    page.keyboard.press("Tab")
    page.keyboard.type("guest")
    page.keyboard.press("Enter")
    page.wait_for_selector("main:focus")

    page.reload()
    page.wait_for_selector("header.head")
    page.keyboard.press("Tab")
    page.wait_for_selector("a.skip:focus")
    page.keyboard.press("Enter")
    page.wait_for_selector("main:focus")

    page.keyboard.press("?")
    page.wait_for_selector("dialog[open] kbd")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")

    for theme in ("light", "dark"):
        page.keyboard.press("t")
        page.wait_for_selector(f"html[data-theme={theme}]")
    page.keyboard.press("t")
    page.wait_for_selector("html:not([data-theme])")

    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_selector("h1:has-text('Queues')")
    page.keyboard.press("/")
    page.wait_for_selector("input[data-filter]:focus")
    page.keyboard.type(queue)
    row = seen.row(queue)
    row.wait_for()
    page.keyboard.press("Escape")
    row.locator("a").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("a.row-link:focus")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_selector(".tile:has-text('Unacknowledged')")
    assert seen.faults == []


def test_messages_are_looked_at_and_purged_after_a_question(
    visit, queue: str, shared_cluster: Cluster
) -> None:
    seen = visit()
    seen.log_in()
    seen.open(f"queues/%2F/{quote(queue)}")
    page = seen.page
    page.click("text=Look at messages")
    page.locator(".messages pre", has_text="letter 0").wait_for()
    page.click("text=Next")
    page.locator(".messages pre", has_text="letter 10").wait_for()
    page.locator(".tile-value:text-is('30')").wait_for()
    page.click("button:text-is('Purge')")
    page.locator("dialog[open]", has_text="30 now").wait_for()
    page.click("dialog button:text-is('Cancel')")
    page.click("button:text-is('Purge')")
    page.click("dialog button:text-is('Purge')")
    page.locator(".toast", has_text="was purged").wait_for()
    page.locator(".tile:has-text('Ready') .tile-value:text-is('0')").first.wait_for()
    assert seen.faults == []


def test_consumers_and_closed_connections_show(visit, queue: str, shared_cluster: Cluster) -> None:
    seen = visit("n2")
    seen.log_in()
    seen.open(f"queues/%2F/{quote(queue)}")
    with Consumer([shared_cluster.port("n3")], queue):
        link = seen.page.locator("section", has_text="Consumers").locator("tbody a").first
        link.click()
        seen.page.wait_for_selector("h1:has-text('Connection')")
        seen.page.locator(".sentence", has_text="is not held").wait_for()
        seen.page.click("text=Close connection")
        seen.page.click("dialog button:text-is('Close connection')")
        seen.page.locator(".toast", has_text="was closed").wait_for()


def test_who_may_not_change_something_reads_why(visit, queue: str, api: Callable[..., Any]) -> None:
    api("PUT", "/api/users/looker", {"password": "looker", "tags": "management"})
    api("PUT", "/api/permissions/%2F/looker", {"configure": "", "write": "", "read": "^nothing$"})
    seen = visit()
    seen.log_in("looker", "looker")
    page = seen.page
    seen.open(f"queues/%2F/{quote(queue)}")
    page.locator(".notice", has_text="tag policymaker or administrator").wait_for()
    assert page.locator("input[name=high-watermark]").is_disabled()
    page.click("text=Look at messages")
    page.locator(".problem", has_text="refused for user 'looker'").wait_for()
    seen.open("limits")
    page.locator(".problem", has_text="'monitoring' or 'administrator'").wait_for()
    seen.open("overview")
    assert not page.locator("h2:text-is('Nodes')").is_visible()
    # The node has refused, which browsers write to the console; nothing else is there.
    assert [each for each in seen.faults if "403" not in each] == []
    api("DELETE", "/api/users/looker")
    page.wait_for_selector("form.login")


def test_a_log_in_counts_at_all_nodes_and_a_log_out_too(visit, shared_cluster: Cluster) -> None:
    seen = visit("n1")
    seen.log_in()
    seen.page.goto(f"http://{shared_cluster.node('n2').http}/")
    seen.page.wait_for_selector("header.head:has-text('n2')")
    seen.page.click("text=Log out")
    seen.page.wait_for_selector("form.login")
    seen.page.goto(f"http://{seen.address}/")
    seen.page.wait_for_selector("form.login")
    seen.page.fill("input[name=user]", "guest")
    seen.page.fill("input[name=password]", "wrong")
    seen.page.click("button[type=submit]")
    seen.page.locator(".problem", has_text="user or password is wrong").wait_for()
