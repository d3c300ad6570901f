"""Users, vhosts, permissions and policies: made, changed and deleted at the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

import pytest
from e2e.harness.cluster import Cluster

PHONE: Final = {"viewport": {"width": 360, "height": 740}}
OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SIZES: Final = pytest.mark.parametrize("size", [{}, PHONE], ids=["wide", "phone"])


class Form:
    """The dialog that is open."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.dialog = page.locator("dialog.record[open]")
        self.dialog.wait_for()

    def fill(self, **values: str) -> None:
        for name, value in values.items():
            self.dialog.locator(f"[name={name}]").fill(value)

    def settings(self, *lines: tuple[str, str]) -> None:
        """Fill lines of names and values from the first one on."""
        for at, (name, value) in enumerate(lines):
            if self.dialog.locator(".setting").count() <= at:
                self.dialog.locator("text=Add a line").click()
            line = self.dialog.locator(".setting").nth(at)
            line.locator("[name=setting]").fill(name)
            line.locator("[name=setting-value]").fill(value)

    def save(self) -> None:
        self.dialog.locator("button[type=submit]").click()

    def saved(self) -> None:
        """Save, and wait until that was done."""
        self.save()
        self.dialog.wait_for(state="detached")

    def problem(self, text: str) -> Any:
        """Wait for the error text beside a field; return that field."""
        field = self.dialog.locator(".field", has=self.page.locator(".problem", has_text=text))
        field.locator(".problem").wait_for()
        assert self.page.evaluate(OVERFLOW) <= 0
        return field

    def delete(self) -> None:
        """Delete what the form shows, and wait until the focus is somewhere again."""
        self.dialog.locator("button", has_text="Delete").click()
        self.page.locator("dialog[open] button.danger[type=submit]").click()
        self.dialog.wait_for(state="detached")
        self.page.locator("main button:focus").wait_for()


def begin(page: Any, word: str) -> Form:
    page.locator("main button", has_text=f"Add {word}").first.click()
    return Form(page)


def change(page: Any, section: str, name: str) -> Form:
    row = page.locator("section", has=page.locator(f"h2:text-is('{section}')"))
    row.locator("tr", has_text=name).locator("button.row-link").click()
    return Form(page)


def refused(faults: list[str]) -> list[str]:
    """Return what went wrong beside refusals, which browsers write to the console."""
    return [each for each in faults if "status of 4" not in each]


@pytest.fixture
def vhost(api: Callable[..., Any], queue_name: Callable[[str], str]) -> Iterator[str]:
    name = queue_name("shop")
    api("PUT", f"/api/vhosts/{quote(name, safe='')}", {})
    yield name
    api("DELETE", f"/api/vhosts/{quote(name, safe='')}")


@SIZES
def test_a_user_is_made_changed_and_deleted(
    visit, shared_cluster: Cluster, api: Callable[..., Any], size: dict[str, Any]
) -> None:
    seen = visit(**size)
    seen.log_in()
    seen.open("access")
    form = begin(seen.page, "user")
    form.save()
    assert form.problem("must not be empty").locator("[name=name]:focus").count() == 1
    form.fill(name="guest", password="opensesame")
    form.save()
    form.problem("there is a user of this name already")
    form.fill(name="form ann/1")
    form.dialog.locator("[name=monitoring]").check()
    form.dialog.locator("[name=other-tags]").fill("team-a")
    form.settings(("max-connections", "many"))
    form.save()
    assert form.problem("limit 'max-connections' must be").locator(":focus").count() == 1
    form.settings(("max-connections", "20"))
    form.saved()
    seen.row("form ann/1").locator("td", has_text="max-connections: 20").wait_for(state="attached")
    path = "/api/users/form%20ann%2F1"
    first = api("GET", path)
    assert first["tags"] == ["monitoring", "team-a"]

    form = change(seen.page, "Users", "form ann/1")
    form.dialog.locator("[name=monitoring]").uncheck()
    form.dialog.locator("[name=policymaker]").check()
    form.dialog.locator("[aria-label='Remove this line']").click()
    form.saved()
    second = api("GET", path)
    assert second["tags"] == ["policymaker", "team-a"]
    assert second["limits"] == {}
    assert second["password_hash"] == first["password_hash"]

    change(seen.page, "Users", "form ann/1").delete()
    seen.page.locator(".toast", has_text="was deleted").wait_for()
    seen.row("form ann/1").wait_for(state="detached")
    assert shared_cluster.node("n1").api.request("GET", path).status == 404
    assert seen.violations == []
    assert refused(seen.faults) == []


