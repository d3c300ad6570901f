"""Every gRPC method, HTTP route and AMQP method, for every kind of user, in every kind of vhost.

The table says who is refused. Who is refused is told the same whether the vhost and what is named
in it are there or not. A method or route that the table does not name fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from e2e.harness.access_askers import (
    AMQP_CALLS,
    GRPC_REQUESTS,
    AmqpAsker,
    Answer,
    GrpcAsker,
    HttpAsker,
    grpc_methods,
)
from e2e.harness.access_routes import HTTP_ROWS, OPEN_ROUTES
from e2e.harness.access_table import (
    AMQP,
    AMQP_ROWS,
    AMQP_UNJUDGED,
    GONE,
    GRPC,
    GRPC_ROWS,
    HTTP,
    MADE,
    NOTHING,
    OTHER,
    OWN,
    RIGHTS,
    THERE,
    THING,
    USERS,
    VHOSTS,
    Row,
)
from e2e.harness.cluster import Cluster
from pamqp import commands

from headrace_broker.cli.session.api_client import path_of
from headrace_broker.gateways.amqp.methods.handler import HANDLERS

ROWS: Final = {GRPC: GRPC_ROWS, HTTP: HTTP_ROWS, AMQP: AMQP_ROWS}
VHOST_MADE: Final = "vmade"
NAMES: Final = {**dict.fromkeys((THING, NOTHING), "NAME"), **dict.fromkeys(VHOSTS, "VHOST")}


class World:
    """The users and vhosts of the table, at one node of a cluster."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self._api = node.api

    def put(self, *path: str, **body: Any) -> None:
        answer = self._api.request("PUT", path_of(*path), body)
        assert answer.status in (201, 204), (path, answer)

    def drop(self, *path: str) -> None:
        answer = self._api.request("DELETE", path_of(*path))
        assert answer.status in (204, 404), (path, answer)

    def make(self) -> None:
        """Make everything that is to be there, as far as it is not."""
        self.put("vhosts", GONE)
        for name, kind in USERS.items():
            self.put("users", name, password=name, tags=list(kind.tags))
        self.put("users", THING, password=THING, tags=[])
        self.put("permissions", GONE, "evicted", **dict.fromkeys(RIGHTS, ".*"))
        self.drop("vhosts", GONE)
        for vhost in THERE:
            self.fill(vhost)

    def fill(self, vhost: str) -> None:
        """Create a vhost and its objects."""
        self.put("vhosts", vhost)
        self.put("permissions", vhost, "guest", **dict.fromkeys(RIGHTS, ".*"))
        for name, kind in USERS.items():
            rights = kind.rights(vhost)
            if rights is not None:
                patterns = {each: ".*" if each in rights else "" for each in RIGHTS}
                self.put("permissions", vhost, name, **patterns)
        self.put("queues", vhost, THING, arguments={"x-queue-type": "classic"})
        self.put("exchanges", vhost, THING, type="fanout")
        policy = {"pattern": "^none$", "definition": {"max-length": 9}}
        for kind_ in ("policies", "operator-policies"):
            self.put(kind_, vhost, THING, **policy)

    def remove(self) -> None:
        for vhost in (*THERE, GONE, VHOST_MADE):
            self.drop("vhosts", vhost)
        for user in (*USERS, THING, MADE):
            self.drop("users", user)


@pytest.fixture(scope="module")
def world(session_cluster: Cluster) -> Iterator[World]:
    """A cluster with the users and vhosts of the table."""
    found = World(session_cluster.node("n1"))
    found.make()
    yield found
    found.remove()
    session_cluster.close_connections()


@pytest.fixture
def ask(world: World) -> Iterator[Callable[[str], Any]]:
    """Gives who asks over a protocol."""
    kinds: dict[str, Any] = {AMQP: AmqpAsker, GRPC: GrpcAsker, HTTP: HttpAsker}
    opened: list[Any] = []

    def by(protocol: str) -> Any:
        opened.append(kinds[protocol](getattr(world.node, protocol)))
        return opened[-1]

    yield by
    for each in opened:
        each.close()


