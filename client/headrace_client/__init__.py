"""A client of Headrace, by its gRPC API: asyncio here, blocking in `headrace_client.blocking`.

async with await Client.connect(["broker-0", "broker-1"]) as client:
    await client.topology.declare_queue("tasks")
    async with client.publisher(routing_key="tasks") as publisher:
        await (await publisher.publish(b"work"))
    async with client.consumer("tasks") as consumer:
        async for delivery in consumer:
            delivery.accept()
"""

from headrace_client.advice import AdviceItem
from headrace_client.client import Client
from headrace_client.confirm import Confirm
from headrace_client.consumer import Consumer
from headrace_client.definition import (
    Binding,
    DeclaredQueue,
    DeletedQueue,
    Exchange,
    Permission,
    Policy,
    Queue,
    QueueCounts,
    QueueFlowState,
    TopicPermission,
    User,
    Vhost,
)
from headrace_client.delivery import Delivery, Settlement
from headrace_client.endpoint import DEFAULT_PORT, Tls
from headrace_client.error import (
    AbortedError,
    AccessRefusedError,
    BrokerFaultError,
    ClosedError,
    ConnectFailedError,
    DataGoneError,
    ExhaustedError,
    FencedError,
    FieldProblem,
    HeadraceError,
    HeldBackError,
    InvalidArgumentError,
    LeaseExpiredError,
    LeaseOutOfOrderError,
    LeaseSettledError,
    NodeDownError,
    NotAuthenticatedError,
    NotFoundError,
    NotSupportedError,
    NotYetError,
    OtherIncarnationError,
    PreconditionError,
    PublishRefusedError,
    StaleDeliveryError,
    TooLateError,
    UnavailableError,
    UnknownGroupError,
    UnknownShardError,
    UnroutableError,
)
from headrace_client.flow_value import (
    Alarm,
    Cause,
    Explanation,
    FlowChange,
    Limit,
    StoppedConnection,
    StoppingQueue,
    Top,
    Windows,
)
from headrace_client.lease import LeaseGroup
from headrace_client.lease_value import (
    GroupState,
    LeaseChunk,
    Leased,
    LeasedMessage,
    LeaseState,
    SettledLeases,
)
from headrace_client.message import PERSISTENT, TRANSIENT, Properties
from headrace_client.publisher import Publisher, Stop
from headrace_client.watch import Watch

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_PORT",
    "PERSISTENT",
    "TRANSIENT",
    "AbortedError",
    "AccessRefusedError",
    "AdviceItem",
    "Alarm",
    "Binding",
    "BrokerFaultError",
    "Cause",
    "Client",
    "ClosedError",
    "Confirm",
    "ConnectFailedError",
    "Consumer",
    "DataGoneError",
    "DeclaredQueue",
    "DeletedQueue",
    "Delivery",
    "Exchange",
    "ExhaustedError",
    "Explanation",
    "FencedError",
    "FieldProblem",
    "FlowChange",
    "GroupState",
    "HeadraceError",
    "HeldBackError",
    "InvalidArgumentError",
    "LeaseChunk",
    "LeaseExpiredError",
    "LeaseGroup",
    "LeaseOutOfOrderError",
    "LeaseSettledError",
    "LeaseState",
    "Leased",
    "LeasedMessage",
    "Limit",
    "NodeDownError",
    "NotAuthenticatedError",
    "NotFoundError",
    "NotSupportedError",
    "NotYetError",
    "OtherIncarnationError",
    "Permission",
    "Policy",
    "PreconditionError",
    "Properties",
    "PublishRefusedError",
    "Publisher",
    "Queue",
    "QueueCounts",
    "QueueFlowState",
    "SettledLeases",
    "Settlement",
    "StaleDeliveryError",
    "Stop",
    "StoppedConnection",
    "StoppingQueue",
    "Tls",
    "TooLateError",
    "Top",
    "TopicPermission",
    "UnavailableError",
    "UnknownGroupError",
    "UnknownShardError",
    "UnroutableError",
    "User",
    "Vhost",
    "Watch",
    "Windows",
]
