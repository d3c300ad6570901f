"""Options of gRPC's servers and channels."""

from __future__ import annotations

from pathlib import Path

import grpc

from headrace_broker.gateways.grpc.server.server import server_options
from headrace_client.endpoint import channel_options
from headrace_raftlog.transport.channel_options import CLIENT_OPTIONS, SERVER_OPTIONS


def test_options_have_names_that_grpc_knows() -> None:
    [file] = Path(str(grpc.__file__)).parent.glob("_cython/cygrpc*.so")
    library = file.read_bytes()  # it does not complain of others
    options = (*server_options(1), *channel_options(None), *CLIENT_OPTIONS, *SERVER_OPTIONS)
    unknown = {name for name, _ in options if name.encode() not in library}
    assert unknown == set()
