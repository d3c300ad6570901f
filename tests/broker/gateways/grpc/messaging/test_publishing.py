"""The call Publish against a real server with queues in memory."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.broker.gateways.grpc.publisher import Stream, bodies, message, pairs, until

from headrace_broker.catalog.event import BindingAdded
from headrace_broker.codecs.batch import message_properties
from headrace_broker.model.definition import Binding
from headrace_broker.model.flow import LIMIT_MEMORY
from headrace_broker.model.limits import MESSAGE_BYTES_MAX, STREAM_WINDOW_MESSAGES
from headrace_broker.model.stats import CLIENT_FIGURES
from headrace_protos.broker.v1.message_pb2 import Properties
from headrace_protos.broker.v1.messaging_pb2 import PublishRequest
from headrace_protos.broker.v1.value_pb2 import Array, Table, Value


def test_a_batch_is_published_and_confirmed_as_a_range(serve, broker) -> None:
    queue = broker.add_queue("q")

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", confirms=True).open()
        assert stream.opened.node == "n1"
        assert stream.opened.next_sequence == 1
        assert stream.opened.message_octets_max == MESSAGE_BYTES_MAX
        assert stream.opened.window.messages == STREAM_WINDOW_MESSAGES
        assert not stream.opened.window.HasField("stop")
        await stream.send(*[message(b"%d" % number) for number in range(5)])
        assert pairs((await stream.answer("confirmed")).ranges) == [(1, 5)]
        await stream.send(message())
        assert pairs((await stream.answer("confirmed")).ranges) == [(6, 6)]
        assert await stream.end() == []

    serve(scenario)
    assert len(queue.ready) == 6
    assert broker.connections == {}
    assert broker.clients[0].account.byte_count == 0


def test_without_confirms_nothing_is_answered_and_half_closing_waits_for_all(serve, broker) -> None:
    queue = broker.add_queue("q")

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q").open()
        for _ in range(3):
            await stream.send(message(), message())
        assert await stream.end() == []

    serve(scenario)
    assert len(queue.ready) == 6


def test_a_mandatory_message_without_a_queue_comes_back_before_its_confirm(serve, broker) -> None:
    broker.add_queue("q")

    async def scenario(served) -> None:
        stream = await Stream(served, mandatory=True, confirms=True).open()
        await stream.send(message(routing_key="q"), message(routing_key="nowhere"))
        found = await stream.end()
        back = [each.returned for each in found if each.HasField("returned")]
        assert [(each.sequence, each.code, each.text) for each in back] == [(2, 312, "NO_ROUTE")]
        done = [pair for each in found for pair in pairs(each.confirmed.ranges)]
        assert sorted(done) in ([(1, 1), (2, 2)], [(1, 2)])
        assert found.index(next(e for e in found if e.HasField("returned"))) < len(found) - 1

    serve(scenario)
    assert broker.caught_up == 1  # it might have been declared elsewhere a moment ago


@pytest.mark.parametrize(
    ("wrong", "code", "reason", "text"),
    [
        (message(exchange="none"), grpc.StatusCode.NOT_FOUND, "NOT_FOUND", "no exchange 'none'"),
        (
            message(properties=Properties(priority=256)),
            grpc.StatusCode.INVALID_ARGUMENT,
            "SYNTAX_ERROR",
            "properties.priority: must be 0 to 255",
        ),
        (
            message(properties=Properties(expiration="soon")),
            grpc.StatusCode.FAILED_PRECONDITION,
            "PRECONDITION_FAILED",
            "invalid expiration 'soon'",
        ),
        (
            message(properties=Properties(user_id="somebody")),
            grpc.StatusCode.FAILED_PRECONDITION,
            "PRECONDITION_FAILED",
            "user_id property set to 'somebody'",
        ),
        (
            message(
                properties=Properties(headers=Table(fields={"CC": Value(string="not an array")}))
            ),
            grpc.StatusCode.FAILED_PRECONDITION,
            "PRECONDITION_FAILED",
            "CC",
        ),
        (
            message(routing_key="k" * 256),
            grpc.StatusCode.INVALID_ARGUMENT,
            "SYNTAX_ERROR",
            "routing_key: must have at most 255 bytes",
        ),
        (
            message(bytes(MESSAGE_BYTES_MAX + 1)),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "CONTENT_TOO_LARGE",
            "body: must have at most",
        ),
    ],
)
def test_a_wrong_message_is_refused_and_those_around_it_are_not(
    serve, broker, wrong, code, reason, text
) -> None:
    queue = broker.add_queue("q")
    large = len(wrong.body) > 1

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", confirms=True).open()
        if large:
            await stream.send(message(b"a"))
            await stream.send(wrong)
            await stream.send(message(b"b"))
        else:
            await stream.send(message(b"a"), wrong, message(b"b"))
        found = await stream.end()
        refusals = [each.refused for each in found if each.HasField("refused")]
        assert len(refusals) == 1
        assert pairs(refusals[0].ranges) == [(2, 2)]
        assert refusals[0].code == code.value[0]
        assert refusals[0].reason == reason
        assert text in refusals[0].text
        done = [pair for each in found for pair in pairs(each.confirmed.ranges)]
        assert sorted(done) == [(1, 1), (3, 3)]

    serve(scenario)
    assert bodies(queue) == [b"a", b"b"]


def test_a_message_whose_route_costs_too_much_is_refused_alone(serve, broker) -> None:
    queue = broker.add_queue("q")
    broker.add_queue("r")
    patterns = ["#.a." * 62 + f"w{number}" for number in range(900)]
    bindings = [Binding("/", "amq.topic", "queue", "r", each) for each in patterns]
    bindings.append(Binding("/", "amq.topic", "queue", "q", "k"))
    broker.router.on_events([BindingAdded(each) for each in bindings])
    keys = [".".join("a" * 126) + f".{number}" for number in range(32)]
    copies = Value(array=Array(values=[Value(string=key) for key in keys]))
    costly = message(b"c", properties=Properties(headers=Table(fields={"CC": copies})))

    async def scenario(served) -> None:
        target = {"exchange": "amq.topic", "routing_key": "k"}
        stream = await Stream(served, **target, confirms=True).open()
        await stream.send(message(b"a"), costly, message(b"b"), costly)
        found = await stream.end()
        refusals = [each.refused for each in found if each.HasField("refused")]
        assert sorted(pair for each in refusals for pair in pairs(each.ranges)) == [(2, 2), (4, 4)]
        assert {each.reason for each in refusals} == {"PRECONDITION_FAILED"}
        assert "takes more than 524288 steps" in refusals[0].text

    serve(scenario)
    assert bodies(queue) == [b"a", b"b"]


def test_copies_go_where_cc_and_bcc_say_and_bcc_is_taken_out(serve, broker) -> None:
    queues = [broker.add_queue(name) for name in ("q", "copy", "blind")]
    headers = {
        name: Value(array=Array(values=[Value(string=to)]))
        for name, to in (("CC", "copy"), ("BCC", "blind"))
    }

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", confirms=True).open()
        await stream.send(message(properties=Properties(headers=Table(fields=headers))))
        assert pairs((await stream.answer("confirmed")).ranges) == [(1, 1)]

    serve(scenario)
    for queue in queues:
        assert len(queue.ready) == 1
        properties = message_properties(queue.ready[0].blob, 0, queue.ready[0].position)
        assert b"CC" in properties
        assert b"BCC" not in properties


def test_a_queue_that_is_full_refuses_those_messages_only(serve, broker) -> None:
    broker.add_queue("q").refusing = True  # the last one of each command

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q").open()
        await stream.send(message(), message(), message())
        answer = await stream.answer("refused")
        assert pairs(answer.ranges) == [(3, 3)]
        assert (answer.reason, answer.limit) == ("QUEUE_REFUSED", "max-length")
        assert answer.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]

    serve(scenario)


def test_a_queue_without_a_leader_refuses_and_the_stream_goes_on(serve, broker) -> None:
    broker.add_queue("q")
    broker.hold_confirms = True

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", confirms=True).open()
        await stream.send(message(), message())
        while not (broker.clients and broker.clients[-1].waiting):  # noqa: ASYNC110
            await asyncio.sleep(0)
        client = broker.clients[-1]
        client.listener.on_unreachable(client, "no leader")
        answer = await stream.answer("refused")
        assert pairs(answer.ranges) == [(1, 2)]
        assert (answer.reason, answer.text, answer.limit) == ("NO_LEADER", "no leader", "")
        assert answer.code == grpc.StatusCode.UNAVAILABLE.value[0]
        assert client.closed
        broker.hold_confirms = False
        await stream.send(message())
        answer = await stream.answer("confirmed")
        assert pairs(answer.ranges) == [(3, 3)]

    serve(scenario)


def test_a_publisher_whose_epoch_is_over_hears_that_it_is_fenced(serve, broker) -> None:
    queue = broker.add_queue("q")
    queue.refusing = queue.fencing = True  # the last one of each command

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", publisher_id="p", epoch=1).open()
        await stream.send(message(), message(), message())
        answer = await stream.answer("refused")
        assert pairs(answer.ranges) == [(3, 3)]
        assert (answer.reason, answer.limit) == ("FENCED", "")
        assert answer.code == grpc.StatusCode.ABORTED.value[0]
        assert await stream.end() == []

    serve(scenario)


def test_an_alarm_shuts_the_window_with_its_reason_and_its_end_opens_it(serve, broker) -> None:
    queue = broker.add_queue("q")

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", confirms=True).open()
        await stream.send(message(), message())
        await stream.answer("confirmed")
        broker.block("low on memory: node n2 uses much", LIMIT_MEMORY, "n2")
        window = await stream.answer("window")
        assert window.messages == 2
        assert window.stop.limit == "memory-alarm"
        assert window.stop.node == "n2"
        assert window.stop.text == "low on memory: node n2 uses much"
        assert next(iter(broker.connections.values())).state == "blocking"
        await stream.send(message(b"held"))  # it may not, and is not punished
        await until(lambda: next(iter(broker.connections.values())).buffered_messages)
        assert next(iter(broker.connections.values())).state == "blocked"
        assert len(queue.ready) == 2
        broker.block("")
        found: set[str] = set()
        while found != {"confirmed", "window"}:
            response = await stream.call.read()
            found.add(response.WhichOneof("kind"))
            if response.HasField("window"):
                assert response.window.messages >= 3 + STREAM_WINDOW_MESSAGES // 2
                assert not response.window.HasField("stop")
        await stream.end()

    serve(scenario)
    assert len(queue.ready) == 3


def test_a_stream_that_opens_during_an_alarm_hears_of_it(serve, broker) -> None:
    broker.block("low on disk")

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q").open()
        assert stream.opened.window.messages == 0
        assert stream.opened.window.stop.limit == "disk-alarm"
        stream.call.cancel()

    serve(scenario)


def test_a_client_that_ignores_its_window_is_not_read_and_not_disconnected(serve, broker) -> None:
    queue = broker.add_queue("q")
    broker.block("low on disk")

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", confirms=True).open()
        body = bytes(100_000)
        sending = asyncio.create_task(flood(stream, body, 200))
        info = next(iter(broker.connections.values()))
        await until(lambda: info.buffered_bytes)
        most = 0
        for _ in range(1000):
            await asyncio.sleep(0)
            most = max(most, info.buffered_bytes)
        assert not sending.done()  # 20 MB do not fit into what lies between
        assert 0 < most < 2_000_000  # what was on its way, and no more
        broker.block("")
        await sending
        count = 0
        while count < 200:
            answer = await stream.answer("confirmed")
            count += sum(last - first + 1 for first, last in pairs(answer.ranges))
        await stream.end()

    serve(scenario)
    assert len(queue.ready) == 200


async def flood(stream, body, count):
    for _ in range(count):
        await stream.send(message(body))


def test_a_debt_stops_the_stream_until_it_is_repaid(serve, broker) -> None:
    broker.add_queue("q")
    broker.hold_loans = True
    broker.flow.account_messages = 9

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", confirms=True).open()
        await stream.send(*[message() for _ in range(10)])
        await stream.answer("confirmed")
        await stream.send(message())
        window = await stream.answer("window")
        assert window.stop.limit == "account"
        assert window.messages == 11
        assert window.stop.queue == "q"
        broker.repay()
        assert pairs((await stream.answer("confirmed")).ranges) == [(11, 11)]
        broker.hold_loans = False

    serve(scenario)


def test_a_cancelled_stream_hands_over_what_it_holds_if_there_is_room(serve, broker) -> None:
    queue = broker.add_queue("q")
    broker.hold_loans = True
    broker.flow.account_messages = 1

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", confirms=True).open()
        await stream.send(message(b"1"), message(b"2"))
        await stream.answer("confirmed")
        await stream.send(message(b"3"))
        await until(lambda: next(iter(broker.connections.values())).buffered_messages)
        stream.call.cancel()
        await until(lambda: not broker.connections)

    serve(scenario)
    assert bodies(queue) == [b"1", b"2", b"3"]
    broker.repay()
    assert broker.clients[0].account.byte_count == 0


def test_a_stream_is_listed_and_may_be_closed_from_outside(serve, broker) -> None:
    broker.add_queue("q")

    async def scenario(served) -> None:
        stream = await Stream(served, routing_key="q", confirms=True, name="a client").open()
        info = next(iter(broker.connections.values()))
        assert (info.user, info.vhost, info.protocol, info.kind) == (
            "guest",
            "/",
            "gRPC Publish",
            "stream",
        )
        assert info.name.startswith("127.0.0.1:")
        assert info.name.endswith(" -> 127.0.0.1:1")
        assert info.client_properties == {"connection_name": "a client"}
        channels = info.control.channels(0)
        assert [(each.number, each.confirm) for each in channels] == [(1, True)]
        info.control.limits_changed()
        info.control.shut_down("Closed via management API")
        error, detail, _ = await stream.failure()
        assert error.code() is grpc.StatusCode.ABORTED
        assert error.details() == "Closed via management API"
        assert detail.reason == "CONNECTION_FORCED"

    serve(scenario)


def test_what_passes_a_stream_is_counted_as_on_a_channel(serve, broker) -> None:
    broker.add_queue("q")

    async def scenario(served) -> None:
        stream = await Stream(served, confirms=True, mandatory=True).open()
        info = next(iter(broker.connections.values()))
        lost = message(routing_key="nobody")
        await stream.send(message(routing_key="q"), message(routing_key="q"), lost)
        await stream.end()
        counts = dict(zip(CLIENT_FIGURES, info.traffic(), strict=True))
        assert {name: count for name, count in counts.items() if count} == {
            "publish": 3,
            "confirm": 3,
            "return_unroutable": 1,
        }

    serve(scenario)


def test_a_catalog_without_a_quorum_refuses_what_it_cannot_place(serve, broker) -> None:
    broker.add_queue("q")
    broker.lost = True

    async def scenario(served) -> None:
        stream = await Stream(served, confirms=True).open()
        await stream.send(message(routing_key="unknown"), message(routing_key="q"))
        found = await stream.end()
        refusal = next(each.refused for each in found if each.HasField("refused"))
        assert pairs(refusal.ranges) == [(1, 1)]
        assert refusal.code == grpc.StatusCode.UNAVAILABLE.value[0]
        done = [pair for each in found for pair in pairs(each.confirmed.ranges)]
        assert done == [(2, 2)]

    serve(scenario)


def test_a_named_publisher_sends_its_numbers_on_to_the_queue(serve, broker) -> None:
    broker.add_queue("q")

    async def scenario(served) -> None:
        more = {"publisher_id": "p", "epoch": 3, "routing_key": "q", "confirms": True}
        stream = await Stream(served, **more).open()
        await stream.send(message(), message(), first=5)
        assert pairs((await stream.answer("confirmed")).ranges) == [(5, 6)]
        await stream.send(message(), first=9)
        assert pairs((await stream.answer("confirmed")).ranges) == [(9, 9)]
        await stream.send(message(), first=9)
        error, info, _ = await stream.failure()
        assert info.reason == "SEQUENCE_GAP"
        assert error.details() == "batch.first_sequence: must be 10 or higher"

    serve(scenario)
    assert broker.clients[0].named == [(b"p", 3, [5, 6]), (b"p", 3, [9])]


@pytest.mark.parametrize(
    "opening",
    [{"epoch": 1}, {"publisher_id": "p" * 256}, {"publisher_id": "p", "epoch": (1 << 64) - 1}],
)
def test_a_publisher_that_cannot_be_is_refused(serve, opening) -> None:
    async def scenario(served) -> None:
        stream = Stream(served, **opening)
        await stream.call.write(PublishRequest(open=stream.opening))
        error, _, fields = await stream.failure()
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert fields == ["open.publisher_id"]

    serve(scenario)
