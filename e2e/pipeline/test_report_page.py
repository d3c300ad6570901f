"""The report in a browser: from a file, in both themes, on a telephone and on paper."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from e2e.page.conftest import browser as browser
from tests.pipeline.analysis_frames import STORIES

from headrace_pipeline.report.page import render

MADE_AT: Final = datetime(2026, 11, 23, 6, tzinfo=UTC)
OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PHONE: Final = {"width": 400, "height": 800}
WIDE: Final = {"width": 1280, "height": 900}
A4_PAGES_MAX: Final = 6

# Whether any two texts of one axis of time lie on each other.
COLLISIONS: Final = """
() => [...document.querySelectorAll("svg.plot, svg.axis")].filter((svg) => {
  const boxes = [...svg.querySelectorAll("text.time")]
    .filter((text) => getComputedStyle(text).display !== "none")
    .map((text) => text.getBoundingClientRect());
  return boxes.some((box, at) => at > 0 && box.left < boxes[at - 1].right);
}).length
"""


@pytest.fixture(scope="module", params=list(STORIES))
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    frames, span = STORIES[request.param]()
    path: Path = tmp_path_factory.mktemp("report") / f"{request.param}.html"
    path.write_text(render(frames, span, MADE_AT, "/srv/lake"), encoding="utf-8")
    return path


class Opened:
    """A page and all that went wrong in it."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_page_is_whole_asks_nobody_and_fits_its_window(
    browser: Any, file: Path, theme: str, size: dict[str, int]
) -> None:
    with Opened(browser, file, viewport=size, color_scheme=theme) as opened:
        assert opened.page.evaluate(OVERFLOW) <= 0
        assert opened.page.evaluate(COLLISIONS) == 0
        assert opened.page.locator("h1").count() == 1
        assert opened.faults == []
        assert [each for each in opened.asked if not each.startswith(("file:", "data:"))] == []


def test_a_head_of_a_table_sorts_it_and_back(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        page = opened.page
        details = page.locator("#load > details")
        details.locator("summary").click()
        numbers = "els => els.map(el => Number(el.dataset.v))"
        head = details.locator("th button", has_text="Published")
        for direction in ("descending", "ascending"):
            head.click()
            order = details.locator("tbody tr td:nth-child(3)").evaluate_all(numbers)
            assert order == sorted(order, reverse=direction == "descending")
            assert details.locator(f"th[aria-sort={direction}]").count() == 1
        assert opened.faults == []


def test_a_pointer_is_told_the_values_under_it(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        panel = opened.page.locator("figure.panel").first
        panel.locator("svg.plot").first.hover()
        said = panel.locator(".tip").inner_text()
        assert re.search(r"^published/s: ", said, re.MULTILINE)
        assert re.search(r"^ready: ", said, re.MULTILINE)
        opened.page.mouse.move(0, 0)
        assert panel.locator(".tip").is_hidden()
        assert opened.faults == []


def test_it_is_printed_on_few_pages_of_paper(browser: Any, file: Path) -> None:
    with Opened(browser, file, color_scheme="dark") as opened:
        byte_count = opened.page.pdf(prefer_css_page_size=True)
        assert 1 <= len(re.findall(rb"/Type\s*/Page[^s]", byte_count)) <= A4_PAGES_MAX
        opened.page.emulate_media(media="print")
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        assert opened.page.evaluate(ground) == "rgb(255, 255, 255)"
