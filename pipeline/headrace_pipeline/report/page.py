"""The page: one file without requests to other hosts."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from importlib import resources
from typing import Final

from headrace_pipeline.report import facts as found
from headrace_pipeline.report import quantity, words
from headrace_pipeline.report.facts import Facts
from headrace_pipeline.report.frames import Frames, Span
from headrace_pipeline.report.markup import Markup, el
from headrace_pipeline.report.section_blocked import blocked
from headrace_pipeline.report.section_capacity import advice, capacity
from headrace_pipeline.report.section_coverage import coverage
from headrace_pipeline.report.section_load import load
from headrace_pipeline.report.section_strips import alarms, bottlenecks

# Sections, in the order of the page, with their names in its contents.
SECTIONS: Final = (
    ("Load", load),
    ("Blocked time", blocked),
    ("Bottlenecks", bottlenecks),
    ("Alarms", alarms),
    ("Limits", capacity),
    ("Consumers", advice),
    ("Coverage", coverage),
)


def render(frames: Frames, span: Span, made_at: datetime, source: str) -> str:
    """Return a report as HTML; the same arguments give the same bytes.

    Args:
        frames: rows of the analysis; those outside of the span are left out.
        span: what the report is about.
        made_at: when it is made, UTC.
        source: where the rows came from, in words.
    """
    facts = found.find(frames, span)
    sections = [make(facts) for _, make in SECTIONS if facts.told]
    summary = words.section(words.summary(facts))
    main = el("main", None, _head(facts), summary.page(), *(s.page() for s in sections))
    foot = f"Made {quantity.instant(made_at)} {made_at:%Y} UTC by headrace-pipeline from {source}."
    script = _file("page.js")
    body = el("body", None, main, el("footer", None, foot), el("script", None, Markup(script)))
    html = el("html", {"lang": "en"}, _meta(facts, script), body)
    return f"<!DOCTYPE html>\n{html}\n"


def title_of(span: Span) -> str:
    """Return what the page is called."""
    return f"Headrace flow and capacity, {_when(span)}"


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _meta(facts: Facts, script: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return el(
        "head",
        None,
        el("meta", {"charset": "utf-8"}),
        el("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        el("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        el("meta", {"name": "color-scheme", "content": "light dark"}),
        el("link", {"rel": "icon", "href": "data:,"}),
        el("title", None, title_of(facts.span)),
        el("style", None, Markup(_file("page.css"))),
    )


def _head(facts: Facts) -> Markup:
    span = facts.span
    queues = len(facts.frames.queues.drop_duplicates(["vhost", "queue"]))
    nodes = facts.frames.nodes["node"].nunique()
    said = (
        f"{quantity.many(nodes, 'node')}, {quantity.many(queues, 'queue')}; times are UTC; "
        f"a point of a plot is {quantity.duration(span.step_s)} long"
    )
    links = [el("a", {"href": f"#{key}"}, text) for key, text in _contents() if facts.told]
    return el(
        "header",
        None,
        el("h1", None, "Flow and capacity ", el("small", None, _when(span))),
        el("p", {"class": "note"}, said),
        el("nav", {"aria-label": "Contents"}, *links) if links else None,
    )


def _when(span: Span) -> str:
    return f"{quantity.span(span.start, span.end)}, {span.end:%Y}"


def _contents() -> list[tuple[str, str]]:
    return [(make.__name__, text) for text, make in SECTIONS]
