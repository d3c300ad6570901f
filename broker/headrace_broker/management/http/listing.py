"""Lists in parts: names that are looked for, order, pages and columns, as in RabbitMQ.

Rows are made ready in pieces, so that the node does other things meanwhile; of a page that is in
the order of the catalog only the rows on it are made ready at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from headrace_broker.catalog.pattern import matches, pattern_problem
from headrace_broker.management.http.answer import ApiError, bad_request, json_bytes
from headrace_broker.management.http.query import flag, number
from headrace_broker.management.http.route import JSON, Parameter
from headrace_broker.model.limits import (
    LISTING_COLUMNS_MAX,
    LISTING_TURN_ROWS,
    NAME_BYTES_MAX,
    PAGE_ROWS_MAX,
    SEARCH_SECONDS_MAX,
    SEARCH_TURN_SECONDS,
)

T = TypeVar("T")

PAGE_ROWS: Final = 100  # on a page unless asked otherwise; RabbitMQ's default
PAGES_MAX: Final = 1 << 31  # more than anything has

PARAMETERS: Final = (
    Parameter(
        "page",
        "Which page, from 1; with it the answer is an object with the rows in `items`.",
        {"type": "integer", "minimum": 1},
    ),
    Parameter(
        "page_size",
        f"Rows on a page; {PAGE_ROWS} unless given.",
        {"type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX},
    ),
    Parameter(
        "name",
        "Only rows whose name has this in it, whatever its case; needs `page`.",
        {"type": "string", "maxLength": NAME_BYTES_MAX},
    ),
    Parameter("use_regex", "`name` is a regular expression.", {"type": "boolean"}),
    Parameter("pagination", "As `page` = 1 where no page is given.", {"type": "boolean"}),
    Parameter("sort", "Field by which rows are ordered; dots lead into objects."),
    Parameter("sort_reverse", "The last one comes first.", {"type": "boolean"}),
    Parameter("columns", "Only these fields, with commas between; dots lead into objects."),
)
COLUMNS: Final = (PARAMETERS[-1],)


class Wanted(msgspec.Struct, frozen=True):
    """Requested part of a list."""

    page: int = 0  # 0 for all rows at once
    page_size: int = PAGE_ROWS
    name: str = ""  # what names have in them, "" for any
    use_regex: bool = False
    sort: tuple[str, ...] = ()  # field, as its steps; none for the order of the list
    sort_reverse: bool = False
    columns: tuple[tuple[str, ...], ...] = ()  # fields, each as its steps; none for all


def wanted(request: web.Request) -> Wanted:
    """Return what a request asks for; ApiError 400 where a parameter breaks its rule."""
    query = request.query
    paged = flag(request, "pagination") or "page" in query
    name, use_regex = query.get("name", ""), flag(request, "use_regex")
    if use_regex:
        problem = pattern_problem("name", _folded(name))
        if problem:
            raise bad_request(problem)
    return Wanted(
        page=number(request, "page", 1, 1, PAGES_MAX) if paged else 0,
        page_size=number(request, "page_size", PAGE_ROWS, 1, PAGE_ROWS_MAX),
        name=name,
        use_regex=use_regex,
        sort=_steps(query["sort"]) if query.get("sort") else (),
        sort_reverse=flag(request, "sort_reverse"),
        columns=columns(request),
    )


def _folded(name: str) -> str:
    """Return the expression with which rows are looked for, whatever the case of letters."""
    return f"(?i){name}"


def columns(request: web.Request) -> tuple[tuple[str, ...], ...]:
    """Return the fields that are asked for, none for all; ApiError 400 for too many."""
    names = [name for name in request.query.get("columns", "").split(",") if name]
    if len(names) > LISTING_COLUMNS_MAX:
        raise bad_request(f"columns: must be at most {LISTING_COLUMNS_MAX}, not {len(names)}")
    return tuple(_steps(name) for name in names)


def _steps(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))


def row_name(row: Any) -> str:
    """Return the name by which rows are looked for."""
    return str(row.name)


async def listing(
    request: web.Request,
    rows: Sequence[T],  # all that the asker may see, in order
    render: Callable[[Any], Mapping[str, Any]],  # gives the JSON object of a row
    *,
    name: Callable[[T], str] = row_name,
    # completes the rows that are shown, before they are rendered; it may ask other nodes, and leave
    # out what is gone
    prepare: Callable[[Sequence[T]], Awaitable[Sequence[Any]]] | None = None,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """Return the part of a list that a request asks for; ApiError 400 where there is none."""
    want = wanted(request)
    total = len(rows)
    found = await _named(rows, want, name) if want.page and want.name else rows
    shown = found if want.sort else _page(found, want)
    rendered = await _rendered(await prepare(shown) if prepare is not None else shown, render)
    if want.sort:
        rendered = list(_page(await _sorted(rendered, want), want))
    elif want.sort_reverse and not want.page:
        rendered.reverse()
    data = await _encoded(rendered, want.columns)
    if want.page:
        data = _wrapped(data, want, total, len(found), len(rendered))
    return web.Response(body=data, content_type=JSON, headers=headers)


async def _named(rows: Sequence[T], want: Wanted, name: Callable[[T], str]) -> Sequence[T]:
    """Return the rows whose name is looked for; ApiError 400 where the search takes too long."""
    pattern = _folded(want.name)
    letters = want.name.lower()

    def fits(row: T) -> bool:
        text = name(row)
        return matches(pattern, text) if want.use_regex else letters in text.lower()

    return await searched("name", rows, fits)


async def searched(field: str, rows: Iterable[T], fits: Callable[[T], bool]) -> list[T]:
    """Return the rows that fit, looked for in turns of SEARCH_TURN_SECONDS.

    Nobody may change the rows meanwhile. ApiError 400 for `field` where it takes too long.
    """
    found: list[T] = []
    spent = 0.0
    began = time.monotonic()
    for row in rows:
        if fits(row):
            found.append(row)
        turn = time.monotonic() - began
        if spent + turn > SEARCH_SECONDS_MAX:
            raise bad_request(f"{field}: the search takes more than {SEARCH_SECONDS_MAX} s")
        if turn > SEARCH_TURN_SECONDS:
            spent += turn
            await asyncio.sleep(0)
            began = time.monotonic()
    return found


def _page(rows: Sequence[T], want: Wanted) -> Sequence[T]:
    """Return the rows on the page; ApiError 400 where there are not so many pages."""
    if not want.page:
        return rows
    start = (want.page - 1) * want.page_size
    if start and start >= len(rows):
        raise ApiError(
            400,
            "page_out_of_range",
            f"page: must be at most {_page_count(len(rows), want)} with {want.page_size} rows "
            f"each, not {want.page}",
        )
    if want.sort_reverse and not want.sort:
        rows = rows[::-1]
    return rows[start : start + want.page_size]


def _page_count(rows: int, want: Wanted) -> int:
    return -(-rows // want.page_size)


async def _rendered(
    rows: Iterable[T], render: Callable[[T], Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    rendered: list[Mapping[str, Any]] = []
    for row in rows:
        rendered.append(render(row))
        if len(rendered) % LISTING_TURN_ROWS == 0:
            await asyncio.sleep(0)
    return rendered


async def _sorted(rows: list[Mapping[str, Any]], want: Wanted) -> list[Mapping[str, Any]]:
    keys = [_rank(_value(row, want.sort)) for row in rows]
    await asyncio.sleep(0)
    order = sorted(range(len(rows)), key=keys.__getitem__, reverse=want.sort_reverse)
    await asyncio.sleep(0)
    return [rows[at] for at in order]


def _value(row: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if not isinstance(row, Mapping):
            return None
        row = row.get(step)
    return row


def _rank(value: Any) -> tuple[int, Any]:
    """Return what values of any kind can be put in order by: nothing, numbers, texts, others."""
    if value is None:
        return 0, 0
    if isinstance(value, (int, float)):
        return 1, value
    if isinstance(value, str):
        return 2, value
    return 3, msgspec.json.encode(value)


def chosen(row: Mapping[str, Any], fields: tuple[tuple[str, ...], ...]) -> Mapping[str, Any]:
    """Return an object with the fields that are asked for and that it has; none asked for, all."""
    if not fields:
        return row
    found: dict[str, Any] = {}
    for steps in fields:
        value = _value(row, steps[:-1])
        if not isinstance(value, Mapping) or steps[-1] not in value:
            continue
        place = found
        for step in steps[:-1]:
            place = place.setdefault(step, {})
        place[steps[-1]] = value[steps[-1]]
    return found


async def _encoded(rows: list[Mapping[str, Any]], fields: tuple[tuple[str, ...], ...]) -> bytes:
    """Return rows as a JSON list."""
    pieces: list[bytes] = []
    for start in range(0, len(rows), LISTING_TURN_ROWS):
        some = [chosen(row, fields) for row in rows[start : start + LISTING_TURN_ROWS]]
        pieces.append(json_bytes(some)[1:-1])
        await asyncio.sleep(0)
    return b"[" + b",".join(pieces) + b"]"


def _wrapped(items: bytes, want: Wanted, total: int, found: int, shown: int) -> bytes:
    head = {
        "filtered_count": found,
        "item_count": shown,
        "page": want.page,
        "page_count": _page_count(found, want),
        "page_size": want.page_size,
        "total_count": total,
    }
    return json_bytes(head)[:-1] + b',"items":' + items + b"}"
