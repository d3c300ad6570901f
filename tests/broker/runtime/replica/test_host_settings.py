"""Settings that a queue's leader proposes for its machine, and when."""

from __future__ import annotations

import pytest

from headrace_broker.core.queue.command.command import CONFIGURE, STAMP_BYTES, stamp_command
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.core.queue.command.leader_command import Configure, encode_configure
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import QueueSettings, encode_settings
from headrace_broker.runtime.replica.machine_version import MachineVersionError
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry


def limited(length):
    """Settings with a length limit."""
    settings = QueueSettings()
    settings.max_length = length
    return settings


def configurations(world):
    """Version and length limit of every CONFIGURE in the log."""
    commands = [decode_command(entry.data) for entry in world.log]
    return [(c.version, c.settings.max_length) for c in commands if isinstance(c, Configure)]


@pytest.fixture
def newer(world):
    """A world whose node 1 leads anew, with a machine version that knows settings."""
    world.watcher.version = MACHINE_VERSION
    world.watcher.settings = limited(5)
    world.watcher.arguments = {"max-length": 5}
    world.lead(1)
    return world


def test_settings_are_first_in_the_log_of_a_leadership(newer, listener, publishes):
    session = newer.open(1, listener)
    session.publish(publishes(b"x"), None)
    session.flush()
    newer.settle_down()
    assert newer.log[0].data[STAMP_BYTES] == CONFIGURE
    for host in newer.hosts.values():
        assert (host.machine.version, host.machine.settings.max_length) == (MACHINE_VERSION, 5)
        assert host.machine.ready_count == 1
    assert newer.hosts[1].arguments == {"max-length": 5}
    assert newer.hosts[2].arguments == {}


def test_next_leader_repeats_no_settings_that_hold(newer):
    newer.settle_down()
    newer.lead(2)
    newer.settle_down()
    assert configurations(newer) == [(MACHINE_VERSION, 5)]
    assert newer.hosts[2].serving
    assert newer.hosts[2].arguments == {"max-length": 5}


def test_change_is_proposed_once_by_the_leader_only(newer):
    newer.settle_down()
    newer.watcher.settings = limited(7)
    for _ in range(2):
        assert newer.hosts[1].configure()
        assert newer.hosts[2].configure()
    newer.settle_down()
    assert newer.hosts[1].configure()
    assert configurations(newer) == [(MACHINE_VERSION, 5), (MACHINE_VERSION, 7)]
    assert newer.hosts[2].machine.settings.max_length == 7


def test_change_back_before_the_first_is_applied_is_a_change(newer):
    newer.settle_down()
    for length in (7, 5):
        newer.watcher.settings = limited(length)
        newer.hosts[1].configure()
    newer.settle_down()
    assert newer.hosts[1].machine.settings.max_length == 5


def test_machine_of_the_first_version_is_told_nothing(world):
    world.watcher.settings = limited(5)
    world.lead(1)
    world.settle_down()
    assert world.log == []
    assert world.hosts[1].serving
    world.watcher.version = MACHINE_VERSION  # the last of the members was upgraded
    world.hosts[1].configure()
    world.settle_down()
    assert configurations(world) == [(MACHINE_VERSION, 5)]


def test_version_never_goes_back(newer):
    newer.settle_down()
    newer.watcher.version = 1  # a member is replaced by an older one: it will not start
    newer.watcher.settings = limited(6)
    newer.hosts[1].configure()
    newer.settle_down()
    assert configurations(newer)[-1] == (MACHINE_VERSION, 6)


def test_leader_that_cannot_write_its_settings_serves_nobody_yet(world, listener, publishes):
    world.watcher.version = MACHINE_VERSION
    world.watcher.settings = limited(5)
    session = world.open(2, listener)
    world.busy = True
    world.lead(1)
    host = world.hosts[1]
    assert (host.leading, host.serving) == (True, False)
    assert world.watcher.leaders[-2:] == [0, 1]  # node 1 names nobody, node 2 names node 1
    session.publish(publishes(b"x"), None)
    session.flush()
    world.settle_down()
    assert world.log == []
    assert not host.configure()
    world.busy = False
    assert host.configure()
    assert world.watcher.leaders[-1] == 1
    world.settle_down()
    assert host.serving
    assert world.log[0].data[STAMP_BYTES] == CONFIGURE
    assert host.machine.ready_count == 1


def test_log_of_a_newer_machine_stops_the_node(world):
    newer = stamp_command(1, encode_configure(MACHINE_VERSION + 1, QueueSettings()))
    digest = world.hosts[2].machine.digest()
    with pytest.raises(MachineVersionError, match=r"queue 'work'.*knows versions up to"):
        world.hosts[2].apply([Entry(1, 1, ENTRY_NORMAL, newer)])
    assert world.hosts[2].machine.digest() == digest


def test_state_of_a_newer_machine_stops_the_node(newer):
    newer.settle_down()
    host = newer.hosts[2]
    state = bytearray(host.snapshot()[0])
    assert state[1] == MACHINE_VERSION
    state[1] += 1
    digest = host.machine.digest()
    with pytest.raises(MachineVersionError, match="has been brought to machine version"):
        host.restore(bytes(state))
    assert host.machine.digest() == digest


def test_settings_travel_as_they_are(newer):
    newer.settle_down()
    machine = newer.hosts[2].machine
    assert encode_settings(machine.settings) == encode_settings(limited(5))
