"""The toy state machine."""

from __future__ import annotations

from array import array

from headrace_raftlog.model.entry import ENTRY_CONFIG, ENTRY_NORMAL, Entry
from headrace_simulation.simulator.machine import Machine


def applied(*commands):
    machine = Machine()
    dead = [machine.apply(Entry(at, 1, ENTRY_NORMAL, one)) for at, one in enumerate(commands, 1)]
    return machine, dead


def test_writes_keeps_and_drops():
    machine, dead = applied(b"w7 1", b"k8", b"k9     ", b"d10 1", b"w11 0   ")
    assert (machine.registers, machine.live, machine.applied) == ([11, 7, 0], [3], 5)
    assert dead == [[], [], [], [2], []]


def test_what_is_no_command_changes_the_digest_only():
    machine, _ = applied(b"w7 1")
    before = (machine.digest, list(machine.registers))
    machine.apply(Entry(2, 1, ENTRY_CONFIG, b"k"))
    assert (machine.live, machine.registers) == ([], before[1])
    assert machine.digest != before[0]


def test_state_and_live_list_are_all_there_is():
    machine, _ = applied(b"w7 1", b"k8", b"k9")
    other = Machine()
    other.restore(machine.state(), array("Q", machine.live))
    assert (other.state(), other.live) == (machine.state(), machine.live)
    after = Entry(4, 2, ENTRY_NORMAL, b"d5 1")
    assert other.apply(after) == machine.apply(after) == [2]
    assert other.digest == machine.digest


def test_digest_depends_on_order_and_term():
    assert applied(b"k1", b"k2")[0].digest != applied(b"k2", b"k1")[0].digest
    later = Machine()
    later.apply(Entry(1, 2, ENTRY_NORMAL, b"k1"))
    assert later.digest != applied(b"k1")[0].digest
