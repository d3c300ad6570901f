"""Options of the gRPC channels and servers between nodes."""

from __future__ import annotations

from typing import Final

from headrace_raftlog.model.limits import GRPC_MESSAGE_BYTES_MAX, KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS

_BOTH: Final[list[tuple[str, int | str]]] = [
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
]

CLIENT_OPTIONS: Final[list[tuple[str, int | str]]] = [
    *_BOTH,
    # Every attempt makes a new connection: delays between attempts are the link's business.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
]

SERVER_OPTIONS: Final[list[tuple[str, int | str]]] = [
    *_BOTH,
    # Two processes on one port would each get half of the streams.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
]
