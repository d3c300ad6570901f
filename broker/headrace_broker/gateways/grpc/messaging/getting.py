"""The call Messaging.Get: messages that wait, settled before they are sent.

A message that is taken and not settled needs an owner whose end gives it back; a call that is
over with its answer cannot be one. Whoever wants that consumes with credit and drain.
"""

from __future__ import annotations

from headrace_broker.gateways.grpc.messaging.consume_stream import ConsumeStream
from headrace_broker.gateways.grpc.messaging.deliveries import DeliveryWriter
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.limits import GET_BYTES_MAX
from headrace_broker.model.reply_code import RESOURCE_LOCKED, AmqpError
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import Attachment
from headrace_protos.broker.v1.messaging_pb2 import GetResponse

SINGLE_ACTIVE = "x-single-active-consumer"


async def get(broker: Broker, cause: Cause, queue: Queue, count: int) -> GetResponse:
    """Take up to `count` messages.

    Raises:
        AmqpError: RESOURCE_LOCKED for a queue with a single active consumer; NOT_FOUND,
            INTERNAL_ERROR: the queue is gone or does not answer.
    """
    if queue.arguments.get(SINGLE_ACTIVE) is True:
        text = f"cannot obtain access to locked queue '{queue.name}' in vhost '{queue.vhost}'"
        raise AmqpError(RESOURCE_LOCKED, f"{text}: it has a single active consumer")
    account = broker.ledger.open(cause)
    stream = ConsumeStream(broker, queue, account, True, _never, lambda: None)
    response = GetResponse()
    writer = DeliveryWriter()
    try:
        stream.credit.add(count, GET_BYTES_MAX)
        more = True
        while more and stream.credit.is_left:
            more = await stream.fetch(1)  # one that did not fit would come back as redelivered
            for ready in stream.take(count, GET_BYTES_MAX):
                for index in range(ready.start, ready.stop):
                    response.deliveries.append(writer.write(ready.run, index, 0))
        await stream.applied()
        response.messages_left = stream.left if more else 0
    finally:
        stream.close()
        broker.ledger.close(account)
    return response


def get_cause(call_id: str, name: str, node: str, user: str, vhost: str) -> Cause:
    """Return the cause of what a call does."""
    cause = Cause(call_id, CONNECTION, name, node)
    cause.user, cause.vhost = user, vhost
    return cause


def _never(credit: int) -> Attachment:
    raise AssertionError("a get attaches no consumer")
