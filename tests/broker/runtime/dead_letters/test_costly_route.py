"""Letters whose routes take more steps than a message may, in queues that keep them."""

from __future__ import annotations

from typing import Any

from pamqp.commands import Basic
from tests.broker.runtime.dead_letters.test_at_least_once import Source, until

from headrace_broker.catalog import command as commands
from headrace_broker.model.definition import Binding
from headrace_broker.runtime.dead_letter import at_least_once
from headrace_broker.runtime.dead_letter.dead_letter import address


def test_letter_whose_route_costs_too_much_is_kept_and_not_routed_again(
    network, letter, run, turns, monkeypatch, caplog
):
    monkeypatch.setattr(at_least_once, "RETRY_SECONDS_MIN", 0.0)
    network.queue("dead")
    service, source = network.service(), Source(network.queue("work"), letter)
    keys = [".".join("a" * 126) + f".{number}" for number in range(32)]
    headers: Any = {"CC": keys}
    properties = bytes(Basic.Properties(headers=headers).marshal())
    patterns = ["#.a." * 62 + f"w{number}" for number in range(900)]
    network.exchange("costly", "topic")
    for pattern in patterns:
        network.bind("costly", "dead", pattern)
    source.arguments = {"dead-letter-exchange": "costly"}
    read, addressed = source.dead_letters, []

    def letters(messages, reason, done):
        found = read(messages, reason, done)
        for each in found:
            each.properties = properties
        return found

    def counted(*arguments):
        addressed.append(address(*arguments))
        return addressed[-1]

    monkeypatch.setattr(source, "dead_letters", letters)
    monkeypatch.setattr(at_least_once, "address", counted)

    async def scenario():
        source.add(1)
        service.keep(source)
        await until(lambda: source.reads > 5)
        assert source.proposed == []
        assert len(addressed) == 1
        [record] = caplog.records
        assert "kept, for its route at its dead letter exchange takes" in record.message
        for pattern in patterns:
            network.do(commands.Unbind(Binding("/", "costly", "queue", "dead", pattern)))
        network.bind("costly", "dead", "new")
        await until(lambda: any(each.queue.name == "dead" for each in network.opened))
        network.session("dead").confirm()
        await turns()
        assert source.proposed == [[1]]
        service.stop()

    run(scenario)
