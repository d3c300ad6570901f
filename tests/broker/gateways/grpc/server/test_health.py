"""Health is watched from places that no address has alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from tests.broker.gateways.grpc.stranger import Stranger

from headrace_broker.gateways.grpc.server.health import HealthService
from headrace_broker.model.limits import HEALTH_WATCHES_MAX, HEALTH_WATCHES_OF_ADDRESS


def test_one_address_does_not_have_all_places_of_who_watches_health() -> None:
    async def scenario() -> None:
        service = HealthService(lambda: "", [])

        async def watch(address: str) -> Any:
            context: Any = Stranger(address)
            answers: Any = service.Watch(HealthCheckRequest(), context)
            await anext(answers)
            return answers

        watches = [await watch("10.0.0.1") for _ in range(HEALTH_WATCHES_OF_ADDRESS)]
        with pytest.raises(ConnectionRefusedError, match="RESOURCE_EXHAUSTED"):
            await watch("10.0.0.1")
        addresses = HEALTH_WATCHES_MAX // HEALTH_WATCHES_OF_ADDRESS
        for number in range(2, addresses + 1):
            address = f"10.0.0.{number}"
            watches += [await watch(address) for _ in range(HEALTH_WATCHES_OF_ADDRESS)]
        watches.append(await watch("10.0.1.1"))
        with pytest.raises(ConnectionRefusedError, match="RESOURCE_EXHAUSTED"):
            await anext(watches[0])
        for each in watches:
            await each.aclose()
        assert service._watches.taken == 0

    asyncio.run(scenario())


def test_who_watches_health_stays_where_nobody_has_more_places() -> None:
    async def scenario() -> None:
        service = HealthService(lambda: "", [])
        contexts: list[Any] = [Stranger(f"10.0.0.{number}") for number in range(HEALTH_WATCHES_MAX)]
        watches: list[Any] = [service.Watch(HealthCheckRequest(), each) for each in contexts]
        for each in watches:
            await anext(each)
        stranger: Any = Stranger("10.0.1.1")
        late = service.Watch(HealthCheckRequest(), stranger)
        with pytest.raises(ConnectionRefusedError, match="RESOURCE_EXHAUSTED"):
            await anext(late)
        for each in watches:
            await each.aclose()

    asyncio.run(scenario())