@SIZES
def test_a_vhost_is_made_and_a_user_let_into_it(
    visit, shared_cluster: Cluster, api: Callable[..., Any], size: dict[str, Any]
) -> None:
    seen = visit(**size)
    seen.log_in()
    seen.open("access")
    form = begin(seen.page, "vhost")
    form.fill(name="form shop", description="orders")
    form.dialog.locator("select[name=default_queue_type]").select_option("quorum")
    form.settings(("max-queues", "7"), ("nothing", "1"))
    form.save()
    form.problem("limit 'nothing' is not recognised")
    form.dialog.locator("[aria-label='Remove this line']").nth(1).click()
    form.saved()
    assert api("GET", "/api/vhosts/form%20shop")["default_queue_type"] == "quorum"
    assert api("GET", "/api/vhost-limits/form%20shop")[0]["value"] == {"max-queues": 7}

    form = begin(seen.page, "permission")
    form.fill(user="nobody at all", vhost="form shop", read="((")
    form.save()
    form.problem("not a regular expression").locator("[name=read]:focus").wait_for()
    form.fill(read=".*", write="")
    form.save()
    form.problem("no user 'nobody at all'").locator("[name=user]:focus").wait_for()
    form.fill(user="guest")
    form.saved()
    permission = api("GET", "/api/permissions/form%20shop/guest")
    assert [permission[each] for each in ("configure", "write", "read")] == [".*", "", ".*"]

    form = begin(seen.page, "topic permission")
    form.fill(user="guest", vhost="form shop", exchange="amq.topic", write="^{username}")
    form.saved()
    topic = api("GET", "/api/topic-permissions/form%20shop/guest/amq.topic")
    assert (topic["write"], topic["read"]) == ("^{username}", ".*")
    change(seen.page, "Topic permissions", "amq.topic").delete()

    change(seen.page, "Vhosts", "form shop").delete()
    seen.row("form shop").first.wait_for(state="detached")
    assert shared_cluster.node("n1").api.request("GET", "/api/vhosts/form%20shop").status == 404
    assert refused(seen.faults) == []


@SIZES
def test_a_policy_is_made_changed_and_deleted(
    visit, api: Callable[..., Any], vhost: str, size: dict[str, Any]
) -> None:
    seen = visit(**size)
    seen.log_in()
    seen.open("policies")
    form = begin(seen.page, "policy")
    form.dialog.locator("select[name=vhost]").select_option(vhost)
    form.fill(name="keep", pattern="(", priority="x")
    form.settings(("max-length-bytes", "64 MiB"), ("overflow", "explode"))
    form.save()
    form.problem("must be a whole number").locator("[name=priority]:focus").wait_for()
    form.fill(priority="3")
    form.save()
    form.problem("not a regular expression").locator("[name=pattern]:focus").wait_for()
    form.fill(pattern="^orders")
    form.save()
    wrong = form.problem("'overflow' must be one of").locator("[aria-invalid=true]")
    assert wrong.input_value() == "explode"
    form.settings(("max-length-bytes", "64 MiB"), ("dead-letter-routing-key", '"7"'))
    form.saved()
    path = f"/api/policies/{quote(vhost, safe='')}/keep"
    definition = {"max-length-bytes": 64 << 20, "dead-letter-routing-key": "7"}
    assert api("GET", path)["definition"] == definition

    form = change(seen.page, "Policies", "keep")
    form.dialog.locator("select[name=apply-to]").select_option("quorum_queues")
    form.saved()
    policy = api("GET", path)
    assert (policy["apply-to"], policy["priority"]) == ("quorum_queues", 3)
    assert policy["definition"] == definition
    change(seen.page, "Policies", "keep").delete()
    seen.row("keep").wait_for(state="detached")

    form = begin(seen.page, "operator policy")
    form.dialog.locator("select[name=vhost]").select_option(vhost)
    form.fill(name="bound", pattern=".*")
    form.settings(("fairness-key", "tenant"))
    form.save()
    form.problem("'fairness-key' is not recognised as a setting of operator policies")
    form.settings(("max-length", "1000"))
    form.saved()
    change(seen.page, "Operator policies", "bound").delete()
    seen.row("bound").wait_for(state="detached")
    assert refused(seen.faults) == []


