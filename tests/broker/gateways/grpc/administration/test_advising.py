"""The service Advice, in front of a catalog."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.advice import CONSUMERS, VALUE_MAX, Advice
from headrace_broker.model.definition import Permission
from headrace_broker.model.limits import (
    ADVICE_FIGURES_MAX,
    ADVICE_ITEMS_MAX,
    ADVICE_MAX,
    ADVICE_VALID_MS_MAX,
)
from headrace_protos.broker.v1 import advice_pb2 as pb

NOW = 1_700_000_000_000
HOUR = 3_600_000


def item(**fields: Any) -> pb.AdviceItem:
    given: dict[str, Any] = {
        "vhost": "/",
        "queue": "q",
        "kind": pb.ADVICE_KIND_CONSUMERS,
        "value": 8,
        "current": 2,
        "reason": "two consumers are busy all the time",
        "figures": {"arrival_rate": 812.5, "service_rate": 104.1},
        "valid_until_ms": NOW + HOUR,
    }
    return pb.AdviceItem(**(given | fields))


def put(*items: pb.AdviceItem) -> pb.PutAdviceRequest:
    return pb.PutAdviceRequest(items=items)


@pytest.fixture
def advise(serve: Any, fake_node: Any) -> Any:
    """Runs a scenario where there are the queues `q` and `other`."""
    for queue in ("q", "other"):
        fake_node.do(commands.DeclareQueue("/", queue, "quorum"))
    return serve


def kept(client: Any, *items: pb.AdviceItem) -> None:
    """Keep advice of any author in the catalog."""
    advice = [
        Advice(
            *(each.vhost, each.queue, CONSUMERS, each.value, each.current, each.reason),
            *(each.valid_until_ms, each.author, client.node.now_ms),
        )
        for each in items
    ]
    client.node.do(commands.PutAdvice(tuple(advice), client.node.now_ms))


async def listed(client: Any, user: str = "guest", **fields: Any) -> list[Any]:
    response = await client.call("List", pb.ListAdviceRequest(**fields), user=user)
    return list(response.items)


def test_advice_is_kept_as_it_was_given_until_it_lapses(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        await client.call("Put", put(item()))
        given = item(author="guest", given_ms=NOW)
        assert await listed(client) == [given]
        client.node.now_ms += HOUR - 1
        assert await listed(client) == [given]
        client.node.now_ms += 1
        assert await listed(client) == []

    advise(scenario)


def test_newer_advice_of_the_same_author_takes_the_place_of_the_older(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        kept(client, item(author="somebody"))
        await client.call("Put", put(item()))
        await client.call("Put", put(item(value=9), item(kind=pb.ADVICE_KIND_PREFETCH)))
        found = [(each.kind, each.author, each.value) for each in await listed(client)]
        assert found == [
            (pb.ADVICE_KIND_CONSUMERS, "guest", 9),
            (pb.ADVICE_KIND_CONSUMERS, "somebody", 8),
            (pb.ADVICE_KIND_PREFETCH, "guest", 8),
        ]

    advise(scenario)


def test_advice_is_selected_and_taken_back(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        await client.call("Put", put(item(), item(queue="other")))
        kept(client, item(author="x"))
        assert len(await listed(client, vhost="/")) == 3
        assert [each.queue for each in await listed(client, vhost="/", queue="other")] == ["other"]
        assert [each.author for each in await listed(client, author="x")] == ["x"]
        delete = pb.DeleteAdviceRequest(vhost="/", queue="q", author="x")
        assert (await client.call("Delete", delete)).items == 1
        assert (await client.call("Delete", delete)).items == 0
        everything = pb.DeleteAdviceRequest(vhost="/", queue="q")
        assert (await client.call("Delete", everything)).items == 1
        assert [each.queue for each in await listed(client)] == ["other"]

    advise(scenario)


def test_author_is_the_user_where_none_is_named(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        await client.call("Put", put(item(author="")))
        assert [each.author for each in await listed(client)] == ["guest"]

    advise(scenario)


def test_advice_on_a_queue_goes_with_it(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        await client.call("Put", put(item()))
        client.node.do(commands.DeleteQueue("/", "q"))
        assert await listed(client) == []

    advise(scenario)


def test_advice_is_bounded_and_what_has_lapsed_makes_room(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        for first in range(0, ADVICE_MAX, ADVICE_ITEMS_MAX):
            authors = range(first, first + ADVICE_ITEMS_MAX)
            kept(client, *(item(author=str(each)) for each in authors))
        error = await client.refusal("Put", put(item()))
        assert (error.code, error.reason) == ("RESOURCE_EXHAUSTED", "TOO_MUCH_ADVICE")
        kept(client, item(author="0", value=9))  # takes a place, not room
        client.node.now_ms += HOUR
        later = client.node.now_ms + HOUR
        await client.call("Put", put(item(valid_until_ms=later)))
        assert [each.author for each in await listed(client)] == ["guest"]

    advise(scenario)


def test_what_comes_too_late_is_told_apart(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        error = await client.refusal("Put", put(item(valid_until_ms=NOW)))
        assert (error.code, error.reason) == ("FAILED_PRECONDITION", "ALREADY_LAPSED")
        assert error.fields[0][0] == "items[0].valid_until_ms"

    advise(scenario)


@pytest.mark.parametrize(
    ("request_message", "field"),
    [
        (put(), "items"),
        (put(*[item()] * (ADVICE_ITEMS_MAX + 1)), "items"),
        (put(item(), item(vhost="")), "items[1].vhost"),
        (put(item(queue="")), "items[0].queue"),
        (put(item(queue="x" * 256)), "items[0].queue"),
        (put(item(kind=pb.ADVICE_KIND_UNSPECIFIED)), "items[0].kind"),
        (put(item(kind=77)), "items[0].kind"),
        (put(item(value=VALUE_MAX + 1)), "items[0].value"),
        (put(item(current=VALUE_MAX + 1)), "items[0].current"),
        (put(item(reason="")), "items[0].reason"),
        (put(item(reason="x" * 513)), "items[0].reason"),
        (put(item(valid_until_ms=NOW + ADVICE_VALID_MS_MAX + 1)), "items[0].valid_until_ms"),
        (put(item(figures={"nan": float("nan")})), "items[0].figures"),
        (put(item(figures={"": 1.0})), "items[0].figures"),
        (put(item(figures={"x" * 33: 1.0})), "items[0].figures"),
        (
            put(item(figures={str(each): 1.0 for each in range(ADVICE_FIGURES_MAX + 1)})),
            "items[0].figures",
        ),
    ],
)
def test_field_of_advice_that_breaks_a_rule_is_named(
    advise: Any, request_message: Any, field: str
) -> None:
    async def scenario(client: Any) -> None:
        error = await client.refusal("Put", request_message)
        assert (error.code, error.fields[0][0]) == ("INVALID_ARGUMENT", field)
        assert await listed(client) == []

    advise(scenario)


@pytest.mark.parametrize(
    ("method", "request_message", "field"),
    [
        ("List", pb.ListAdviceRequest(queue="q"), "vhost"),
        ("List", pb.ListAdviceRequest(vhost="/", queue="x" * 256), "queue"),
        ("List", pb.ListAdviceRequest(author="x" * 256), "author"),
        ("Delete", pb.DeleteAdviceRequest(vhost="/"), "queue"),
        ("Delete", pb.DeleteAdviceRequest(vhost="", queue="q"), "vhost"),
        ("Delete", pb.DeleteAdviceRequest(vhost="/", queue="q", kind=77), "kind"),  # type: ignore[arg-type]
    ],
)
def test_field_of_a_question_that_breaks_a_rule_is_named(
    advise: Any, method: str, request_message: Any, field: str
) -> None:
    async def scenario(client: Any) -> None:
        error = await client.refusal(method, request_message)
        assert (error.code, error.fields[0][0]) == ("INVALID_ARGUMENT", field)

    advise(scenario)


def test_queue_and_vhost_must_be_there(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        for missing in (item(queue="none"), item(vhost="none")):
            assert (await client.refusal("Put", put(missing))).code == "NOT_FOUND"

    advise(scenario)


def test_advice_is_given_by_who_makes_policies_and_read_by_who_looks(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(commands.PutPermission(Permission("pol", "/", "", "", "")))
        await client.call("Put", put(item()), user="pol")
        for user in ("mon", "pol"):
            assert len(await listed(client, user)) == 1
        delete = pb.DeleteAdviceRequest(vhost="/", queue="q")
        for user in ("mon", "alice"):
            for method, request in (("Put", put(item())), ("Delete", delete)):
                error = await client.refusal(method, request, user=user)
                assert error.code == "PERMISSION_DENIED"
        client.node.do(commands.DeletePermission("pol", "/"))
        assert (await client.refusal("Put", put(item()), user="pol")).code == "PERMISSION_DENIED"
        assert await listed(client, "pol") == []

    advise(scenario)


def test_nobody_gives_advice_under_the_name_of_somebody_else(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(commands.PutPermission(Permission("pol", "/", "", "", "")))
        await client.call("Put", put(item(author="pol", value=3)), user="pol")
        await client.call("Put", put(item(author="", value=4)), user="pol")
        for user, author in (("guest", "pol"), ("pol", "guest"), ("pol", "nobody")):
            error = await client.refusal("Put", put(item(), item(author=author)), user=user)
            assert (error.code, error.reason) == ("PERMISSION_DENIED", "ACCESS_REFUSED")
        assert [(each.author, each.value) for each in await listed(client)] == [("pol", 4)]

    advise(scenario)


def test_advice_is_taken_back_by_its_author_and_by_administrators(advise: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(commands.PutPermission(Permission("pol", "/", "", "", "")))
        await client.call("Put", put(item()))
        await client.call("Put", put(item()), user="pol")
        for author in ("guest", "nobody"):  # alike, whether there is any
            foreign = pb.DeleteAdviceRequest(vhost="/", queue="q", author=author)
            error = await client.refusal("Delete", foreign, user="pol")
            assert (error.code, error.reason) == ("PERMISSION_DENIED", "ACCESS_REFUSED")
        own = pb.DeleteAdviceRequest(vhost="/", queue="q")
        assert (await client.call("Delete", own, user="pol")).items == 1
        assert [each.author for each in await listed(client)] == ["guest"]
        await client.call("Put", put(item()), user="pol")
        foreign = pb.DeleteAdviceRequest(vhost="/", queue="q", author="pol")
        assert (await client.call("Delete", foreign)).items == 1
        await client.call("Put", put(item()), user="pol")
        assert (await client.call("Delete", own)).items == 2
        assert await listed(client) == []

    advise(scenario)
