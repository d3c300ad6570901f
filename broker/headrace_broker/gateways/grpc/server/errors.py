"""Errors of calls, as a gRPC status with google.rpc details.

Source: https://google.aip.dev/193, google/rpc/error_details.proto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from headrace_broker.model import reply_code
from headrace_broker.model.limits import (
    ENTRY_OVERHEAD_BYTES,
    LEASE_CHUNK_BYTES_MAX,
    MESSAGE_BYTES_WHOLE,
)
from headrace_broker.model.reply_code import REPLY_NAMES, AmqpError, UpgradePendingError

DOMAIN: Final = "headrace.dev"
# Bytes of the longest chunk without a message that is too large.
CHUNK_BYTES_MAX: Final = MESSAGE_BYTES_WHOLE + ENTRY_OVERHEAD_BYTES + LEASE_CHUNK_BYTES_MAX
RETRY_MS: Final = 1000  # milliseconds until a cluster without a quorum is worth another attempt

Context = grpc.aio.ServicerContext[Any, Any]

_CODES: Final = {
    reply_code.CONTENT_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    reply_code.NO_ROUTE: grpc.StatusCode.NOT_FOUND,
    reply_code.NO_CONSUMERS: grpc.StatusCode.FAILED_PRECONDITION,
    reply_code.CONNECTION_FORCED: grpc.StatusCode.ABORTED,
    reply_code.INVALID_PATH: grpc.StatusCode.INVALID_ARGUMENT,
    reply_code.ACCESS_REFUSED: grpc.StatusCode.PERMISSION_DENIED,
    reply_code.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    reply_code.RESOURCE_LOCKED: grpc.StatusCode.FAILED_PRECONDITION,
    reply_code.PRECONDITION_FAILED: grpc.StatusCode.FAILED_PRECONDITION,
    reply_code.FRAME_ERROR: grpc.StatusCode.INVALID_ARGUMENT,
    reply_code.SYNTAX_ERROR: grpc.StatusCode.INVALID_ARGUMENT,
    reply_code.COMMAND_INVALID: grpc.StatusCode.FAILED_PRECONDITION,
    reply_code.CHANNEL_ERROR: grpc.StatusCode.FAILED_PRECONDITION,
    reply_code.UNEXPECTED_FRAME: grpc.StatusCode.FAILED_PRECONDITION,
    reply_code.RESOURCE_ERROR: grpc.StatusCode.RESOURCE_EXHAUSTED,
    reply_code.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
    reply_code.NOT_IMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    reply_code.INTERNAL_ERROR: grpc.StatusCode.UNAVAILABLE,  # no quorum, or no answer in time
}


class CallError(Exception):
    """A call, or a part of it, is refused."""

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        text: str,
        fields: Sequence[tuple[str, str]] = (),  # (field, rule it broke) of the request
        metadata: Mapping[str, str] | None = None,  # for programs: more about the reason
        retry_ms: int = 0,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.reason = reason  # for programs: UPPER_SNAKE_CASE, at most 63 characters
        self.text = text  # for people: what was wrong, naming the thing
        self.fields = tuple(fields)
        self.metadata = dict(metadata or {})
        self.retry_ms = retry_ms  # when it is worth another attempt, 0 where it is not said

    def status(self) -> Status:
        """Return it as google.rpc.Status."""
        details: list[Any] = [ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=self.metadata)]
        if self.fields:
            violations = [
                BadRequest.FieldViolation(field=field, description=rule)
                for field, rule in self.fields
            ]
            details.append(BadRequest(field_violations=violations))
        if self.retry_ms:
            delay = Duration()
            delay.FromMilliseconds(self.retry_ms)
            details.append(RetryInfo(retry_delay=delay))
        status = Status(code=self.code.value[0], message=self.text)
        for detail in details:
            packed = AnyMessage()
            packed.Pack(detail)
            status.details.append(packed)
        return status


def too_large(what: str) -> CallError:
    """Return the refusal to send a message that is too large to be held as a whole.

    Args:
        what: what has how many bytes.
    """
    text = f"{what}; over gRPC a message has at most {MESSAGE_BYTES_WHOLE}: consume it over AMQP"
    return CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE", text)


def check_chunk(byte_count: int) -> None:
    """Refuse to send a chunk of messages that can only be so long by one that is too large.

    Raises:
        CallError: RESOURCE_EXHAUSTED, MESSAGE_TOO_LARGE.
    """
    if byte_count > CHUNK_BYTES_MAX:
        raise too_large(f"one of the next messages makes a chunk of {byte_count} bytes")


def bad_field(field: str, rule: str) -> CallError:
    """Return the refusal of a request because of one of its fields.

    Args:
        field: its path, as `batch.messages[3].properties.priority`.
        rule: what it broke: "must be 0 to 255".
    """
    text = f"{field}: {rule}"
    return CallError(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", text, [(field, rule)])


def number_in(field: str, value: int, least: int, most: int) -> int:
    """Return a number of a request; CallError INVALID_ARGUMENT where it is not within bounds."""
    if not least <= value <= most:
        raise bad_field(field, f"must be {least} to {most}")
    return value


def upgrade_pending(text: str) -> CallError:
    """Return the refusal of what a node of the cluster is too old for."""
    return CallError(grpc.StatusCode.UNAVAILABLE, "UPGRADE_PENDING", text, retry_ms=RETRY_MS)


def from_amqp(error: AmqpError) -> CallError:
    """Return a refusal that the broker words for AMQP; `reason` is the reply code's name."""
    if isinstance(error, UpgradePendingError):
        return upgrade_pending(error.text)
    code = _CODES[error.code]
    return CallError(
        code,
        REPLY_NAMES[error.code],
        error.text,
        [(error.field, error.text)] if error.field else (),
        metadata={"amqp_reply_code": str(error.code)},
        retry_ms=RETRY_MS if code is grpc.StatusCode.UNAVAILABLE else 0,
    )


async def abort(context: Context, error: CallError) -> NoReturn:
    """End a call with an error."""
    status = rpc_status.to_status(error.status())
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("abort raises")
