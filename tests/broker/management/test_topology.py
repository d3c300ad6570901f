"""/api/queues, /api/exchanges and /api/bindings."""

from __future__ import annotations

import pytest

from headrace_broker.catalog.command import Bind, DeclareQueue, PutPermission, PutTopicPermission
from headrace_broker.model.definition import Binding, Permission, TopicPermission
from headrace_broker.model.flow_status import QueueFlow
from headrace_broker.model.stats import ExchangeStats, QueueStats, Samples
from headrace_broker.model.status import QueueCounts, ReplicaStatus

QUEUE = "/api/queues/%2F/q"
ENDS = "/api/bindings/%2F/e/amq.topic/q/q"


def test_a_queue_is_declared_shown_purged_and_deleted(api, node):
    assert api("PUT", QUEUE, {"arguments": {"x-queue-type": "quorum"}}) == (201, None)
    assert api("PUT", QUEUE, {"durable": "true"}) == (204, None)
    node.messages["q"] = 7
    status, shown = api("GET", QUEUE)
    assert (status, shown["type"], shown["messages"], shown["policy"]) == (200, "quorum", 7, None)
    assert api("DELETE", f"{QUEUE}/contents") == (204, None)
    assert node.purged == ["q"]
    assert api("DELETE", QUEUE) == (204, None)
    assert api("GET", QUEUE)[0] == 404
    for path in (QUEUE, f"{QUEUE}/contents"):
        assert api("DELETE", path) == (
            404,
            {"error": "not_found", "reason": "no queue 'q' in vhost '/'"},
        )


def test_leaders_elsewhere_are_asked_for_counts_and_a_silent_one_is_left_out(api, node):
    for name in ("elsewhere", "here", "silent"):
        node.do(DeclareQueue("/", name, "classic"))
    node.here.add("here")
    node.messages["elsewhere"] = 3
    rows = api("GET", "/api/queues")[1]
    assert [(row["name"], row.get("messages")) for row in rows] == [
        ("elsewhere", 3),
        ("here", 0),
        ("silent", None),
    ]
    assert rows[0]["leader"] == rows[0]["node"] == "far"
    assert api("GET", "/api/queues/%2F")[1] == rows
    assert "messages" not in api("GET", "/api/queues/%2F/silent")[1]


def test_leaders_tell_of_queues_elsewhere_all_at_once(api, node):
    for name in ("elsewhere", "here", "older", "silent"):
        node.do(DeclareQueue("/", name, "classic"))
    node.here.add("here")
    node.messages["older"] = 3  # its leader's node is of an older release
    groups = {queue.name: queue.group for queue in node.catalog.queues()}
    members = (ReplicaStatus("n2", "2", "voter"), ReplicaStatus("n3:1", "67.a", "learner"))
    counts = QueueCounts(5, 1, 2, delayed=4)
    moved: Samples = [(1000, 1, 0, 0, 0, 0, 0), (6000, 1, 0, 10, 0, 0, 0)]
    node.stats.rows = [
        QueueStats(groups["elsewhere"], [], [], "n2", counts, members),
        QueueStats(groups["older"], moved),
    ]
    rows = {row["name"]: row for row in api("GET", "/api/queues")[1]}
    [question] = node.stats.asked
    assert question.current == tuple(groups[name] for name in ("elsewhere", "older", "silent"))
    assert node.asked_leaders == ["older", "silent"]
    told = rows["elsewhere"]
    assert (told["leader"], told["messages"], told["messages_ready"]) == ("n2", 10, 5)
    assert told["replicas"] == [
        {"node": "n2", "member": "2", "role": "voter"},
        {"node": "n3:1", "member": "67.a", "role": "learner"},
    ]
    assert rows["older"]["leader"] == "far"
    assert "replicas" not in rows["older"], "not known"
    assert api("GET", "/api/queues/%2F/here")[0] == 200
    assert node.stats.asked[-1].current == ()
    node.messages.clear()
    [alone] = [api("GET", "/api/queues/%2F/elsewhere")[1]]
    assert node.stats.asked[-1].current == (groups["elsewhere"],)
    assert (alone["replicas"], alone["consumers"]) == (told["replicas"], 2)


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("%2F/q", {"durable": 3}, 400, "durable: expected `bool`, got `int`"),
        ("%2F/q", {"arguments": []}, 400, "arguments: expected `object`, got `array`"),
        ("%2F/q", {"arguments": {"x-max-length": -1}}, 400, "PRECONDITION_FAILED - "),
        ("%2F/amq.q", {}, 403, "queue name 'amq.q' contains reserved prefix 'amq.*'"),
        ("v/q", {}, 404, "no vhost 'v'"),
    ],
)
def test_a_bad_queue_is_refused(refused, path, body, status, reason):
    assert refused(status, "PUT", f"/api/queues/{path}", body).startswith(reason)


