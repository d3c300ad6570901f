"""Configuration: accepted values, refusals, and their texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_broker.config.configuration import Config, ConfigError, load_config, split_address
from headrace_broker.model import limits
from headrace_broker.runtime.node.configuration import raft_options
from headrace_raftlog.model import limits as raft_limits

MINIMAL = """\
[node]
id = 1
name = "n1"
data_dir = "store"

[cluster]
nodes = [
    { id = 1, name = "n1", address = "127.0.0.1:7101" },
    { id = 2, name = "n2", address = "[::1]:7102" },
]
"""
TLS = "[listeners]\namqps = 'h:5671'\n[tls]\ncertificate_file = 'c'\nkey_file = 'k'\n"
ENVIRONMENT = {
    "HEADRACE_NODE_ID": "2",
    "HEADRACE_NODE_NAME": "two",
    "HEADRACE_NODE_DATA_DIR": "/var/lib/headrace",
    "HEADRACE_CLUSTER_NODES": "1=one@one.local:7101, 2=two@two.local:7101",
    "HEADRACE_CLUSTER_JOIN_SECRET_FILE": "/etc/headrace/join-secret",
}


def load(directory: Path, text: str, environment: dict[str, str] | None = None) -> Config:
    path = directory / "node.toml"
    path.write_text(text)
    return load_config(path, environment or {})


def refusal(directory: Path, text: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(directory, text, environment)
    return str(caught.value).replace(f"{directory}/", "")


def test_a_minimal_file_gets_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)
    assert config.address == "127.0.0.1:7101"
    assert config.listeners.amqp == "127.0.0.1:5672"
    assert config.raft.tick_ms == 100
    assert config.limits.disk_free_bytes_min == 2 << 30


def test_the_environment_alone_is_enough() -> None:
    config = load_config(None, ENVIRONMENT)
    assert config.node.data_dir == "/var/lib/headrace"
    assert config.address == "two.local:7101"
    assert [node.id for node in config.cluster.nodes] == [1, 2]


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    text = MINIMAL + "[raft]\ntick_ms = 50\nelection_ticks = 20\n"
    config = load(tmp_path, text, {"HEADRACE_RAFT_TICK_MS": "200"})
    assert (config.raft.tick_ms, config.raft.election_ticks) == (200, 20)


def test_tls_is_configured_by_the_environment_too() -> None:
    tls = {
        "HEADRACE_LISTENERS_AMQP": "",
        "HEADRACE_LISTENERS_AMQPS": "0.0.0.0:5671",
        "HEADRACE_TLS_CERTIFICATE_FILE": "/c",
        "HEADRACE_TLS_KEY_FILE": "/k",
        "HEADRACE_TLS_CA_FILE": "/ca",
        "HEADRACE_TLS_VERIFY": "peer",
        "HEADRACE_TLS_FAIL_IF_NO_PEER_CERT": "true",
    }
    config = load_config(None, ENVIRONMENT | tls)
    assert (config.listeners.amqp, config.listeners.amqps) == ("", "0.0.0.0:5671")
    assert (config.tls.verify, config.tls.fail_if_no_peer_cert) == ("peer", True)
    assert config.tls.login_from == "none"


@pytest.mark.parametrize("secret", ["12345678", "['12345678']"])
def test_a_password_that_is_refused_is_not_shown(tmp_path: Path, secret: str) -> None:
    text = refusal(tmp_path, f"{MINIMAL}[tls]\nkey_password = {secret}\n")
    assert text.startswith("node.toml: tls.key_password: the value is not allowed; it must be ")
    assert "12345678" not in text


def test_variables_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    others = {
        "HEADRACE_NO_COMPILE": "1",
        "HEADRACE_CONFIG": "x",
        "PATH": "/bin",
        "RAFT_TICK_MS": "1",
    }
    assert load(tmp_path, MINIMAL, others) == load(tmp_path, MINIMAL)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (
            "[raft]\ntick_ms = 5\n",
            "node.toml: raft.tick_ms: 5 is not allowed; it must be an integer from 10 to 1000",
        ),
        (
            "[raft]\ntick_ms = '50'\n",
            "node.toml: raft.tick_ms: '50' is not allowed; it must be an integer from 10 to 1000",
        ),
        (
            "[listeners]\namqp = 'localhost'\n",
            "node.toml: listeners.amqp: 'localhost' is not allowed; "
            "it must be HOST:PORT, an IPv6 host in brackets, or empty for none",
        ),
        (
            "[listeners]\nmqtt = ':1883'\n",
            "node.toml: listeners.mqtt: unknown key; "
            "allowed are amqp, amqps, http, https, grpc, grpcs, metrics",
        ),
        (
            "[raftt]\n",
            "node.toml: raftt: unknown key; "
            "allowed are node, cluster, listeners, default_user, tls, cluster_tls, raft, limits, "
            "log, http, logging, metrics, tracing, telemetry",
        ),
        ("[listeners]\nhttp = ''\n", "listeners.http: must not be empty when listeners.https is"),
        (
            "[listeners]\nhttps = 'h'\n",
            "node.toml: listeners.https: 'h' is not allowed; "
            "it must be HOST:PORT, an IPv6 host in brackets, or empty for none",
        ),
        (
            "[listeners]\nhttps = 'h:15671'\n",
            "tls.certificate_file: is missing; listeners.https needs it",
        ),
        (
            "[listeners]\ngrpcs = 'h:5673'\n[tls]\ncertificate_file = 'c'\n",
            "tls.key_file: is missing; listeners.grpcs needs it",
        ),
        (TLS + "crl_file = 'r'\n", "tls.crl_file: is allowed with tls.verify = 'peer' only"),
        ("[listeners]\namqp = ''\n", "listeners.amqp: must not be empty when listeners.amqps is"),
        (
            "[listeners]\namqp = 'h:1'\nhttp = 'h:1'\n",
            "listeners.http: h:1 is that of listeners.amqp too",
        ),
        (
            "[listeners]\namqps = 'h:5671'\n",
            "tls.certificate_file: is missing; listeners.amqps needs it",
        ),
        (
            "[listeners]\namqps = 'h:5671'\n[tls]\ncertificate_file = 'c'\n",
            "tls.key_file: is missing; listeners.amqps needs it",
        ),
        (
            "[tls]\nkey_file = 'k'\n",
            "tls.key_file: has no use without listeners.amqps, https or grpcs",
        ),
        (TLS + "verify = 'peer'\n", "tls.ca_file: is missing; tls.verify = 'peer' needs it"),
        (
            TLS + "fail_if_no_peer_cert = true\n",
            "tls.fail_if_no_peer_cert: true is allowed with tls.verify = 'peer' only",
        ),
        (
            TLS + "login_from = 'common_name'\n",
            "tls.login_from: 'common_name' is allowed with tls.verify = 'peer' only",
        ),
        (
            TLS + "verify = 'yes'\n",
            "node.toml: tls.verify: 'yes' is not allowed; it must be 'none' or 'peer'",
        ),
        (
            TLS + "login_from = 'cn'\n",
            "node.toml: tls.login_from: 'cn' is not allowed; "
            "it must be 'none' or 'common_name' or 'distinguished_name'",
        ),
        (
            TLS + "fail_if_no_peer_cert = 1\n",
            "node.toml: tls.fail_if_no_peer_cert: 1 is not allowed; it must be true or false",
        ),
        (
            TLS + "ca_file = 7\n",
            "node.toml: tls.ca_file: 7 is not allowed; "
            "it must be the path of a file, or empty for none",
        ),
        ("[listeners]\nhttp = 'h:70000'\n", "listeners.http: h:70000: port must be 0 to 65535"),
        (
            "[raft]\nelection_ticks = 5\nheartbeat_ticks = 5\n",
            "raft.heartbeat_ticks: 5 must be less than raft.election_ticks, 5",
        ),
        (
            "[log]\nsegment_bytes = 1048577\n",
            "node.toml: log.segment_bytes: 1048577 is not allowed; "
            "it must be an integer from 1048576 to 1073741824, a multiple of 4096",
        ),
        (
            "[log]\nsegment_bytes = 1048576\n",
            "log.segment_bytes: 1048576 must be at least 34078720 for limits.message_bytes_max, "
            "16777216",
        ),
        (
            "[limits]\nmessage_bytes_max = 536870913\n",
            "node.toml: limits.message_bytes_max: 536870913 is not allowed; "
            "it must be an integer from 1024 to 536870912",
        ),
        (
            "[log]\nsegment_bytes = 33554432\n[limits]\nmessage_bytes_max = 536870912\n",
            "log.segment_bytes: 33554432 must be at least 65536000 for limits.message_bytes_max, "
            "536870912",
        ),
        (
            "[log]\nsegment_bytes = 1048576\n[limits]\nmessage_bytes_max = 1024\n",
            "log.segment_bytes: 1048576 must be at least 1572864 for limits.message_bytes_max, "
            "1024",
        ),
    ],
)
def test_a_bad_value_is_refused_by_name_and_range(
    tmp_path: Path, extra: str, expected: str
) -> None:
    assert refusal(tmp_path, MINIMAL + extra) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"HEADRACE_LOG_SEGMENT_BYTES": "1"},
            "HEADRACE_LOG_SEGMENT_BYTES: log.segment_bytes: 1 is not allowed; "
            "it must be an integer from 1048576 to 1073741824, a multiple of 4096",
        ),
        (
            {"HEADRACE_LOG_SEGMENT_BYTES": "64MiB"},
            "HEADRACE_LOG_SEGMENT_BYTES: log.segment_bytes: '64MiB' is not allowed; "
            "it must be an integer from 1048576 to 1073741824, a multiple of 4096",
        ),
        (
            {"HEADRACE_LOG_SEGMENTS": "1"},
            "HEADRACE_LOG_SEGMENTS: log.segments: unknown key; "
            "allowed are segment_bytes, cache_bytes, snapshot_every_bytes",
        ),
        (
            {"HEADRACE_CLUSTER_NODES": "n1@h:1"},
            "HEADRACE_CLUSTER_NODES: 'n1@h:1' is not ID=NAME@HOST:PORT",
        ),
        ({"HEADRACE_CLUSTER_NODES": "1=n1@h:1,1=n2@h:2"}, "cluster.nodes: id 1 is given twice"),
        (
            {"HEADRACE_CLUSTER_NODES": "1=n1@h:1,2=n2@h:1"},
            "cluster.nodes: address h:1 is given twice",
        ),
        ({"HEADRACE_CLUSTER_NODES": "1=n1@h:0"}, "cluster.nodes n1: h:0: port must be 1 to 65535"),
        ({"HEADRACE_NODE_ID": "3"}, "node.id: 3 is not in cluster.nodes; there are 1, 2"),
        (
            {"HEADRACE_NODE_ID": "1024"},
            "HEADRACE_NODE_ID: node.id: 1024 is not allowed; it must be an integer from 1 to 1023",
        ),
        (
            {"HEADRACE_TLS_FAIL_IF_NO_PEER_CERT": "yes"},
            "HEADRACE_TLS_FAIL_IF_NO_PEER_CERT: tls.fail_if_no_peer_cert: 'yes' is not allowed; "
            "it must be true or false",
        ),
        ({"HEADRACE_NODE_NAME": "n2"}, "node.name: 'n2' is called 'n1' in cluster.nodes"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(
    tmp_path: Path, environment: dict[str, str], expected: str
) -> None:
    assert refusal(tmp_path, MINIMAL, environment) == expected


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    text = MINIMAL.replace('data_dir = "store"\n', "")
    assert refusal(tmp_path, text) == "node.toml: node.data_dir: is missing"
    assert refusal(tmp_path, "") == "node.toml: node: is missing"


def test_a_value_inside_a_list_is_named_with_its_position(tmp_path: Path) -> None:
    text = MINIMAL.replace('name = "n2"', 'name = "n 2"')
    assert refusal(tmp_path, text).startswith("node.toml: cluster.nodes[1].name: 'n 2' is not")


def test_a_section_that_is_no_table_is_refused(tmp_path: Path) -> None:
    text = "raft = 1\n" + MINIMAL
    assert "raft: 1 is not allowed; it must be a table" in refusal(tmp_path, text)
    assert "raft: must be a table" in refusal(tmp_path, text, {"HEADRACE_RAFT_TICK_MS": "50"})


def test_a_file_that_is_no_toml_or_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "[node\n").startswith("node.toml: not valid TOML: ")
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read: No such file"):
        load_config(tmp_path / "gone.toml", {})


@pytest.mark.parametrize(
    ("address", "parts"),
    [("localhost:0", ("localhost", 0)), ("[::1]:5672", ("::1", 5672)), ("a-b.c:1", ("a-b.c", 1))],
)
def test_an_address_is_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


def test_limits_of_flow_control_are_given_where_they_are_not_the_default(tmp_path: Path) -> None:
    text = MINIMAL + "[limits]\nmemory_high_watermark = 0.4\naccount_messages = 50\n"
    environment = {
        "HEADRACE_LIMITS_MEMORY_PAGING_WATERMARK": "0.25",
        "HEADRACE_LIMITS_QUEUE_COMMANDS": "5",
    }
    assert load(tmp_path, text, environment).limits.flow() == {
        "disk-free-limit": 2 << 30,
        "memory-high-watermark": "0.4",
        "memory-paging-watermark": "0.25",
        "account-messages": 50,
        "queue-commands": 5,
    }
    text = MINIMAL + "[limits]\nmemory_high_watermark = 1073741824\n"
    assert load(tmp_path, text).limits.flow()["memory-high-watermark"] == 1 << 30


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "queue_commands = 0",
            "limits.queue_commands: 0 is not an integer from 1 to 1000000 (commands)",
        ),
        (
            "queue_commands = 0.5",
            "node.toml: limits.queue_commands: 0.5 is not allowed; it must be an integer",
        ),
        ("account_bytes = -1", "limits.account_bytes: -1 is not an integer from 1 to "),
        ("memory_high_watermark = 1.5", "limits.memory_high_watermark: 1.5 is not an integer"),
        ("memory_high_watermark = 'much'", "limits.memory_high_watermark: 'much' is not allowed"),
        ("memory_high_watermark = nan", "limits.memory_high_watermark: nan is not an integer"),
    ],
)
def test_limits_of_flow_control_are_checked_at_the_start(
    tmp_path: Path, line: str, reason: str
) -> None:
    assert reason in refusal(tmp_path, MINIMAL + "[limits]\n" + line)


def test_a_node_that_says_its_name_alone_has_the_id_of_that_name(tmp_path: Path) -> None:
    text = MINIMAL.replace('id = 1\nname = "n1"\n', "")
    assert load(tmp_path, text, {"HEADRACE_NODE_NAME": "n2"}).node.id == 2
    assert "node.id: is missing" in refusal(tmp_path, text, {"HEADRACE_NODE_NAME": "n3"})
    assert "node.id: is missing" in refusal(tmp_path, text)


def test_a_node_is_in_the_zone_of_its_pod_unless_it_names_another(tmp_path: Path) -> None:
    pod = {"HEADRACE_POD_ZONE": "eu-1b"}
    assert load(tmp_path, MINIMAL, pod).node.zone == "eu-1b"
    assert load(tmp_path, MINIMAL, {"HEADRACE_POD_ZONE": ""}).node.zone == ""
    assert load(tmp_path, MINIMAL, {**pod, "HEADRACE_NODE_ZONE": "rack-7"}).node.zone == "rack-7"
    refused = refusal(tmp_path, MINIMAL, {"HEADRACE_POD_ZONE": "eu 1b"})
    assert refused.startswith("HEADRACE_POD_ZONE: node.zone: 'eu 1b' is not allowed; "), refused


def test_where_a_node_listens_for_others_may_differ_from_its_address(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL).cluster.listen == ""
    environment = {
        "HEADRACE_CLUSTER_LISTEN": "0.0.0.0:7101",
        "HEADRACE_CLUSTER_JOIN_SECRET_FILE": "/secret",
    }
    config = load(tmp_path, MINIMAL, environment)
    assert (config.cluster.listen, config.address) == ("0.0.0.0:7101", "127.0.0.1:7101")
    environment = {"HEADRACE_CLUSTER_LISTEN": "0.0.0.0:0"}
    assert refusal(tmp_path, MINIMAL, environment) == (
        "cluster.listen: 0.0.0.0:0: port must be 1 to 65535"
    )


def test_a_default_user_other_than_guest_needs_a_password(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL).default_user.name == "guest"
    assert refusal(tmp_path, MINIMAL + "[default_user]\nname = 'admin'\n") == (
        "default_user.password_file: is missing; default_user.name 'admin' needs it"
    )


@pytest.mark.parametrize(
    ("nodes", "listen", "key"),
    [
        ("1=n1@10.0.0.1:7101", "", "cluster.nodes n1: 10.0.0.1:7101"),
        ("1=n1@127.0.0.1:7101", "0.0.0.0:7101", "cluster.listen: 0.0.0.0:7101"),
        ("1=n1@127.0.0.1:7101,2=n2@b.example:7101", "", "cluster.nodes n2: b.example:7101"),
        ("1=n1@[::ffff:10.0.0.1]:7101", "", "cluster.nodes n1"),
    ],
)
def test_nodes_off_loopback_are_refused_without_proof_of_who_they_are(
    nodes: str, listen: str, key: str
) -> None:
    environment = {
        "HEADRACE_NODE_NAME": "n1",
        "HEADRACE_NODE_DATA_DIR": "/data",
        "HEADRACE_CLUSTER_NODES": nodes,
        "HEADRACE_CLUSTER_LISTEN": listen,
    }
    with pytest.raises(ConfigError) as refused:
        load_config(None, environment)
    assert str(refused.value).startswith(key)
    assert "cluster.join_secret_file" in str(refused.value)
    assert "cluster_tls.certificate_file" in str(refused.value)
    with_secret = environment | {"HEADRACE_CLUSTER_JOIN_SECRET_FILE": "/secret"}
    config = load_config(None, with_secret)
    assert not config.cluster.admit_nodes
    assert config.cluster.join_secret_required
    files = ("certificate_file", "key_file", "ca_file")
    load_config(
        None, environment | {f"HEADRACE_CLUSTER_TLS_{key.upper()}": "/file" for key in files}
    )


@pytest.mark.parametrize("host", ["localhost", "127.8.8.8", "[::1]", "[::ffff:127.0.0.1]"])
def test_nodes_on_loopback_need_no_proof(host: str) -> None:
    nodes = f"1=n1@{host}:7101"
    load_config(
        None,
        {
            "HEADRACE_NODE_NAME": "n1",
            "HEADRACE_NODE_DATA_DIR": "/data",
            "HEADRACE_CLUSTER_NODES": nodes,
        },
    )


def test_letting_nodes_in_without_the_proof_needs_a_secret() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.join_secret_required: has no use without"):
        load_config(
            None,
            ENVIRONMENT
            | {
                "HEADRACE_CLUSTER_JOIN_SECRET_REQUIRED": "false",
                "HEADRACE_CLUSTER_JOIN_SECRET_FILE": "",
            },
        )


def test_names_by_which_a_node_is_asked_come_as_a_list_or_with_commas(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL).http.hosts == ()
    text = MINIMAL + '[http]\nhosts = ["a.example", "*.b.example"]\n'
    assert load(tmp_path, text).http.hosts == ("a.example", "*.b.example")
    environment = {"HEADRACE_HTTP_HOSTS": "c.example, *.d.example,"}
    assert load(tmp_path, text, environment).http.hosts == ("c.example", "*.d.example")
    bad = {"HEADRACE_HTTP_HOSTS": "a.example:15672"}
    assert refusal(tmp_path, MINIMAL, bad) == (
        "HEADRACE_HTTP_HOSTS: http.hosts[0]: 'a.example:15672' is not allowed; it must be the name "
        "of a host, without a port, or '*.' and what names end with"
    )


def test_the_largest_message_fits_an_entry_of_the_log_with_its_head():
    head = limits.TX_EXTRA_BYTES + limits.ENTRY_OVERHEAD_BYTES
    assert limits.MESSAGE_BYTES_CEILING + head <= raft_limits.ENTRY_BYTES_MAX
    assert limits.MESSAGE_BYTES_CEILING + head <= raft_limits.PAYLOAD_BYTES_MAX


def test_bounds_of_the_log_follow_the_largest_message_beyond_what_all_nodes_take(tmp_path):
    found = []
    for byte_count in (16 << 20, limits.MESSAGE_BYTES_PLAIN, limits.MESSAGE_BYTES_CEILING):
        file = tmp_path / "node.toml"
        file.write_text(f"{MINIMAL}\n[limits]\nmessage_bytes_max = {byte_count}\n")
        options = raft_options(load_config(file, {}))
        found.append(
            (
                options.outbox_bytes_max >> 20,
                options.log.backlog_bytes_max >> 20,
                options.core.queued_bytes_max >> 20,
                options.log.entry_bytes_max,
            )
        )
    plain = (48, 256, 48, raft_limits.ENTRY_BYTES_MAX)
    assert found == [plain, plain, (529, 737, 529, raft_limits.ENTRY_BYTES_MAX)]