def asked(row: Row, user: str, vhost: str, protocol: str) -> list[tuple[str, str]]:
    """Return with which vhosts and names a user asks for an operation.

    Who is refused asks for what is there and for what is not; who is allowed, for what is not
    there, or is to be made.
    """
    if not row.allows(user, vhost, protocol):
        return [(vhost, THING), (vhost, NOTHING)]
    if row.makes:
        return [(vhost if row.place or vhost in THERE else VHOST_MADE, MADE)]
    return [(vhost, NOTHING)]


def spoken(answer: Answer) -> str:
    """Return an answer without the names that were asked for."""
    text = f"{answer.status} {answer.text}"
    for name, word in NAMES.items():
        text = text.replace(name, word)
    return text


def walk(world: World, asker: Any, row: Row, user: str) -> list[Any]:
    """Return what goes against the table where a user asks for an operation in all vhosts."""
    wrong: list[Any] = []
    told: dict[bool, set[str]] = defaultdict(set)
    forms: set[tuple[bool, str]] = set()
    for vhost in VHOSTS:
        allowed = row.allows(user, vhost, asker.protocol)
        for where, name in asked(row, user, vhost, asker.protocol):
            form = (allowed, asker.form(row.name, where, name))
            if form in forms:  # it names no vhost, or nothing else
                continue
            forms.add(form)
            answer = asker.ask(user, row.name, where, name)
            if answer.refused is allowed:
                wrong.append((row.name, user, where, name, answer))
            elif answer.refused:
                told[vhost == OWN].add(spoken(answer))
            elif row.ends and where in THERE:
                world.fill(where)
    return wrong + [(row.name, user, texts) for texts in told.values() if len(texts) > 1]


@pytest.mark.parametrize("protocol", [AMQP, GRPC, HTTP])
def test_every_operation_is_for_whom_the_table_says_and_refusals_tell_nothing(
    world: World, ask: Callable[[str], Any], protocol: str
) -> None:
    asker = ask(protocol)
    rows = ROWS[protocol].values()
    wrong = [each for row in rows for user in USERS for each in walk(world, asker, row, user)]
    assert not wrong, "\n".join(map(repr, wrong))


def test_the_table_names_every_method_of_grpc() -> None:
    named = {name.partition("?")[0] for name in GRPC_ROWS}
    assert named == grpc_methods()
    assert GRPC_ROWS.keys() == GRPC_REQUESTS.keys()


def test_the_table_names_every_route(world: World) -> None:
    document = world.node.api.request("GET", "/api/openapi.json").body
    plain = {name.replace(":[qe]", "") for name in HTTP_ROWS} | OPEN_ROUTES
    found = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
        if method in ("get", "put", "post", "delete")
    }
    assert found == plain


def test_the_table_names_every_method_of_amqp() -> None:
    methods: dict[int, Any] = {**commands.INDEX_MAPPING}
    kinds = {index: str(method.name) for index, method in methods.items()}
    served = {kinds[index] for index in HANDLERS}
    named = {name.partition("?")[0] for name in AMQP_ROWS}
    assert served <= named | AMQP_UNJUDGED
    assert named - served == {"Connection.Open", "Basic.Publish"}
    assert AMQP_CALLS.keys() == AMQP_ROWS.keys() - {"Connection.Open"}


def test_lists_hold_rows_of_vhosts_that_one_may_look_at(ask: Callable[[str], Any]) -> None:
    http = ask(HTTP)
    for name, row in HTTP_ROWS.items():
        if name.startswith("GET ") and not row.place and "{" not in name:
            for user, foreign in (("neighbour", OWN), ("manager", OTHER), ("foreign-manager", "")):
                answer = http.ask(user, name, OWN, NOTHING)
                hidden = [foreign] if foreign else [OWN, OTHER]
                assert not any(f'"{each}"' in answer.text for each in hidden), (name, user)
