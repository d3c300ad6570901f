"""The client: one cluster, one user, any number of publishers, consumers and calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from headrace_client.advice import Advice
from headrace_client.consumer import Consumer, ConsumerOptions
from headrace_client.delivery import Delivery
from headrace_client.endpoint import Tls, parse_endpoints
from headrace_client.error import AccessRefusedError
from headrace_client.export import Export
from headrace_client.flow import Flow
from headrace_client.flow_value import Alarm, Explanation
from headrace_client.lease import LeaseGroup
from headrace_client.limits import (
    CALL_SECONDS,
    GET_MESSAGES_MAX,
    OPEN_SECONDS,
    PREFETCH,
    UNCONFIRMED_BYTES_MAX,
    UNCONFIRMED_MESSAGES_MAX,
)
from headrace_client.link import Link
from headrace_client.publisher import Publisher, PublisherOptions
from headrace_client.topology import Topology
from headrace_client.watch import Watch
from headrace_protos.broker.v1.messaging_pb2 import GetRequest
from headrace_protos.broker.v1.messaging_pb2_grpc import MessagingStub
from headrace_protos.broker.v1.topology_pb2 import DescribeExchangeRequest
from headrace_protos.broker.v1.topology_pb2_grpc import TopologyStub

DEFAULT_EXCHANGE = "amq.default"


class Client:
    """Made by `connect`; an asynchronous context manager that closes it.

    It belongs to the event loop that it was made in, and to its process.
    """

    def __init__(self, link: Link, vhost: str) -> None:
        self.link = link  # for services that have no part of their own here: `link.call`
        self.vhost = vhost  # where none is given
        self.topology = Topology(link, vhost)  # what the cluster defines
        self.flow = Flow(link, vhost)  # flow control: why, top, watches, limits
        # logs that the brokers keep: archives of queues, and telemetry
        self.export = Export(link, vhost)
        self.advice = Advice(link, vhost)  # what is advised on queues

    @classmethod
    async def connect(
        cls,
        endpoints: str | Iterable[str],
        *,
        user: str | None = "guest",
        password: str = "guest",  # noqa: S107 - everybody knows it, and it works on loopback only
        vhost: str = "/",
        tls: Tls | None = None,
        timeout_s: float = CALL_SECONDS,
    ) -> Client:
        """Return a client of a cluster.

        Args:
            endpoints: nodes as HOST, HOST:PORT or [IPV6]:PORT; several, or a text with commas. The
                first that answers is used, and another one when it does not any more.
            user: None for who is known by a certificate.
            password: of the user.
            vhost: where none is given.
            tls: None for none.
            timeout_s: seconds to find a node.

        Raises:
            ConnectFailedError: no node answers in time.
            NotAuthenticatedError: the log-in is not right.
            NotFoundError: there is no such vhost.
            ValueError: an endpoint is none, or there is a certificate without key.
            OSError: a file of `tls` cannot be read.
        """
        link = Link(parse_endpoints(endpoints), user, password, tls)
        try:
            await _check(link, vhost, timeout_s)
        except BaseException:
            await link.close()
            raise
        return cls(link, vhost)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; publishers and consumers end, so close these before."""
        await self.link.close()

    @property
    def endpoint(self) -> str:
        """The endpoint that is used as long as it answers."""
        return self.link.current

    # Messages

    def publisher(
        self,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        confirms: bool = True,
        publisher_id: str = "",
        epoch: int | None = None,
        name: str = "",
        unconfirmed_max: int = UNCONFIRMED_MESSAGES_MAX,
        unconfirmed_bytes_max: int = UNCONFIRMED_BYTES_MAX,
        give_up_after_s: float | None = None,
        at_leader: bool = True,
        vhost: str | None = None,
    ) -> Publisher:
        """Return a publisher, which connects when it is entered with `async with`, or by `open`.

        When its stream is lost it opens another one and sends again what was not answered. With a
        `publisher_id` the broker knows what it has already; without one such messages may come
        twice, and `Confirm.resent` says which.

        Args:
            exchange: of messages that name none; "" is the default exchange, by which a routing key
                is the name of a queue.
            routing_key: of messages that name none.
            mandatory: a message that reaches no queue fails with UnroutableError.
            confirms: messages are answered when they are safe; without, nothing is sent again.
            publisher_id: queues know by it and each message's `sequence` what they have had. One
                and the same in every run, with sequences of the application's own, makes that last
                over restarts; one made up for the run, with an epoch, over lost streams.
            epoch: of the publisher id. With one, messages need no sequence and are numbered from 1
                on. The next run must give a higher one: what comes again under the same numbers is
                confirmed and not kept. It fences those who publish under a lower one: they fail
                with FencedError.
            name: shown in listings.
            unconfirmed_max: messages that are not answered, after which `publish` waits.
            unconfirmed_bytes_max: the same in bytes.
            give_up_after_s: seconds without a node after which the publisher fails; None for never.
            at_leader: connect to the node that leads the queue, where the endpoints hold it and the
                messages go to one queue; else, and after a loss, to any.
            vhost: None for the client's.
        """
        options = PublisherOptions(
            vhost=self.vhost if vhost is None else vhost,
            exchange=exchange,
            routing_key=routing_key,
            mandatory=mandatory,
            confirms=confirms,
            publisher_id=publisher_id,
            epoch=epoch,
            name=name,
            unconfirmed_max=unconfirmed_max,
            unconfirmed_bytes_max=unconfirmed_bytes_max,
            give_up_after_s=give_up_after_s,
            at_leader=at_leader,
        )
        return Publisher(self.link, options)

    def consumer(
        self,
        queue: str,
        *,
        prefetch: int = PREFETCH,
        prefetch_bytes: int = 0,
        consumer_tag: str = "",
        exclusive: bool = False,
        priority: int = 0,
        no_ack: bool = False,
        arguments: Mapping[str, Any] | None = None,
        name: str = "",
        until_empty: bool = False,
        give_up_after_s: float | None = None,
        at_leader: bool = True,
        vhost: str | None = None,
    ) -> Consumer:
        """Return a consumer, which connects when it is entered with `async with`, or by `open`.

        Args:
            queue: to consume.
            prefetch: deliveries that it is sent before the first is settled.
            prefetch_bytes: the same in bytes of bodies; 0 for any number. One always comes.
            consumer_tag: "" for one that the broker makes up.
            exclusive: be the queue's only consumer.
            priority: those of higher priority are served first.
            no_ack: deliveries are settled as they leave the broker, and lost with a stream.
            arguments: `x-filter` and so on.
            name: shown in listings.
            until_empty: end once nothing waits in the queue, nor what was given back to it.
            give_up_after_s: seconds without a node after which the consumer fails; None for never.
            at_leader: connect to the node that leads the queue, where the endpoints hold it; else,
                and after a loss, to any.
            vhost: None for the client's.
        """
        options = ConsumerOptions(
            vhost=self.vhost if vhost is None else vhost,
            queue=queue,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            consumer_tag=consumer_tag,
            exclusive=exclusive,
            priority=priority,
            no_ack=no_ack,
            arguments=arguments or {},
            name=name,
            until_empty=until_empty,
            give_up_after_s=give_up_after_s,
            at_leader=at_leader,
        )
        return Consumer(self.link, options)

    async def get(
        self,
        queue: str,
        messages_max: int = 1,
        *,
        vhost: str | None = None,
        timeout_s: float = CALL_SECONDS,
    ) -> list[Delivery]:
        """Take messages that wait at this moment, at most once.

        They are settled before they are sent, and lost with an answer that does not arrive; who
        must not lose one uses a consumer with `until_empty`.

        Args:
            queue: to take from.
            messages_max: at most so many, up to GET_MESSAGES_MAX.
            vhost: None for the client's.
            timeout_s: seconds.

        Raises:
            HeadraceError: it failed; messages may be lost.
        """
        if not 1 <= messages_max <= GET_MESSAGES_MAX:
            rule = f"must be 1 to {GET_MESSAGES_MAX}, not {messages_max}"
            raise ValueError(f"messages_max: {rule}")
        where = self.vhost if vhost is None else vhost
        request = GetRequest(vhost=where, queue=queue, messages_max=messages_max)

        def method(channel: grpc.aio.Channel) -> Any:
            return MessagingStub(channel).Get

        answer = await self.link.call(method, request, timeout_s, repeat=False)
        return [Delivery(each) for each in answer.deliveries]

    def lease_group(
        self, queue: str, group: str, *, epoch: int = 0, vhost: str | None = None
    ) -> LeaseGroup:
        """Return a group that takes messages of a queue by lease; nothing is asked yet.

        Args:
            queue: to read.
            group: its name, 1 to 255 bytes.
            epoch: under which it was opened elsewhere, to read what it holds; else `open` it.
            vhost: None for the client's.
        """
        where = self.vhost if vhost is None else vhost
        return LeaseGroup(self.link, where, queue, group, epoch)

    # Flow control

    async def why(
        self, name: str = "", *, connection: str = "", queue: str = "", vhost: str | None = None
    ) -> Explanation:
        """Say why a connection or queue is slow, and who causes it: `Flow.why`."""
        return await self.flow.why(name, connection=connection, queue=queue, vhost=vhost)

    def watch_alarms(self) -> Watch[Alarm]:
        """Yield resources with alarms on each node, and each change: `Flow.watch_alarms`."""
        return self.flow.watch_alarms()


async def _check(link: Link, vhost: str, timeout_s: float) -> None:
    """Find out whether log-in and vhost are right, by asking for something that is there."""
    request = DescribeExchangeRequest(vhost=vhost, name=DEFAULT_EXCHANGE)

    def method(channel: grpc.aio.Channel) -> Any:
        return TopologyStub(channel).DescribeExchange

    try:
        await link.call(method, request, timeout_s, attempt_s=OPEN_SECONDS)
    except AccessRefusedError:
        return  # the log-in is right; what one may do is seen when it is done
