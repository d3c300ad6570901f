"""The opening of a connection: what the server offers, and what a client's answers mean.

Source: AMQP 0-9-1 specification, sections 1.4 (connection) and 2.2.4; capability names, AMQPLAIN
and the treatment of failed log-ins as in RabbitMQ.
"""

from __future__ import annotations

import math
import platform
from typing import Any, Final

from pamqp import commands

from headrace_broker.codecs.method import decode_amqplain, long_string_bytes
from headrace_broker.model.build_info import RABBITMQ_VERSION, VERSION
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.limits import FRAME_BYTES_MIN, HEARTBEAT_SECONDS
from headrace_broker.model.reply_code import COMMAND_INVALID, NOT_ALLOWED, SYNTAX_ERROR, AmqpError

SERVER_HEADER: Final = b"AMQP\x00\x00\x09\x01"  # also the answer to a header of another protocol
MECHANISMS: Final = "PLAIN AMQPLAIN"
EXTERNAL: Final = "EXTERNAL"  # SASL: who the client is was proven by its TLS certificate
QOS_RUNNING: Final = "headrace.qos-running-consumers"  # client property
PY_AMQP: Final = "py-amqp"  # `product` of the client that kombu and Celery use
_CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "per_consumer_qos",
    "direct_reply_to",
    "authentication_failure_close",
)


def start(cluster_name: str, external: bool) -> commands.Connection.Start:
    """Return connection.start.

    Args:
        cluster_name: shown to the client.
        external: offer EXTERNAL too, for clients whose certificates name users.
    """
    properties: dict[str, Any] = {
        "capabilities": dict.fromkeys(_CAPABILITIES, True),
        "cluster_name": cluster_name,
        "information": "A message broker whose flow control works.",
        "platform": f"Python {platform.python_version()}",
        "product": "Headrace",
        "version": RABBITMQ_VERSION,
        "headrace_version": VERSION,
    }
    mechanisms = f"{MECHANISMS} {EXTERNAL}" if external else MECHANISMS
    return commands.Connection.Start(0, 9, properties, mechanisms, "en_US")


def tune(limits: ClientLimits) -> commands.Connection.Tune:
    """Return connection.tune with the most that a client may ask for."""
    channels, frame_bytes = int(limits.channels_max), int(limits.frame_bytes_max)
    return commands.Connection.Tune(channels, frame_bytes, HEARTBEAT_SECONDS)


def credentials(command: commands.Connection.StartOk) -> tuple[str, str]:
    """Return user and password of connection.start-ok.

    Raises:
        AmqpError: COMMAND_INVALID for a mechanism that was not offered, SYNTAX_ERROR for a response
            that is not of the mechanism's form.
    """
    fields: Any = (
        command  # the response is bytes when it is not UTF-8, whatever its annotation says
    )
    response = long_string_bytes(fields.response)
    try:
        if command.mechanism == "PLAIN":
            _, user, password = response.split(b"\x00")
            return user.decode(), password.decode()
        if command.mechanism == "AMQPLAIN":
            table = decode_amqplain(response)
            return _text(table["LOGIN"]), _text(table["PASSWORD"])
    except (ValueError, KeyError) as error:
        text = f"response of mechanism {command.mechanism} is not of its form"
        raise AmqpError(SYNTAX_ERROR, text) from error
    raise AmqpError(COMMAND_INVALID, f"unknown authentication mechanism '{command.mechanism}'")


def refusal(mechanism: str, wait_s: float) -> str:
    """Return the error text for a client whose log-in was refused.

    Args:
        mechanism: that it has used.
        wait_s: seconds until another one is checked, 0 if this one was.
    """
    text = f"login was refused using authentication mechanism {mechanism}"
    if wait_s > 0:
        text += f": too many have failed; the next one is looked at in {math.ceil(wait_s)} s"
    return text


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("not a string")


def capability(client_properties: dict[str, Any], name: str) -> bool:
    """Return whether a client announced a capability."""
    capabilities = client_properties.get("capabilities")
    return isinstance(capabilities, dict) and capabilities.get(name) is True


def qos_running(client_properties: dict[str, Any]) -> bool:
    """Return whether basic.qos without `global` is for running consumers too.

    To RabbitMQ it is for consumers that come, which most clients count on. The specification means
    all of a channel's, and that is what py-amqp, below Celery, counts on with a broker that is not
    RabbitMQ. A client says itself what it wants by a property.

    Raises:
        AmqpError: NOT_ALLOWED, the property is no boolean.
    """
    asked = client_properties.get(QOS_RUNNING)
    if asked is None:
        return client_properties.get("product") == PY_AMQP
    if not isinstance(asked, bool):
        raise AmqpError(NOT_ALLOWED, f"client property '{QOS_RUNNING}' is not a boolean")
    return asked


def check_tune(command: commands.Connection.TuneOk, limits: ClientLimits) -> None:
    """Check the client's choice against the offer.

    Raises:
        AmqpError: NOT_ALLOWED, naming value and bound; 0 ("no limit") is above any.
    """
    _check_limit("channel_max", command.channel_max, 1, limits.channels_max)
    _check_limit("frame_max", command.frame_max, FRAME_BYTES_MIN, limits.frame_bytes_max)


def _check_limit(name: str, value: int, lowest: int, highest: int) -> None:
    if value == 0:
        text = (
            f"negotiated {name} = 0 (no limit) is higher than the maximum allowed value ({highest})"
        )
        raise AmqpError(NOT_ALLOWED, text)
    if value < lowest:
        text = f"negotiated {name} = {value} is lower than the minimum allowed value ({lowest})"
        raise AmqpError(NOT_ALLOWED, text)
    if value > highest:
        text = f"negotiated {name} = {value} is higher than the maximum allowed value ({highest})"
        raise AmqpError(NOT_ALLOWED, text)
