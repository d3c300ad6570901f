"""Logs that drive machines past their limits: another value of one gives another state."""

from __future__ import annotations

import msgspec
from tests.broker.catalog.conftest import Driver
from tests.broker.core.conftest import ANNA, BERT, QueueLog, batch, properties
from tests.broker.core.lease_queue import Leasing, group_of
from tests.broker.core.test_publisher import Publishing

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.advice import CONSUMERS, Advice
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.request import Request
from headrace_broker.core.queue.command import archive_command, command, lease_command
from headrace_broker.core.queue.command.command import ACCEPT
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.definition import Exchange, Node
from headrace_broker.model.ranges import Ranges

WEEK_MS = 604_800_000
ADVICE = Advice("/", "q", CONSUMERS, 8, 2, "because", 1 << 50, "me", 1000, (("rate", "0.1"),))


def expiry() -> list[bytes]:
    """More messages, and more bytes, than one TICK expires."""
    queue = QueueLog()
    queue.configure(MACHINE_VERSION, message_ttl_ms=10)
    for number in range(5):
        queue.apply(command.encode_enqueue(ANNA, number * 1000 + 1, batch(*[b""] * 1000)))
    queue.tick(10)
    queue.tick()
    for number in range(5001, 5013):  # of which eight are a byte below the bound
        body = bytes((1 << 20) - (number == 5001))
        queue.apply(command.encode_enqueue(ANNA, number, batch(body)))
    queue.tick(20)
    queue.tick()
    return queue.entries


def sessions() -> list[bytes]:
    """More answers and more refusals than are kept of a session."""
    queue = QueueLog()
    queue.configure(MACHINE_VERSION, max_length=1, overflow=1)
    for number in range(1, 41):
        queue.attach(BERT, number, number, 1)
        queue.enqueue(ANNA, 2 * number - 1, 2)
        queue.configure(MACHINE_VERSION, max_length=(number % 2) * 100 + 1, overflow=1)
    return queue.entries


def turns() -> list[bytes]:
    """More values that take turns, and longer ones, than are told apart."""
    queue = QueueLog()
    queue.configure(MACHINE_VERSION, fairness_key=b"tenant", priority_max=3)
    for number in range(1500):
        queue.publish((properties(headers={b"tenant": number}), b""))
    for length in range(50, 80):
        value = bytes([length]) * length
        table = b"\x06tenantS" + len(value).to_bytes(4, "big") + value
        block = b"\x20\x00" + len(table).to_bytes(4, "big") + table
        queue.publish((block, b""))
    queue.attach(BERT, 1, 1, 2000)
    return queue.entries


def lease_groups() -> list[bytes]:
    """More groups, openers and leases than there may be."""
    queue = Leasing()
    queue.configure(MACHINE_VERSION)
    for number in range(70):
        queue.enqueue(ANNA, 3 * number + 1, 3)
        queue.open(b"%d" % number, b"group-%d" % number, 1000)
    for number in range(12):
        queue.open(b"%d" % number, b"group-1")
    epoch = int(group_of(queue.open(bytes(64), b"group-1")).epoch)
    queue.apply(lease_command.encode_open_group(77, b"group-1", 1000, bytes(65)))
    queue.apply(lease_command.encode_open_group(77, b"group-2", 86_400_000, b"o"))
    for number in range(1, 70):
        queue.lease(number, 1, epoch, b"group-1")
    queue.tick(WEEK_MS)
    return queue.entries


def large_leases() -> list[bytes]:
    """More messages in a lease, and more that it gives back, than there may be."""
    queue = Leasing()
    queue.configure(MACHINE_VERSION)
    queue.apply(command.encode_enqueue(ANNA, 1, batch(*[b""] * 66_000)))
    queue.open()
    queue.lease(1, 70_000)
    queue.lease(2, 400)
    queue.release(1)
    queue.tick()
    queue.attach(BERT, 1, 1, 1000)
    queue.settle(BERT, 2, ACCEPT, *[(1, number, number) for number in range(1, 1000, 2)])
    queue.lease(3, 5000)
    queue.release(3)
    queue.tick()
    return queue.entries


def archives() -> list[bytes]:
    """More groups that read an archive, and more rows that one command drops, than there may be."""
    queue = QueueLog()
    queue.configure(MACHINE_VERSION, archive=2)
    queue.apply(command.encode_enqueue(ANNA, 1, batch(*[b""] * 20_000)))
    queue.attach(BERT, 1, 1, 20_000)
    queue.settle(BERT, 2, ACCEPT, (1, 1, 19_000))
    queue.configure(MACHINE_VERSION, archive=2, archive_max_messages=100)
    queue.tick()
    for number in range(70):
        queue.apply(archive_command.encode_open_archive(5, b"reader-%d" % number, b"o"))
    queue.configure(MACHINE_VERSION, archive=2, archive_max_messages=1 << 20)
    queue.now_ms += WEEK_MS - 1
    queue.tick()
    queue.tick(2)
    return queue.entries


def publishers() -> list[bytes]:
    """More publishers and holes than are remembered, for as long as they are."""
    queue = Publishing()
    queue.configure(MACHINE_VERSION, max_length=0, overflow=1)
    for number in range(2, 150, 2):
        queue.send(number)
    queue.configure(MACHINE_VERSION, max_length=-1, overflow=1)
    for number in range(4200):
        queue.send(1, publisher=b"%d" % number)
    rows = Ranges()
    rows.append(1, 2)
    queue.apply(
        command.encode_enqueue_named(BERT, 1, batch(b""), bytes(255), 1, rows.bounds, False)
    )
    queue.now_ms += WEEK_MS - 1
    queue.send(1, publisher=b"4199")
    queue.now_ms += 2
    queue.send(1, publisher=b"4000")
    queue.send(1, publisher=b"4199")
    return queue.entries


def deferred() -> list[bytes]:
    """More publishes whose confirms are deferred than there may be."""
    queue = QueueLog()
    queue.configure(MACHINE_VERSION, high_watermark=1, low_watermark=1)
    for number in range(1, 33_000):
        encoded = command.encode_enqueue(ANNA, number, batch(b""), True)
        queue.apply(encoded)
    return queue.entries


def catalog() -> list[bytes]:
    """More requests out of order, nodes, forgotten disks, depth and advice than there may be."""
    driver = Driver().bootstrap()
    driver.queue("q")
    for number in range(10_000, 10_000 + 2 * 1100, 2):  # of another node, with gaps
        driver.apply(encode_request(Request(2, 1, number), commands.Barrier()))
    for number in range(4, 19):
        driver.do(commands.AdmitNode(Node(number, f"n{number}", f"h:{number}", disk=number)))
    for number in range(1030):
        driver.do(commands.AdmitNode(Node(9, "n9", "h:9", disk=1000 + number)))
        driver.do(commands.ForgetNode(9))
    table: dict[str, object] = {}
    for depth in range(20):
        driver.do(commands.DeclareExchange(Exchange("/", f"x{depth}", "direct", arguments=table)))
        table = {"t": table}
    for name in ("n" * 255, "n" * 256):
        driver.do(commands.DeclareExchange(Exchange("/", name, "direct")))
        driver.do(commands.DeclareQueue("/", name, "quorum", replicas=3))
    for number in range(33):
        items = [
            msgspec.structs.replace(ADVICE, author=f"{number}-{each}", reason="r" * 20)
            for each in range(64)
        ]
        driver.do(commands.PutAdvice(tuple(items), 1000))
    return driver.log
