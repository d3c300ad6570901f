"""A headless Chromium before a cluster; without one, or without Playwright, tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from e2e.harness.cluster import Cluster

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS: Final = 60_000  # a loaded machine draws slowly
LEAVE_ATTEMPTS: Final = 20
LEAVE_PAUSE_MS: Final = 250  # between two: an attempt that is under way interrupts the next one

# Says what the page was not allowed to do, where a test can read it.
WATCH: Final = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


class Visit:
    """A window of a browser at the page of a node, and all that went wrong in it.

    Attributes:
        page: of Playwright.
        hosts: that were asked for something.
        faults: what the page wrote to its console, and errors of its scripts.
    """

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.address = address
        self.hosts: set[str] = set()
        self.faults: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.add_init_script(WATCH)
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.faults.append(str(error)))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(message.text)

    def log_in(self, user: str = "guest", password: str = "guest") -> None:
        self.page.goto(f"http://{self.address}/")
        self.page.fill("input[name=user]", user)
        self.page.fill("input[name=password]", password)
        self.page.click("button[type=submit]")
        self.page.wait_for_selector("header.head")

    def open(self, view: str) -> None:
        self.page.evaluate("view => { location.hash = view; }", f"#/{view}")
        self.page.wait_for_selector("main h1")

    def row(self, text: str) -> Any:
        """The row of a table in which a text occurs."""
        return self.page.locator("tbody tr", has_text=text)

    @property
    def violations(self) -> list[str]:
        """Return violations of the content security policy on the page."""
        return list(self.page.evaluate("window.violations"))


def leave(page: Any) -> None:
    """Bring a page to rest at about:blank.

    Chromium 156 never closes a context whose page is on its way elsewhere, as one is whose session
    has ended; such a page may also interrupt the way to about:blank.
    """
    for attempts_left in reversed(range(LEAVE_ATTEMPTS)):
        try:
            page.goto("about:blank")
            return
        except sync_api.Error as error:
            if not attempts_left or "interrupted by another navigation" not in str(error):
                raise
            page.wait_for_timeout(LEAVE_PAUSE_MS)


@pytest.fixture(scope="module")  # Playwright runs an event loop, which must not meet another one
def browser() -> Iterator[Any]:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("needs Chromium (Debian: apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        # Chromium's own sandbox does not run as root, as in CI.
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any, shared_cluster: Cluster) -> Iterator[Callable[..., Visit]]:
    """Opens windows at nodes."""
    pages = []

    def begin(node: str = "n1", **options: Any) -> Visit:
        options.setdefault("reduced_motion", "reduce")
        page = browser.new_context(**options).new_page()
        pages.append(page)
        return Visit(page, shared_cluster.node(node).http)

    yield begin
    for page in pages:
        leave(page)
        page.context.close()


@pytest.fixture
def api(shared_cluster: Cluster) -> Callable[..., Any]:
    """Makes requests to the API of the first node as guest; they must be done."""

    def request(method: str, path: str, body: Any = None) -> Any:
        answer = shared_cluster.node("n1").api.request(method, path, body, seconds=60)
        assert answer.status < 300, answer
        return answer.body

    return request