def test_forms_are_used_by_keyboard(visit, api: Callable[..., Any]) -> None:
    seen = visit()
    seen.log_in()
    seen.open("access")
    page = seen.page
    button = page.locator("button", has_text="Add user")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog.record input[name=name]:focus")
    page.keyboard.type("guest-keys")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_selector("button:focus:has-text('Add user')")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog.record input[name=name]:focus")
    page.keyboard.type("guest-keys")
    page.keyboard.press("Tab")
    page.keyboard.type("g q t ?")  # no shortcuts while one types
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_selector("button:focus:has-text('Add user')")  # the focus comes back first
    link = seen.row("guest-keys").locator("button.row-link")
    link.focus()
    page.keyboard.press("ArrowUp")
    page.wait_for_selector("button.row-link:focus:has(span:text-is('guest'))")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog.record:has-text('guest-keys')")
    page.locator("dialog.record button", has_text="Delete").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog:has-text('Delete user “guest-keys”?')")
    page.locator("dialog button.danger[type=submit]").focus()
    page.keyboard.press("Enter")
    seen.row("guest-keys").wait_for(state="detached")
    page.wait_for_selector("button:focus:has-text('Add user')")
    assert seen.faults == []


def test_an_answer_that_comes_late_does_not_replace_a_newer_one(
    visit, api: Callable[..., Any]
) -> None:
    seen = visit()
    seen.log_in()
    held: list[Any] = []
    seen.page.route("**/api/users", lambda route: held.append(route), times=1)
    seen.open("access")
    form = begin(seen.page, "user")
    form.fill(name="form-late", password="late")
    form.saved()
    seen.row("form-late").wait_for()
    first = {"name": "guest", "tags": ["administrator"], "limits": {}}
    with seen.page.expect_response("**/api/users"):
        held.pop().fulfill(json=[first])
    seen.page.evaluate("() => new Promise(requestAnimationFrame)")
    assert seen.row("form-late").count() == 1
    api("DELETE", "/api/users/form-late")
    assert seen.faults == []


def test_who_does_not_administer_gets_no_forms_but_policies_where_allowed(
    visit, api: Callable[..., Any], vhost: str
) -> None:
    inside = quote(vhost, safe="")
    api("PUT", "/api/users/form-maker", {"password": "maker", "tags": "policymaker"})
    for path in (inside, "%2F"):
        body = {"configure": "", "write": "", "read": ""}
        api("PUT", f"/api/permissions/{path}/form-maker", body)
    seen = visit()
    seen.log_in("form-maker", "maker")
    seen.open("access")
    seen.page.locator(".notice", has_text="tag administrator").wait_for()
    seen.page.locator("td, th", has_text=vhost).first.wait_for()
    assert seen.page.locator("main button", has_text="Add ").count() == 0
    assert seen.page.locator("button.row-link").count() == 0
    seen.open("policies")
    assert seen.page.locator("main button", has_text="Add operator policy").count() == 0
    form = begin(seen.page, "policy")
    form.dialog.locator("select[name=vhost]").select_option(vhost)
    form.fill(name="mine", pattern="^m")
    form.settings(("max-length", "5"))
    form.saved()
    seen.row("mine").wait_for()
    api("DELETE", f"/api/permissions/{inside}/form-maker")
    form = change(seen.page, "Policies", "mine")
    form.save()
    form.dialog.locator("form > .problem", has_text="refused for user 'form-maker'").wait_for()
    api("DELETE", "/api/users/form-maker")
    assert refused(seen.faults) == []
