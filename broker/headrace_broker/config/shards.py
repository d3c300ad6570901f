"""The configuration of each process of a node that has several."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from headrace_broker.config.configuration import LISTENERS, Config
from headrace_broker.config.cores import core_count
from headrace_broker.model.limits import NODES_MAX
from headrace_broker.model.shard import SHARD_IDS, SHARD_PORTS, SHARDS_MAX, shard_id, shard_name

_CORES_MIN: Final = 4  # a host with fewer gets one process
_DIRECTORY: Final = "shard-"  # within the node's own data directory, before the process's number
_SHARE_BYTES_MIN: Final = 1 << 20  # of what is shared out, whatever that comes to
_PORT_MAX: Final = 65535


def shard_count(config: Config) -> int:
    """Return how many processes a node has: for `auto` half of its cores, but at least one.

    With `auto` there are never fewer than there were, because each has replicas of its own.
    """
    wanted = config.node.shards
    if isinstance(wanted, int):
        return wanted
    cores = core_count()
    fitting = min(SHARDS_MAX, cores // 2, NODES_MAX // len(config.cluster.nodes))
    there = max(_numbers(config), default=0) + 1
    return max(1 if cores < _CORES_MIN else fitting, there)


def count_problem(config: Config, count: int) -> str:
    """Return why a node cannot have so many processes, "" when it can."""
    problem = members_problem(count, len(config.cluster.nodes))
    return problem or leftover_problem(config, count) or _ports_problem(config, count)


def members_problem(count: int, nodes: int) -> str:
    """Return why a cluster cannot have so many nodes of so many processes, "" when it can."""
    if count == 1 or count * nodes <= NODES_MAX:
        return ""
    text = f"node.shards: {count} on each of {nodes} nodes are more than {NODES_MAX}"
    return f"{text}, which a cluster has at most"


def _ports_problem(config: Config, count: int) -> str:
    """Return which port two listeners of a node's processes would share, or is none, "" for all."""
    listeners = config.listeners
    taken = {
        _port(getattr(listeners, name)): f"listeners.{name}"
        for name in LISTENERS
        if getattr(listeners, name)
    }
    others = {_host_port(each.address): each for each in config.cluster.nodes}
    for shard in range(count if count > 1 else 0):
        own = shard_config(config, shard, count)
        peers = own.cluster.listen or own.address
        used = {"listening for other nodes": _port(peers)}
        if own.cluster.frames_port:
            used["cluster.frames_port"] = own.cluster.frames_port
        if shard and own.listeners.metrics:
            used["listeners.metrics"] = _port(own.listeners.metrics)
        for what, port in used.items():
            name = f"{own.node.name}, {what}"
            if port > _PORT_MAX:
                return f"node.shards: {name}: port {port} is more than {_PORT_MAX}"
            if port in taken:
                return f"node.shards: {name}: port {port} is that of {taken[port]}"
            taken[port] = name
        twin = others.get(_host_port(own.address))
        if twin is not None and twin.id != own.node.id:
            return f"node.shards: {own.node.name} would have the address of {twin.name}"
        if shard and any(each.id == own.node.id for each in config.cluster.nodes):
            return f"node.shards: {own.node.name} would have the id of another node"
    return ""


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _host_port(address: str) -> tuple[str, int]:
    return address.rpartition(":")[0].lower(), _port(address)


def leftover_problem(config: Config, count: int) -> str:
    """Return why a node must not run fewer processes than there are data of, "" when it may."""
    beyond = [number for number in _numbers(config) if number >= count]
    if not beyond:
        return ""
    number = max(beyond)
    name = shard_name(config.node.name, number)
    return (
        f"node.shards: {count}, but {directory_of(config, number)} holds the data of {name}. Start "
        f"the node with node.shards = {number + 1}, remove the process with 'headrace node drain "
        f"{name}' and 'headrace node forget {name} --replicas move', stop the node, and remove "
        "that directory"
    )


def directory_of(config: Config, shard: int) -> str:
    """Return the data directory of a node's process."""
    first = config.node.data_dir
    return str(Path(first, f"{_DIRECTORY}{shard}")) if shard else first


def shard_config(config: Config, shard: int, count: int) -> Config:
    """Return what one process of a node is told, of which there are `count`.

    Connections, the cache of entries and the disk space of telemetry are shared out evenly;
    memory is counted together (`runtime.alarm.memory_meter`). Only the first one serves HTTP.
    """
    node = config.node
    name, number = shard_name(node.name, shard), shard_id(node.id, shard)
    own = replace(node, id=number, name=name, data_dir=directory_of(config, shard), shards=count)
    cluster, listeners, audit = config.cluster, config.listeners, config.logging.audit_file
    if shard:
        seed = next(each for each in cluster.nodes if each.id == node.id)
        seed = replace(seed, id=number, name=name, address=moved(seed.address, shard))
        port = cluster.frames_port
        cluster = replace(
            cluster,
            nodes=(*cluster.nodes, seed),
            listen=moved(cluster.listen, shard),
            frames_port=port + SHARD_PORTS * shard if port else 0,
        )
        metrics = moved(listeners.metrics, shard)
        listeners = replace(listeners, http="", https="", metrics=metrics)
        audit = f"{audit}-shard-{shard}" if audit else ""
    limits = config.limits
    cache = max(config.log.cache_bytes // count, _SHARE_BYTES_MIN)
    kept = max(config.telemetry.bytes_max // count, _SHARE_BYTES_MIN)
    return replace(
        config,
        node=own,
        cluster=cluster,
        listeners=listeners,
        limits=replace(limits, connections_max=max(limits.connections_max // count, 1)),
        log=replace(config.log, cache_bytes=cache),
        logging=replace(config.logging, audit_file=audit),
        telemetry=replace(config.telemetry, bytes_max=kept),
    )


def process_ids(config: Config) -> frozenset[int]:
    """Return the ids of all processes of the node that a process was told it belongs to."""
    own, count = config.node.id, config.node.shards
    if not isinstance(count, int) or count == 1:
        return frozenset({own})
    return frozenset(shard_id(own % SHARD_IDS, shard) for shard in range(count))


def has_siblings(config: Config) -> bool:
    """Return whether a process was told that its node has others."""
    return config.node.shards != 1


def moved(address: str, shard: int) -> str:
    """Return where a further process listens, "" for nowhere."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + SHARD_PORTS * shard}" if address else ""


def _numbers(config: Config) -> list[int]:
    """Return the numbers of further processes that have data."""
    found = Path(config.node.data_dir).glob(f"{_DIRECTORY}*")
    numbers = [path.name.removeprefix(_DIRECTORY) for path in found]
    return [int(number) for number in numbers if number.isdecimal()]