def test_a_queue_that_differs_or_is_in_use_is_a_bad_request(api, node, refused):
    api("PUT", QUEUE, {"durable": True})
    node.messages["q"] = 1
    assert "inequivalent arg 'durable'" in refused(400, "PUT", QUEUE, {"durable": False})
    assert "not empty" in refused(400, "DELETE", f"{QUEUE}?if-empty=true")
    reason = refused(400, "DELETE", f"{QUEUE}?if-unused=yes")
    assert reason == "if-unused: must be true or false, not 'yes'"
    assert api("DELETE", f"{QUEUE}?if-unused=true") == (204, None)


def test_an_exclusive_queue_is_left_to_its_connection(node, refused):
    node.do(DeclareQueue("/", "q", "classic", durable=False, exclusive=True, owner="c1"))
    for path in (QUEUE, f"{QUEUE}/contents"):
        assert "is exclusive" in refused(400, "DELETE", path)


def test_an_exchange_is_declared_shown_and_deleted(api, refused):
    path = "/api/exchanges/%2F/x"
    assert api("PUT", path, {"type": "fanout"}) == (201, None)
    assert api("PUT", path, {"type": "fanout"}) == (204, None)
    assert api("GET", path)[1] == {
        "vhost": "/",
        "name": "x",
        "type": "fanout",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
        "unknown_arguments": [],
        "policy": None,
        "message_stats": {
            "publish_in": 0,
            "publish_in_details": {"rate": 0.0},
            "publish_out": 0,
            "publish_out_details": {"rate": 0.0},
        },
    }
    names = [row["name"] for row in api("GET", "/api/exchanges/%2F")[1]]
    assert names[0] == ""
    assert {"amq.topic", "x"} < set(names)
    assert "inequivalent arg 'type'" in refused(400, "PUT", path, {"type": "direct"})
    assert api("DELETE", path) == (204, None)
    assert refused(404, "DELETE", path) == "no exchange 'x' in vhost '/'"
    assert refused(400, "PUT", path, {}) == "type: is missing"
    assert "reserved" in refused(403, "PUT", "/api/exchanges/%2F/amq.x", {"type": "direct"})


def test_what_is_published_to_an_exchange_is_summed_over_the_nodes(api, node):
    before, after = (1_000, 10, 20), (6_000, 20, 50)
    node.stats.rows = [
        ExchangeStats("/", "amq.topic", [before, after]),
        ExchangeStats("/", "amq.topic", [before, after]),
        ExchangeStats("/", "amq.fanout", [before, after]),
    ]
    stats = api("GET", "/api/exchanges/%2F/amq.topic")[1]["message_stats"]
    assert (stats["publish_in"], stats["publish_in_details"]) == (40, {"rate": 4.0})
    assert (stats["publish_out"], stats["publish_out_details"]) == (100, {"rate": 12.0})
    assert node.stats.asked[-1].exchanges == (("/", "amq.topic"),)
    rows = {row["name"]: row for row in api("GET", "/api/exchanges/%2F")[1]}
    assert rows["amq.fanout"]["message_stats"]["publish_in"] == 20
    assert rows["amq.direct"]["message_stats"]["publish_in"] == 0


@pytest.mark.parametrize("name", ["amq.topic", "amq.default"])
def test_default_exchanges_are_there_to_stay(api, refused, name):
    assert api("GET", f"/api/exchanges/%2F/{name}")[0] == 200
    assert refused(400, "DELETE", f"/api/exchanges/%2F/{name}")


