"""The page as a whole: well formed, alone, small, and with the figures that it was given."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from html.parser import HTMLParser

import pytest
from tests.pipeline.analysis_frames import BUSY, HOSTILE, MONDAY, STORIES, busy_week

from headrace_pipeline.report.frames import Frames, Span, nothing
from headrace_pipeline.report.page import SECTIONS, render

MADE_AT = datetime(2026, 11, 23, 6, tzinfo=UTC)
BYTES_MAX = 3 << 20
VOID = frozenset({"meta", "link", "br", "col"})
BREAKS = "\"'<>&"


class Checked(HTMLParser):
    """Follows elements as they open and close, and notes tables."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.ids: list[str] = []
        self.asked: list[str] = []
        self.handlers: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._see(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._see(tag, attrs)

    def _see(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        for key, value in attrs:
            if key == "id":
                self.ids.append(value or "")
            if key in ("src", "href", "action", "srcset", "data"):
                self.asked.append(value or "")
            if key.startswith("on"):
                self.handlers.append(key)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> after {self.open[-3:]}"

    def handle_data(self, data: str) -> None:
        if self.open and {"td", "th"} & set(self.open[-5:]):
            self._rows[-1][-1] += data
        if self.open and self.open[-1] == "caption":
            self.tables[data] = self._rows


def page(frames: Frames, span: Span) -> tuple[str, Checked]:
    html = render(frames, span, MADE_AT, "/srv/lake")
    checked = Checked()
    checked.feed(html)
    checked.close()
    assert checked.open == []
    return html, checked


@cache
def story_page(name: str) -> tuple[str, Checked]:
    return page(*STORIES[name]())


@pytest.mark.parametrize("story", STORIES)
def test_each_page_is_well_formed_alone_and_small(story: str) -> None:
    html, checked = story_page(story)
    assert len(html.encode()) < BYTES_MAX
    assert html.startswith("<!DOCTYPE html>")
    assert len(set(checked.ids)) == len(checked.ids)
    assert checked.count["script"] == 1
    assert "img" not in checked.count
    assert checked.handlers == []
    assert all(each.startswith(("#", "data:,")) for each in checked.asked)
    assert "url(" not in html
    assert html.count("http") == html.count("http-equiv") + html.count("http://www.w3.org") + (
        html.count("http://evil.example")
    )


@pytest.mark.parametrize("story", STORIES)
def test_each_picture_has_words_and_each_section_a_conclusion(story: str) -> None:
    html, _ = story_page(story)
    for tag in re.findall(r'<svg class="(?:plot|strip|bar|range|move)"[^>]*>', html):
        assert re.search(r'aria-label="[^"]{3,}"', tag), tag
    sections = re.findall(r'<section id="(\w+)".*?</section>', html, re.DOTALL)
    assert sections == ["summary", *(make.__name__ for _, make in SECTIONS)]
    said = re.findall(r'<p class="conclusion"><span>(.*?)</span></p>', html)
    assert len(said) == len(SECTIONS)
    assert all(re.sub("<[^>]*>", "", each).rstrip().endswith(".") for each in said)


def test_a_page_of_nothing_is_short_and_says_why() -> None:
    html, checked = page(nothing(), Span(MONDAY, MONDAY + timedelta(hours=1), 60))
    assert "No telemetry lies in this time." in html
    assert "svg" not in checked.count
    assert "nav" not in checked.count


def test_the_same_frames_give_the_same_page() -> None:
    frames, span = busy_week()
    assert render(frames, span, MADE_AT, "/srv/lake") == story_page("busy-week")[0]


def test_no_hostile_name_becomes_anything_but_a_text() -> None:
    html, checked = story_page("hostile")
    for name in HOSTILE:
        if set(name) & set(BREAKS) and "&" not in name:
            assert name not in html
    assert "\x00" not in html
    assert "\u202e" not in html
    assert "alert(1)" in html  # it is shown, as a text
    assert "default-src &#x27;none&#x27;" in html
    assert set(checked.count) <= {
        *("html", "head", "meta", "link", "title", "style", "body", "main", "header", "h1", "h2"),
        *("h3", "p", "nav", "a", "section", "dl", "div", "dt", "dd", "span", "bdi", "b", "small"),
        *("ul", "li", "figure", "figcaption", "svg", "path", "line", "text", "rect", "circle"),
        *("details", "summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "time"),
        *("footer", "script", "code", "title"),
    }


def test_the_script_is_the_one_that_the_policy_lets_run() -> None:
    html, _ = story_page("busy-week")
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;" in html


def test_figures_in_tables_are_those_of_the_frames() -> None:
    _, checked = story_page("busy-week")
    table = checked.tables["14 queues: sums and peaks of the whole time"]
    assert {row[0] for row in table[1:]} == set(BUSY)
    blamed = checked.tables["Who is blamed at each queue: the five most"]
    assert blamed[1][:3] == ["orders", "bulk-import", "1"]
    assert blamed[1][4] == "71\u202f%"
    alarms = checked.tables["Minutes of alarm by node"]
    assert alarms[1:] == [["n3", "memory alarm", "23.0"]]


def test_what_is_plotted_is_what_the_frames_say() -> None:
    frames, span = busy_week()
    html, _ = story_page("busy-week")
    panel = re.search(
        r'aria-label="Messages per second of queue metrics:.*?</figure>', html, re.DOTALL
    )
    assert panel is not None
    drawn = re.search(r'data-name="published/s" data-values="([^"]*)"', panel[0])
    assert drawn is not None
    rows = frames.queues[frames.queues["queue"] == "metrics"].sort_values("window_start")
    expected = (rows["published"] / span.step_s).tolist()
    assert [float(each) for each in drawn[1].split()] == pytest.approx(expected, rel=1e-3)
    stacked = re.search(r'data-name="bulk-import" data-values="([^"]*)"', html)
    assert stacked is not None
    blamed = frames.blame[frames.blame["origin_account"] == "user:bulk-import"]
    total = sum(float(each) for each in stacked[1].split()) * span.step_s * 1000
    assert total == pytest.approx(blamed["blamed_ms"].sum(), rel=1e-3)
