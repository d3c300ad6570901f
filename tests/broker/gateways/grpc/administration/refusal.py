"""Refusal of a call, as a client sees it."""

from __future__ import annotations

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status


class RefusalError(Exception):
    """A call was refused.

    Attributes:
        code: of the status.
        text: for people.
        reason: of its ErrorInfo.
        fields: (field, rule) of its BadRequest.
    """

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(f"{error.code()}: {error.details()}")
        self.code = error.code().name
        self.text = error.details() or ""
        self.reason = ""
        self.fields: list[tuple[str, str]] = []
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
        for detail in status.details if status is not None else ():
            info, bad = ErrorInfo(), BadRequest()
            if detail.Unpack(info):
                self.reason = info.reason
            elif detail.Unpack(bad):
                self.fields = [(each.field, each.description) for each in bad.field_violations]
