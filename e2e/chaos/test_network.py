"""Cuts are silent, one-way, and end."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from e2e.chaos.network import Network, NetworkUnavailableError

PORT = 20900
ATTEMPTS = 100  # of 0.3 s, until a link on a busy machine counts as cut


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        made = Network(3)
    except NetworkUnavailableError as error:
        pytest.skip(str(error))
    yield made
    made.close()


def datagram_socket(network: Network, node: int) -> socket.socket:
    with network.nodes[node].entered():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((network.address(node), PORT))
    made.settimeout(0.3)
    return made


def reaches(network: Network, source: int, target: int, attempts: int = ATTEMPTS) -> bool:
    """Return whether one of some datagrams gets from one node to another."""
    with (
        contextlib.closing(datagram_socket(network, source)) as sender,
        contextlib.closing(datagram_socket(network, target)) as receiver,
    ):
        for _ in range(attempts):
            sender.sendto(b"there?", (network.address(target), PORT))
            with contextlib.suppress(TimeoutError):
                return receiver.recv(100) == b"there?"
    return False


def test_all_nodes_reach_each_other(network: Network) -> None:
    assert all(reaches(network, a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b)


def test_cut_goes_one_way_and_heals(network: Network) -> None:
    network.cut(1, 2)
    assert not reaches(network, 1, 2, attempts=1)
    assert reaches(network, 2, 1)
    assert reaches(network, 1, 3)
    network.heal(1, 2)
    assert reaches(network, 1, 2)


def test_cut_stops_an_established_connection_silently(network: Network) -> None:
    with network.nodes[2].entered():
        listener = socket.create_server((network.address(2), PORT))
    with network.nodes[1].entered():
        near = socket.create_connection((network.address(2), PORT), timeout=5)
    far, _ = listener.accept()
    with listener, near, far:
        far.settimeout(0.3)
        network.cut(1, 2)
        near.sendall(b"held up")
        with pytest.raises(TimeoutError):
            far.recv(100)
        network.heal(1, 2)
        far.settimeout(10)
        assert far.recv(100) == b"held up"


def test_loopbacks_are_apart(network: Network) -> None:
    with network.nodes[1].entered():
        listener = socket.create_server(("127.0.0.1", PORT))
    with listener, network.nodes[2].entered(), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", PORT), timeout=5)
