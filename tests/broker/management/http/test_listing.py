"""Lists in pages, searched, in an order, with some columns."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.catalog.command import DeclareExchange
from headrace_broker.management.http import listing as listing_module
from headrace_broker.management.http.answer import ApiError
from headrace_broker.management.http.listing import searched
from headrace_broker.model.definition import Exchange

NAMES = [f"x{number:02d}" for number in range(25)]


@pytest.fixture
def filled(node):
    for name in NAMES:
        node.do(DeclareExchange(Exchange("/", name, "topic" if name > "x20" else "direct")))
    return node


def names(rows) -> list[str]:
    return [row["name"] for row in rows if row["name"].startswith("x")]


def test_without_parameters_all_rows_come_as_a_list(api, filled):
    status, body = api("GET", "/api/exchanges")
    assert (status, names(body)) == (200, NAMES)


def test_a_page_says_how_many_there_are(api, filled):
    status, body = api("GET", "/api/exchanges?page=2&page_size=10&name=x")
    assert status == 200
    assert names(body.pop("items")) == NAMES[10:20]
    assert body == {
        "filtered_count": 25,
        "item_count": 10,
        "page": 2,
        "page_count": 3,
        "page_size": 10,
        "total_count": 32,
    }


def test_the_first_page_of_nothing_is_empty(api, filled):
    status, body = api("GET", "/api/exchanges?page=1&name=nothing")
    assert (status, body["items"], body["page_count"], body["filtered_count"]) == (200, [], 0, 0)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("name=X1", NAMES[10:20]),
        ("name=1", ["x01", "x10", *NAMES[11:20], "x21"]),
        ("name=%5Ex.%5B34%5D%24&use_regex=true", ["x03", "x04", "x13", "x14", "x23", "x24"]),
        ("name=X0%5B1%5D&use_regex=true", ["x01"]),
        ("name=(&use_regex=false", []),
    ],
)
def test_names_are_searched_whatever_their_case(api, filled, query, expected):
    status, body = api("GET", f"/api/exchanges/%2F?page=1&{query}")
    assert (status, names(body["items"])) == (200, expected)


def test_order_and_columns(api, filled):
    _, body = api("GET", "/api/exchanges?sort=name&sort_reverse=true&columns=name")
    assert names(body) == NAMES[::-1]
    assert set(body[0]) == {"name"}
    _, body = api(
        "GET", "/api/exchanges?sort=type&sort_reverse=true&page=1&page_size=4&columns=type,name,no"
    )
    assert [row["type"] for row in body["items"]] == ["topic"] * 4
    assert set(body["items"][0]) == {"name", "type"}


def test_order_by_what_rows_do_not_have_leaves_them_as_they_are(api, filled):
    _, body = api("GET", "/api/exchanges?sort=message_stats.publish.x")
    assert names(body) == NAMES


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("page=0", "page"),
        ("page=x", "page"),
        ("page=99999999999999999999999", "page"),
        ("page=9", "page"),
        ("page=1&page_size=501", "page_size"),
        ("page=1&name=(&use_regex=true", "name"),
        ("page=1&name=(a%2B)%2B%5C1b&use_regex=true", "name"),
        ("page=1&use_regex=perhaps", "use_regex"),
        ("sort_reverse=x", "sort_reverse"),
        ("columns=" + "a," * 65, "columns"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(refused, filled, query, field):
    assert refused(400, "GET", f"/api/exchanges?{query}").startswith(f"{field}:")


def test_pages_are_asked_for_without_a_number_too(api, filled):
    _, body = api("GET", "/api/exchanges?pagination=true&page_size=3")
    assert (body["page"], body["item_count"]) == (1, 3)


def test_a_user_is_told_of_what_it_sees_only(api, filled):
    _, body = api("GET", "/api/exchanges?page=1", user="alice")
    assert (body["items"], body["total_count"]) == ([], 0)


def test_columns_lead_into_objects(api, filled):
    _, body = api("GET", "/api/vhosts?columns=metadata.tags,name")
    assert body == [{"metadata": {"tags": []}, "name": "/"}]


def test_a_search_leaves_the_turn_to_others_and_ends(monkeypatch):
    async def scenario():
        found = asyncio.create_task(searched("name", range(4), lambda row: row % 2 == 0))
        turns = 0
        while not found.done():
            await asyncio.sleep(0)
            turns += 1
        return turns, await found

    assert asyncio.run(scenario()) == (1, [0, 2])
    monkeypatch.setattr(listing_module, "SEARCH_TURN_SECONDS", -1.0)
    turns, found = asyncio.run(scenario())
    assert turns > 4
    assert found == [0, 2]
    monkeypatch.setattr(listing_module, "SEARCH_SECONDS_MAX", -1.0)
    with pytest.raises(ApiError, match="name: the search takes more than"):
        asyncio.run(scenario())
