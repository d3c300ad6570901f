"""`rabbitmqctl` against the real HTTP API, with a fake node behind it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace_broker.catalog.command import DeclareQueue, PutUser
from headrace_broker.cli.rabbitmqctl import operation
from headrace_broker.cli.rabbitmqctl.main import run
from headrace_broker.cli.rabbitmqctl.output import Words, shown
from headrace_broker.management.server import ManagementServer
from headrace_broker.model.status import (
    ChannelStatus,
    ConnectionStatus,
    ConsumerStatus,
    LeaseGroupStatus,
)
from headrace_broker.runtime.clients.client_list import ClientListing, ClientRow
from headrace_broker.runtime.security.password import PasswordChecker, new_user

NAME = "10.0.0.1:5000 -> 10.0.1.1:5672"


class Served:
    """A management server on a loop of its own."""

    def __init__(self, node: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = ManagementServer(node, node)
        self.port = self.loop.run_until_complete(self.server.start("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.run_until_complete(self.server.stop())
        self.loop.close()


Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctl(fake_node, capsys, monkeypatch) -> Iterator[Ctl]:
    """Runs a command line; gives exit code, output and errors."""
    served = Served(fake_node)
    monkeypatch.setenv("HEADRACE_API", f"127.0.0.1:{served.port}")

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    yield command
    served.stop()


@pytest.fixture
def busy(fake_node):
    """A connection with a channel and a consumer."""
    connection = ConnectionStatus(
        *("n1", "n1/1/7", NAME, "guest", "/", "PLAIN"),
        *(1700, "running", 2047, 131072, 60, 1),
        client_properties={"connection_name": "shop"},
    )
    consumer = ConsumerStatus("tag", "q", True, False, 10, {"x-priority": 1})
    channel = ChannelStatus(3, 10, 0, True, 4, 5, (consumer,))
    fake_node.listing = ClientListing([ClientRow(connection), ClientRow(connection, channel)])
    return fake_node


def test_names_move_no_cursor_and_begin_no_column(ctl, busy):
    consumer = ConsumerStatus("a\tb\x1b[2J", "q", True, False, 10, {})
    [connection, _] = busy.listing.rows
    channel = ChannelStatus(3, 10, 0, True, 4, 5, (consumer,))
    busy.listing = ClientListing([connection, ClientRow(connection.connection, channel)])
    out = ctl("-q", "list_consumers", "queue_name", "consumer_tag")[1]
    assert out.splitlines()[-1] == "q\ta\\tb\\x1b[2J"


def test_vhosts(ctl):
    assert ctl("add_vhost", "v1") == (0, 'Adding vhost "v1" ...\n', "")
    assert ctl("add_vhost", "v1")[0] == 0
    assert ctl("list_vhosts") == (0, "Listing vhosts ...\nname\n/\nv1\n", "")
    assert ctl("-q", "list_vhosts", "name", "tracing")[1] == "name\ttracing\n/\tfalse\nv1\tfalse\n"
    assert ctl("delete_vhost", "v1") == (0, 'Deleting vhost "v1" ...\n', "")
    assert ctl("delete_vhost", "v1")[::2] == (65, "Error:\nno vhost 'v1'\n")


def test_users(ctl, fake_node):
    code, out, _ = ctl("add_user", "bob", "pw")
    assert (code, out.splitlines()[0]) == (0, 'Adding user "bob" ...')
    assert ctl("add_user", "bob", "pw")[::2] == (70, 'Error:\nUser "bob" already exists\n')
    code, out, _ = ctl("set_user_tags", "bob", "monitoring", "policymaker")
    assert out == 'Setting tags for user "bob" to [monitoring, policymaker] ...\n'
    assert PasswordChecker().verify(fake_node.view.user("bob"), "pw")
    assert "bob\t[monitoring, policymaker]\n" in ctl("list_users")[1]
    assert ctl("change_password", "bob", "new")[0] == 0
    assert PasswordChecker().verify(fake_node.view.user("bob"), "new")
    assert fake_node.view.user("bob").tags == ("monitoring", "policymaker")
    epoch = fake_node.catalog.session_epoch("bob")
    assert ctl("change_password", "bob", "newer", "--end-sessions")[0] == 0
    assert fake_node.catalog.session_epoch("bob") > epoch
    assert ctl("clear_password", "bob")[0] == 0
    assert not PasswordChecker().verify(fake_node.view.user("bob"), "new")
    assert ctl("delete_user", "bob") == (0, 'Deleting user "bob" ...\n', "")
    for command in (("delete_user", "bob"), ("change_password", "bob", "x")):
        assert ctl(*command)[::2] == (67, "Error:\nno user 'bob'\n")


def test_authentication_is_checked_with_the_users_own_password(ctl):
    assert ctl("-q", "authenticate_user", "alice", "alice")[0] == 0
    code, _, err = ctl("authenticate_user", "alice", "wrong")
    assert (code, err) == (65, 'Error:\nfailed to authenticate user "alice"\n')


def test_permissions(ctl):
    done = ctl("set_permissions", "-p", "/", "alice", "^a", ".*", "")
    assert done == (0, 'Setting permissions for user "alice" in vhost "/" ...\n', "")
    assert ctl("-q", "list_permissions")[1] == (
        "user\tconfigure\twrite\tread\nguest\t.*\t.*\t.*\nalice\t^a\t.*\t\n"
    )
    own = "vhost\tconfigure\twrite\tread\n/\t^a\t.*\t\n"
    assert ctl("list_user_permissions", "alice", "-q")[1] == own
    assert ctl("clear_permissions", "alice")[0] == 0
    assert ctl("-q", "list_user_permissions", "alice")[1] == ""
    code, _, err = ctl("set_permissions", "-p", "nope", "alice", "a", "b", "c")
    assert (code, err) == (65, "Error:\nno vhost 'nope'\n")


def test_topic_permissions(ctl):
    done = ctl("set_topic_permissions", "-p", "/", "alice", "amq.topic", "^a", "")
    said = 'Setting topic permissions on "amq.topic" for user "alice" in vhost "/" ...\n'
    assert done == (0, said, "")
    ctl("set_topic_permissions", "alice", "x", "^b", ".*")
    assert ctl("-q", "list_topic_permissions")[1] == (
        "user\texchange\twrite\tread\nalice\tamq.topic\t^a\t\nalice\tx\t^b\t.*\n"
    )
    said = 'Clearing topic permissions on "amq.topic" for user "alice" in vhost "/" ...\n'
    assert ctl("clear_topic_permissions", "alice", "amq.topic") == (0, said, "")
    own = "vhost\texchange\twrite\tread\n/\tx\t^b\t.*\n"
    assert ctl("list_user_topic_permissions", "alice", "-q")[1] == own
    assert ctl("clear_topic_permissions", "alice")[0] == 0
    assert ctl("-q", "list_topic_permissions")[1] == ""


@pytest.mark.parametrize(
    ("kind", "listing", "clear"),
    [
        ("set_policy", "list_policies", "clear_policy"),
        ("set_operator_policy", "list_operator_policies", "clear_operator_policy"),
    ],
)
def test_policies(ctl, kind, listing, clear):
    options = ("--priority", "2", "--apply-to", "queues")
    code, out, _ = ctl(kind, "-p", "/", "pol", "^q", '{"max-length":10}', *options)
    assert code == 0
    assert out.endswith(
        '"pol" for pattern "^q" to "{"max-length":10}" with priority "2" for vhost "/" ...\n'
    )
    assert ctl("-q", listing)[1] == (
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n"
        '/\tpol\t^q\tqueues\t{"max-length":10}\t2\n'
    )
    row = json.loads(ctl(listing, "--formatter", "json")[1])
    assert row[0]["definition"] == '{"max-length":10}'
    assert ctl(clear, "pol")[0] == 0
    assert ctl(clear, "pol")[0] == 70
    code, _, err = ctl(kind, "p", "(", '{"max-length":10}')
    assert (code, err.startswith("Error:\npattern: ")) == (70, True)
    assert ctl(kind, "p", "^", "x")[0] == 65
    assert ctl(kind, "p", "^", "[]")[2] == "Error:\ndefinition: must be a JSON object\n"


def test_limits(ctl):
    assert ctl("set_vhost_limits", '{"max-queues":5,"default-queue-max-length":1}')[0] == 0
    limits = '{"default-queue-max-length":1,"max-queues":5}\n'
    assert ctl("-q", "list_vhost_limits")[1] == limits
    assert ctl("-q", "list_vhost_limits", "--global")[1] == f"vhost\tlimits\n/\t{limits}"
    assert ctl("clear_vhost_limits")[1] == 'Clearing vhost "/" limits ...\n'
    assert ctl("-q", "list_vhost_limits")[1] == "{}\n"
    assert ctl("set_vhost_limits", '{"max-fun":5}')[0] == 70
    assert ctl("set_user_limits", "alice", '{"publish-rate-messages":5}')[0] == 0
    assert ctl("-q", "list_user_limits", "--user", "alice")[1] == '{"publish-rate-messages":5}\n'
    assert ctl("-q", "list_user_limits")[1] == 'user\tlimits\nalice\t{"publish-rate-messages":5}\n'
    assert ctl("clear_user_limits", "alice", "all")[0] == 0
    assert ctl("-q", "list_user_limits", "--user", "alice")[1] == "{}\n"


def test_queues_are_listed_as_scripts_know_them(ctl, fake_node):
    assert ctl("list_queues")[1] == "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\n"
    fake_node.do(DeclareQueue("/", "q1", "classic", arguments={"x-max-length": 5}))
    fake_node.do(DeclareQueue("/", "q2", "classic", durable=False))
    fake_node.messages = {"q1": 1, "q2": 0}
    assert ctl("-q", "list_queues")[1] == "name\tmessages\nq1\t1\nq2\t0\n"
    assert ctl("-q", "list_queues", "name", "durable", "arguments", "policy")[1] == (
        'name\tdurable\targuments\tpolicy\nq1\ttrue\t[{"x-max-length",5}]\t\nq2\tfalse\t[]\t\n'
    )
    assert ctl("-s", "list_queues", "name,type")[1] == "q1\tclassic\nq2\tclassic\n"
    assert ctl("list_queues", "-q", "--no-table-headers", "name")[1] == "q1\nq2\n"
    out = ctl("list_queues", "--formatter", "json", "name", "messages", "arguments")[1]
    assert out == (
        '[\n{"name":"q1","messages":1,"arguments":{"x-max-length":5}}\n'
        ',{"name":"q2","messages":0,"arguments":{}}\n]\n'
    )
    assert ctl("-s", "list_queues", "--offline")[1] == ""
    assert ctl("-s", "list_queues", "--online", "name")[1] == "q1\nq2\n"


def test_queues_are_purged_and_deleted(ctl, fake_node):
    fake_node.do(DeclareQueue("/", "q", "classic"))
    fake_node.messages = {"q": 3}
    assert ctl("purge_queue", "q") == (0, "Purging queue 'q' in vhost '/' ...\n", "")
    assert fake_node.purged == ["q"]
    assert ctl("delete_queue", "q", "--if-empty")[0] == 70
    assert ctl("delete_queue", "q") == (0, "Deleting queue 'q' on vhost '/' ...\n", "")
    assert ctl("delete_queue", "q")[::2] == (70, "Error:\nno queue 'q' in vhost '/'\n")


def test_exchanges_and_bindings(ctl, fake_node):
    fake_node.do(DeclareQueue("/", "q", "classic"))
    assert "\tdirect\namq.direct\tdirect\n" in ctl("-q", "list_exchanges")[1]
    assert ctl("-q", "list_bindings")[1] == (
        "source_name\tsource_kind\tdestination_name\tdestination_kind\trouting_key\targuments\n"
        "\texchange\tq\tqueue\tq\t[]\n"
    )


def test_clients_are_listed(ctl, busy):
    assert ctl("list_connections")[1] == (
        "Listing connections ...\nuser\tpeer_host\tpeer_port\tstate\n"
        "guest\t10.0.0.1\t5000\trunning\n"
    )
    out = ctl("-s", "list_connections", "pid", "name", "ssl", "client_properties")[1]
    assert out == f'n1/1/7\t{NAME}\tfalse\t[{{"connection_name","shop"}}]\n'
    assert ctl("-s", "list_connections", "user_provided_name")[1] == "shop\n"
    assert ctl("-s", "list_connections", "recv_oct", "send_cnt")[1] == "0\t0\n"
    assert ctl("-s", "list_channels")[1] == "n1/1/7/3\tguest\t1\t4\n"
    assert ctl("-s", "list_channels", "connection", "number")[1] == f"{NAME}\t3\n"
    out = ctl("-s", "list_consumers")[1]
    assert out == 'q\tn1/1/7/3\ttag\ttrue\t10\ttrue\t[{"x-priority",1}]\n'


def test_a_group_that_leases_messages_is_a_consumer_without_a_channel(ctl, fake_node):
    fake_node.leases.groups = [LeaseGroupStatus("/", "q", "g", "n1", 1, 2, 1, 0, 1, 1, 10)]
    assert ctl("-s", "list_consumers")[1] == "q\t\tg\ttrue\t0\ttrue\t[]\n"


def test_a_list_that_is_not_complete_says_so(ctl, busy):
    busy.listing = ClientListing(busy.listing.rows, ("n2",))
    assert ctl("list_connections")[::2] == (
        0,
        "Warning: the list is not complete: no answer from n2\n",
    )


def test_connections_are_closed_with_a_reason(ctl, busy):
    code, out, _ = ctl(
        "close_connection", NAME, "zu laut:\n\N{LATIN SMALL LETTER O WITH DIAERESIS}"
    )
    assert (code, out.startswith(f"Closing connection {NAME}, reason: ")) == (0, True)
    assert busy.closed == [(NAME, "zu laut: \N{LATIN SMALL LETTER O WITH DIAERESIS}")]
    assert ctl("close_connection", "gone", "bye")[::2] == (70, "Error:\nno connection 'gone'\n")
    assert "Closed 0 connections" in ctl("close_all_connections", "bye", "--limit", "1")[1]
    assert busy.closed[-1] == ("n1/1/7", "bye")
    assert ctl("-p", "/", "close_all_user_connections", "alice", "bye")[0] == 0
    assert len(busy.closed) == 3


def test_the_state_of_the_node(ctl):
    code, out, _ = ctl("status")
    assert code == 0
    assert "Node name: n1\nCluster name: test\n" in out
    assert json.loads(ctl("cluster_status", "--formatter", "json")[1])["cluster_name"] == "test"
    assert ctl("ping")[1].endswith("Ping succeeded\n")
    assert ctl("await_startup") == (0, "", "")
    assert ctl("version")[0] == 0


def test_shards_that_are_down_are_named_where_nodes_tell_of_them(capsys):
    names = {"product_version": "1", "leader": "n1", "compiled": True, "cluster_name": "c"}
    sums = {"connections": 0, "channels": 0, "queues": 0}
    old = {"name": "n1", "running": True, "being_drained": True}
    shards = [{"name": "n2:1", "running": False}, {**old, "name": "n2:2"}]
    new = {**old, "name": "n2", "being_drained": False, "shards": shards}
    whole = {**old, "shards": [{**old, "name": "n1:1"}]}
    for rows, told in (([old], False), ([whole, new], True)):
        overview = {**names, "node": "n1", "nodes": rows, "object_totals": sums}
        operation._print_overview({**overview, "queue_totals": {"messages": 0}})
        out = capsys.readouterr().out
        assert ("\nShards that are down: n2:1\n" in out) is told
        assert f"\nIn maintenance: {'n1, n2:2' if told else 'n1'}\n" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("add_user",), "Missing argument 'USER'"),
        (("list_queues", "nonsense"), "Info key(s) nonsense are not supported; supported are name"),
        (("list_queues", "--what"), "No such option"),
        (("eval", "1."), "eval is not supported: Headrace does not run on Erlang"),
        (("--api", "nowhere", "list_queues"), "--api: 'nowhere' must be HOST:PORT"),
        (("set_policy", "p", "^", "{}", "--priority", "x"), "'x' is not a valid integer"),
    ],
)
def test_a_wrong_use_is_64_and_says_why(ctl, arguments, said):
    code, _, err = ctl(*arguments)
    assert code == 64
    assert said in err


def test_a_node_that_does_not_answer_is_69(ctl, fake_node):
    code, _, err = ctl("-n", "127.0.0.1:1", "list_queues")
    assert code == 69
    assert "unable to perform an operation on the node at 127.0.0.1:1" in err
    assert ctl("-n", "127.0.0.1:1", "-t", "0.01", "await_startup")[0] == 69
    fake_node.lost = True
    assert ctl("add_vhost", "v")[::2] == (69, "Error:\nno quorum\n")


def test_a_user_that_may_not_is_77(ctl, monkeypatch, fake_node):
    assert ctl("-n", "rabbit@localhost", "list_users")[0] == 0
    monkeypatch.setenv("HEADRACE_API_USER", "mon")
    monkeypatch.setenv("HEADRACE_API_PASSWORD", "mon")
    code, _, err = ctl("list_users")
    assert (code, "administrator" in err) == (77, True)
    fake_node.do(PutUser(new_user("mon", "x", ("administrator",))))
    assert ctl("list_users")[0] == 0


def test_help_is_no_error(ctl):
    assert ctl("--help")[0] == 0
    assert "Set a policy" in ctl("set_policy", "--help")[1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (7, "7"),
        ("a\tb", "a\tb"),
        (
            {"k": 'v"\\', "t": {"x": [1, False, None]}},
            r'[{"k","v\"\\"},{"t",[{"x",[1,false,undefined]}]}]',
        ),
        (["a", "b"], '["a","b"]'),
        (Words(["a", "b"]), "[a, b]"),
    ],
)
def test_values_in_tables(value, text):
    assert shown(value) == text


def limit(node: Any, name: str) -> object:
    return node.flow_settings[name]


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (("set_vm_memory_high_watermark", "0.4"), "memory-high-watermark", "0.4"),
        (("set_vm_memory_high_watermark", "0"), "memory-high-watermark", "0.0"),
        (("set_vm_memory_high_watermark", "1"), "memory-high-watermark", "1.0"),
        (("set_vm_memory_high_watermark", "0.000000001"), "memory-high-watermark", "0.000000001"),
        (("set_vm_memory_high_watermark", "absolute", "77"), "memory-high-watermark", 77),
        (("set_vm_memory_high_watermark", "absolute", "2GiB"), "memory-high-watermark", 2 << 30),
        (("set_vm_memory_high_watermark", "absolute", "1M"), "memory-high-watermark", 1 << 20),
        (("set_vm_memory_high_watermark", "absolute", "3kB"), "memory-high-watermark", 3000),
        (("set_disk_free_limit", "2GB"), "disk-free-limit", 2 * 10**9),
        (("set_disk_free_limit", "mem_relative", "1.5"), "disk-free-limit", "1.5"),
    ],
)
def test_watermarks_are_set_for_all_nodes(ctl, fake_node, arguments, name, value):
    code, out, err = ctl(*arguments)
    assert (code, err) == (0, "")
    assert out.startswith("Setting ")
    assert limit(fake_node, name) == value


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("set_vm_memory_high_watermark",), 64, "FRACTION or absolute BYTES"),
        (("set_vm_memory_high_watermark", "relative", "0.5"), 64, "FRACTION or absolute BYTES"),
        (("set_vm_memory_high_watermark", "much"), 65, "'much' is no fraction"),
        (("set_vm_memory_high_watermark", "nan"), 65, "'nan' is no fraction"),
        (("set_vm_memory_high_watermark", "1.1"), 70, "memory-high-watermark: 1.1 is not"),
        (("set_vm_memory_high_watermark", "absolute", "2Gx"), 65, "'2Gx' is no number of bytes"),
        (("set_disk_free_limit", "2", "3"), 64, "BYTES or mem_relative FRACTION"),
        (("set_disk_free_limit", "mem_relative", "11"), 70, "disk-free-limit: 11.0 is not"),
    ],
)
def test_watermarks_that_cannot_be_are_refused(ctl, fake_node, arguments, code, error):
    before = [limit(fake_node, name) for name in ("memory-high-watermark", "disk-free-limit")]
    found, _, err = ctl(*arguments)
    assert (found, error in err) == (code, True), err
    after = [limit(fake_node, name) for name in ("memory-high-watermark", "disk-free-limit")]
    assert after == before