def test_bindings_are_made_shown_and_deleted(api):
    api("PUT", QUEUE)
    assert api("POST", ENDS, {"routing_key": "a.b/c"})[0] == 201
    assert api.headers["Location"].endswith("/a.b%252Fc")
    assert api("POST", ENDS, {"routing_key": "k", "arguments": {"n": 1}})[0] == 201
    with_arguments = api.headers["Location"].rpartition("/")[2]
    assert api("POST", ENDS)[0] == 201
    rows = api("GET", ENDS)[1]
    keys = [row["properties_key"] for row in rows]
    assert keys == ["a.b%2Fc", with_arguments, "~"]
    assert rows[1]["arguments"] == {"n": 1}
    assert api("GET", f"{ENDS}/{with_arguments}")[1] == rows[1]
    own = [row["source"] for row in api("GET", f"{QUEUE}/bindings")[1]]
    assert own == ["", "amq.topic", "amq.topic", "amq.topic"]
    assert len(api("GET", "/api/bindings")[1]) == len(api("GET", "/api/bindings/%2F")[1]) == 4
    assert api("GET", "/api/exchanges/%2F/amq.topic/bindings/source")[1] == rows
    assert api("DELETE", f"{ENDS}/a.b%252Fc") == (204, None)
    assert api("DELETE", f"{ENDS}/{with_arguments}") == (204, None)
    assert api("DELETE", f"{ENDS}/~") == (204, None)
    assert api("DELETE", f"{ENDS}/~")[0] == 404
    assert api("GET", ENDS) == (200, [])


def test_exchanges_are_bound_to_each_other(api):
    path = "/api/bindings/%2F/e/amq.topic/e/amq.fanout"
    assert api("POST", path, {"routing_key": "#"})[0] == 201
    [row] = api("GET", "/api/exchanges/%2F/amq.fanout/bindings/destination")[1]
    assert (row["source"], row["destination_type"]) == ("amq.topic", "exchange")


def test_ends_that_are_not_there_and_the_default_exchange_are_refused(api, refused):
    assert refused(404, "POST", ENDS) == "no queue 'q' in vhost '/'"
    api("PUT", QUEUE)
    missing = "/api/bindings/%2F/e/gone/q/q"
    assert refused(404, "POST", missing) == "no exchange 'gone' in vhost '/'"
    default = "/api/bindings/%2F/e/amq.default/q/q"
    assert refused(400, "POST", default) == "source: the default exchange has fixed bindings"
    assert [row["routing_key"] for row in api("GET", default)[1]] == ["q"]
    assert refused(400, "DELETE", f"{default}/q").startswith("source: ")


def test_permissions_decide_what_may_be_changed(api, node, refused):
    api("PUT", QUEUE)
    node.do(PutPermission(Permission("alice", "/", "^mine", "^mine", "^mine")))
    assert api("PUT", "/api/queues/%2F/mine", user="alice") == (201, None)
    reason = refused(403, "PUT", "/api/queues/%2F/q", user="alice")
    assert reason == "configure access to queue 'q' in vhost '/' refused for user 'alice'"
    for method, path in (("DELETE", QUEUE), ("DELETE", f"{QUEUE}/contents"), ("POST", ENDS)):
        assert "refused for user 'alice'" in refused(403, method, path, user="alice")
    assert api("GET", QUEUE, user="alice")[0] == 200
    assert refused(403, "GET", QUEUE, user="pol") == "access to vhost '/' refused for user 'pol'"
    assert api("GET", "/api/queues", user="pol") == (200, [])
    assert api("GET", "/api/exchanges", user="pol") == (200, [])
    assert api("GET", "/api/bindings", user="pol") == (200, [])


def test_who_may_not_look_is_not_told_what_is_there(api, node, refused):
    node.do(PutPermission(Permission("alice", "/", "", "", "")))
    text: dict[tuple[str, str], set[str]] = {}
    for name in ("q", "gone"):
        for method, path in (
            ("GET", ""),
            ("GET", "/members"),
            ("GET", "/lease-groups"),
            ("DELETE", ""),
            ("DELETE", "/contents"),
            ("DELETE", "/lease-groups/g"),
            ("POST", "/actions"),
        ):
            reason = refused(403, method, f"/api/queues/%2F/{name}{path}", {}, user="pol")
            text.setdefault((method, path), set()).add(reason)
            if method != "GET":
                reason = refused(403, method, f"/api/queues/%2F/{name}{path}", {}, user="alice")
                assert "refused for user 'alice'" in reason
        if name == "q":
            api("PUT", QUEUE)
    assert set(map(len, text.values())) == {1}


