"""Texts that users chose stay texts."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.analysis_frames import HOSTILE

from headrace_pipeline.report.markup import Markup, cut, el, escape, join, name


class Seen(HTMLParser):
    """Notes tags and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(html: str) -> Seen:
    seen = Seen()
    seen.feed(html)
    seen.close()
    return seen


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Cf"))))
def test_any_text_is_read_back_as_it_was_and_makes_no_element(text: str) -> None:
    text = text.replace("\ufffe", "").replace("\uffff", "")
    seen = parsed(el("b", {"title": text}, text))
    assert seen.tags == ["b"]
    assert seen.attributes == [{"title": text}]
    assert "".join(seen.texts) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_makes_no_element(text: str) -> None:
    assert parsed(name(text)).tags == ["bdi"]
    assert parsed(el("i", {"data-x": text}, text, escape(text))).tags == ["i"]


def test_controls_and_what_turns_the_text_are_marked() -> None:
    assert escape("a\x00b\x1b\u0085\u202e\ud800") == "a\ufffdb\ufffd\ufffd\ufffd\ufffd"
    assert escape("a\tb\n") == "a\tb\n"


def test_markup_is_not_escaped_twice_and_none_is_nothing() -> None:
    inner = el("b", None, "<&>")
    assert el("p", {"class": None, "n": 1}, inner, None, 2) == (
        '<p n="1"><b>&lt;&amp;&gt;</b>2</p>'
    )
    assert join([inner, Markup("<br/>")]) == f"{inner}<br/>"
    assert el("rect", {"x": 0}) == '<rect x="0"/>'
    assert el("td") == "<td></td>"


def test_a_long_name_keeps_its_ends_and_says_itself_when_asked() -> None:
    text = "orders." + "x" * 100 + ".eu-west-1"
    assert cut(text, 30) == "orders.xxxxxxxxxxxx\u2026.eu-west-1"
    assert len(cut(text, 30)) == 30
    assert parsed(name(text, 30)).attributes[0]["title"] == text
    assert "title" not in parsed(name("orders", 30)).attributes[0]
    assert parsed(name("  ")).texts == ["(blank)"]
