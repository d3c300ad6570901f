"""Errors of the client, made of the broker's google.rpc details."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

FENCED: Final = "FENCED"  # reason: a later epoch has taken over
DETAILS_KEY: Final = "grpc-status-details-bin"  # of the trailing metadata that carries them


class FieldProblem(NamedTuple):
    """A field of a request and the rule it broke."""

    field: str
    rule: str


class HeadraceError(Exception):
    """Everything this package raises, but for mistakes in calling it (TypeError, ValueError)."""

    def __init__(
        self,
        text: str,
        code: str = "",
        reason: str = "",
        fields: Sequence[FieldProblem] = (),  # of the request that are wrong
        metadata: Mapping[str, str] | None = None,  # for programs: more about the reason
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(text)
        self.text = text  # for people: what was wrong, naming the thing
        self.code = code  # name of the gRPC status, "" where there was none
        self.reason = reason  # for programs: UPPER_SNAKE_CASE, "" where there is none
        self.fields = tuple(fields)
        self.metadata = dict(metadata or {})
        # seconds until another attempt is worth it, 0 where that is not said
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        more = (self.code, self.reason, self.fields, self.metadata, self.retry_after_s)
        return type(self), (self.text, *more)


class UnavailableError(HeadraceError):
    """The node cannot do it now: it is down, starts, or too few nodes are running."""


class ConnectFailedError(UnavailableError):
    """Several nodes were tried, none in time with success; the text says what became of each."""


class NotAuthenticatedError(HeadraceError):
    """The log-in is wrong, or log-ins are delayed (`retry_after_s`)."""


class AccessRefusedError(HeadraceError):
    """The user may not do that."""


class NotFoundError(HeadraceError):
    """It is not there."""


class InvalidArgumentError(HeadraceError):
    """A value that cannot be; `fields` names it."""


class PreconditionError(HeadraceError):
    """The request conflicts with the current state: different, in use, not empty, or locked."""


class ExhaustedError(HeadraceError):
    """A limit is reached."""


class LeaseExpiredError(PreconditionError):
    """The lease is gone: its messages went back to the queue; `metadata` says which."""


class LeaseSettledError(PreconditionError):
    """The lease is settled: its messages are no more."""


class LeaseOutOfOrderError(PreconditionError):
    """The lease's number is beyond the group's next one; `metadata` says which that is."""


class NotSupportedError(HeadraceError):
    """The broker, or this version of it, cannot do that."""


class AbortedError(HeadraceError):
    """The broker gave it up: a stream that an administrator closed, for instance."""


class FencedError(AbortedError):
    """Another client continues with this publisher id or group, under a later epoch."""


class NodeDownError(UnavailableError):
    """The node with the requested data does not answer; it may come back."""


class UnknownShardError(NotFoundError):
    """A log has no such shard, or no longer."""


class UnknownGroupError(NotFoundError):
    """A group was never opened there, or was closed."""


class DataGoneError(InvalidArgumentError):
    """Rows that are asked for were dropped."""

    @property
    def first_index(self) -> int:
        """Index of the first row that can be read."""
        return int(self.metadata.get("first_index", 0))


class NotYetError(InvalidArgumentError):
    """There are no such rows yet."""

    @property
    def next_index(self) -> int:
        """Index of the next row."""
        return int(self.metadata.get("next_index", 0))


class OtherIncarnationError(PreconditionError):
    """A shard was lost with its disk, and began anew."""

    @property
    def incarnation(self) -> int:
        """Current incarnation."""
        return int(self.metadata.get("incarnation", 0))


class TooLateError(HeadraceError, TimeoutError):
    """It took too long."""


class BrokerFaultError(HeadraceError):
    """A fault of the broker; the text helps its makers only."""


class ClosedError(HeadraceError):
    """This object is closed."""


class PublishRefusedError(HeadraceError):
    """A message is in none of its queues, or not in all of them."""

    limit = ""  # name of the limit that refuses it, "" where it is none


class UnroutableError(PublishRefusedError):
    """A mandatory message reached no queue."""


class HeldBackError(TooLateError):
    """The broker did not take a message in time; the text says which limit holds it back."""


class StaleDeliveryError(HeadraceError):
    """The stream on which a message came is gone: unless settled before, it went back."""


_BY_CODE: Final[dict[grpc.StatusCode, type[HeadraceError]]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.UNAUTHENTICATED: NotAuthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: AccessRefusedError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgumentError,
    grpc.StatusCode.FAILED_PRECONDITION: PreconditionError,
    grpc.StatusCode.ALREADY_EXISTS: PreconditionError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ExhaustedError,
    grpc.StatusCode.UNIMPLEMENTED: NotSupportedError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.CANCELLED: AbortedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: TooLateError,
}
_BY_REASON: Final[dict[str, type[HeadraceError]]] = {
    FENCED: FencedError,
    "DATA_GONE": DataGoneError,
    "NODE_DOWN": NodeDownError,
    "NOT_YET": NotYetError,
    "OTHER_INCARNATION": OtherIncarnationError,
    "UNKNOWN_GROUP": UnknownGroupError,
    "UNKNOWN_SHARD": UnknownShardError,
    "EXPIRED": LeaseExpiredError,
    "OUT_OF_ORDER": LeaseOutOfOrderError,
    "SETTLED": LeaseSettledError,
}
# Details of a call on which gRPC's own code could not write, as it had ended: the status that the
# broker gave comes too late then.
_ENDED_WHILE_WRITING: Final = "Internal error from Core"
_CODES: Final = {int(each.value[0]): each for each in grpc.StatusCode}


def from_call(error: grpc.aio.AioRpcError) -> HeadraceError:
    """Return what a call failed with."""
    code = error.code()
    text = error.details() or code.name
    if code is grpc.StatusCode.INTERNAL and text == _ENDED_WHILE_WRITING:
        return UnavailableError("the call ended while it was written to", code.name)
    info, fields, retry_after_s = _details(error)
    kind = _BY_REASON.get(info.reason) or _BY_CODE.get(code, BrokerFaultError)
    return kind(text, code.name, info.reason, fields, dict(info.metadata), retry_after_s)


def code_name(number: int) -> str:
    """Return the name of a google.rpc.Code."""
    code = _CODES.get(number)
    return code.name if code is not None else str(number)


def from_code(number: int, text: str) -> HeadraceError:
    """Return an error by its google.rpc.Code, as streams tell it."""
    code = _CODES.get(number, grpc.StatusCode.UNKNOWN)
    return _BY_CODE.get(code, BrokerFaultError)(text, code.name)


def _details(error: grpc.aio.AioRpcError) -> tuple[ErrorInfo, list[FieldProblem], float]:
    info = ErrorInfo()
    fields: list[FieldProblem] = []
    retry_after_s = 0.0
    for detail in _status(error).details:
        kind = detail.type_url.rpartition("/")[2]
        try:
            if kind == "google.rpc.ErrorInfo":
                info = ErrorInfo.FromString(detail.value)
            elif kind == "google.rpc.BadRequest":
                bad = BadRequest.FromString(detail.value)
                fields += [
                    FieldProblem(each.field, each.description) for each in bad.field_violations
                ]
            elif kind == "google.rpc.RetryInfo":
                delay = RetryInfo.FromString(detail.value).retry_delay
                retry_after_s = max(delay.seconds + delay.nanos / 1e9, 0.0)
        except DecodeError:  # what is not understood is left out; code and text are there
            continue
    return info, fields, retry_after_s


def _status(error: grpc.aio.AioRpcError) -> Status:
    trailing: Any = error.trailing_metadata()
    for key, value in trailing or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                return Status.FromString(value)
            except DecodeError:
                break
    return Status()