def test_topic_permissions_decide_with_which_routing_keys_one_binds(api, node, refused):
    api("PUT", QUEUE)
    node.do(PutPermission(Permission("alice", "/", "", ".*", ".*")))
    node.do(PutTopicPermission(TopicPermission("alice", "/", "amq.topic", "", "^a")))
    ends = "/api/bindings/%2F/e/amq.topic/q/q"
    for key in ("a.b", "b"):
        assert api("POST", ends, {"routing_key": key})[0] == 201
    assert api("DELETE", f"{ends}/a.b", user="alice")[0] == 204
    assert api("POST", ends, {"routing_key": "a"}, user="alice")[0] == 201
    for method, path, body in (("POST", ends, {"routing_key": "b"}), ("DELETE", f"{ends}/b", None)):
        reason = refused(403, method, path, body, user="alice")
        assert reason.startswith("read access to topic 'b' in exchange 'amq.topic'")


def test_a_new_queue_or_exchange_needs_leave_to_publish_where_it_sends_messages(api, node, refused):
    node.do(PutPermission(Permission("alice", "/", "^mine", "^mine", "^mine")))
    for path, body, kind in (
        ("/api/queues/%2F/mine", {"arguments": {"x-dead-letter-exchange": "amq.topic"}}, "queue"),
        (
            "/api/exchanges/%2F/mine",
            {"type": "direct", "arguments": {"alternate-exchange": "amq.topic"}},
            "exchange",
        ),
    ):
        reason = refused(403, "PUT", path, body, user="alice")
        assert (
            reason == "write access to exchange 'amq.topic' in vhost '/' refused for user 'alice'"
        )
        node.do(PutPermission(Permission("alice", "/", "^mine", "topic", "")))
        reason = refused(403, "PUT", path, body, user="alice")
        assert reason.startswith(f"read access to {kind} 'mine' in vhost '/' refused")
        node.do(PutPermission(Permission("alice", "/", "^mine", "topic", "^mine")))
        assert api("PUT", path, body, user="alice") == (201, None)
        node.do(PutPermission(Permission("alice", "/", "^mine", "^mine", "^mine")))
        assert api("PUT", path, body, user="alice") == (204, None)


def test_an_exclusive_queue_is_bound_by_its_connection_only(api, node, refused):
    node.do(DeclareQueue("/", "q", "classic", durable=False, exclusive=True, owner="c1"))
    assert "is exclusive" in refused(400, "POST", ENDS, {"routing_key": "k"})
    node.do(Bind(Binding("/", "amq.topic", "queue", "q", "k", {})))
    assert "is exclusive" in refused(400, "DELETE", f"{ENDS}/k")
    assert len(api("GET", ENDS)[1]) == 1


def test_a_queue_is_listed_with_what_moves_in_it(api, node):
    for name in ("calm", "orders"):
        node.do(DeclareQueue("/", name, "quorum"))
    group = node.view.queue("/", "orders").group
    node.flow_report.flows[group] = QueueFlow(
        "/", "orders", group, "n1",
        saturated=True, deferred=9, arrived=(1.0, 2.0, 3.0), settled=(0.0, 0.54, 0.0),
    )  # fmt: skip
    node.here = {"calm", "orders"}
    calm, orders = api("GET", "/api/queues")[1]
    assert (calm["state"], orders["state"]) == ("running", "flow")
    assert calm["flow"]["arrived"] == {"last_1s": 0.0, "last_10s": 0.0, "last_60s": 0.0}
    assert orders["flow"]["arrived"] == {"last_1s": 1.0, "last_10s": 2.0, "last_60s": 3.0}
    assert (orders["flow"]["saturated"], orders["flow"]["messages_deferred"]) == (True, 9)
    node.messages["orders"] = 3
    assert api("GET", "/api/queues/%2F/orders")[1]["state"] == "flow"
