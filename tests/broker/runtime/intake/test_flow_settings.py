"""Limits of flow control: what the cluster sets, the configuration, the defaults."""

from __future__ import annotations

import pytest

from headrace_broker.catalog.event import ParameterChanged, UserLimitsChanged
from headrace_broker.catalog.view import CatalogView
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.flow_parameter import (
    PARAMETERS,
    RELATIVE,
    attribute_name,
    parameter_problem,
)
from headrace_broker.runtime.intake.client_flow import ClientFlow
from headrace_broker.runtime.intake.flow_settings import FlowSettings, Setting

NOT_A_PARAMETER = {"share"}  # follows from memory


def test_the_table_has_every_figure_of_flow_limits_with_its_default():
    limits = FlowLimits()
    names = [name for name in dir(limits) if not name.startswith("_")]
    figures = {name for name in names if isinstance(getattr(limits, name), int)}
    plain = {attribute_name(name) for name in PARAMETERS if name not in RELATIVE}
    assert plain == figures - NOT_A_PARAMETER
    for name, parameter in PARAMETERS.items():
        assert parameter_problem(name, parameter.default) == ""
        if name not in RELATIVE:
            assert getattr(limits, attribute_name(name)) == parameter.default


def test_the_log_tells_of_limits_that_are_set_and_reset(caplog):
    caplog.set_level("INFO")
    settings = FlowSettings(FlowLimits(), {"queue-commands": 7})
    settings.on_events([ParameterChanged("queue-commands", 9)])
    settings.on_events([ParameterChanged("queue-commands", None), ParameterChanged("credit", None)])
    assert [record.getMessage() for record in caplog.records] == [
        "limit queue-commands set to 9 for all nodes",
        "limit queue-commands reset to this node's configuration: 7",
    ]


def test_the_cluster_comes_before_the_configuration_before_the_default():
    limits = FlowLimits()
    settings = FlowSettings(limits, {"queue-commands": 7, "memory-high-watermark": "0.4"})
    told: list[int] = []
    settings.watch(lambda: told.append(int(limits.queue_commands)))
    assert limits.queue_commands == 7
    assert settings.find("queue-commands") == Setting(7, 7, "configuration")
    assert settings.find("credit") == Setting(400, 400, "default")
    settings.on_events([ParameterChanged("queue-commands", 9), ParameterChanged("credit", 50)])
    assert (limits.queue_commands, limits.credit) == (9, 50)
    assert settings.find("queue-commands") == Setting(9, 7, "cluster")
    settings.on_events([ParameterChanged("queue-commands", None)])
    assert limits.queue_commands == 7
    assert settings.find("memory-high-watermark").value == "0.4"
    settings.on_events([ParameterChanged("memory-high-watermark", 5000)])
    assert settings.find("memory-high-watermark").value == 5000
    assert told == [9, 7, 7]


def test_what_another_version_has_set_and_this_one_does_not_know_changes_nothing(caplog):
    limits = FlowLimits()
    settings = FlowSettings(limits, {})
    told: list[int] = []
    settings.watch(lambda: told.append(1))
    settings.on_events([ParameterChanged("warp", 9), ParameterChanged("queue-commands", -1)])
    settings.on_events([ParameterChanged("warp", None)])
    assert limits.queue_commands == 32
    assert told == []
    assert caplog.text.count("cluster limit ignored") == 2


def test_the_share_is_told_when_it_changes():
    limits = FlowLimits()
    settings = FlowSettings(limits, {})
    told: list[int] = []
    settings.watch(lambda: told.append(int(limits.share)))
    settings.set_share(100)
    settings.set_share(40)
    settings.set_share(40)
    settings.set_share(100)
    assert told == [40, 100]


class Rules(CatalogView):
    """A catalog with limits of users and vhosts only."""

    def __init__(self) -> None:
        super().__init__()
        self.users_limits: dict[str, dict[str, int]] = {}
        self.vhosts_limits: dict[str, dict[str, int]] = {}

    def user_limits(self, user: str) -> dict[str, int]:
        return self.users_limits.get(user, {})

    def vhost_limits(self, vhost: str) -> dict[str, int]:
        return self.vhosts_limits.get(vhost, {})


@pytest.fixture
def rules() -> Rules:
    return Rules()


def test_what_a_client_is_told_is_said_by_its_user_then_its_vhost_then_the_cluster(rules):
    limits = FlowLimits()
    flow = ClientFlow(rules, Ledger(limits))
    assert not flow.channel_flow("u", "v")
    assert flow.blocked_after_ms("u", "v") == 0
    limits.blocked_after_ms = 5
    assert flow.blocked_after_ms("u", "v") == 5
    rules.vhosts_limits["v"] = {"channel-flow": 1, "blocked-after-ms": 6}
    assert flow.channel_flow("u", "v")
    assert not flow.channel_flow("u", "w")
    assert flow.blocked_after_ms("u", "v") == 6
    rules.users_limits["u"] = {"channel-flow": 0, "blocked-after-ms": 0}
    assert not flow.channel_flow("u", "v")
    assert flow.blocked_after_ms("u", "v") == 0


def test_a_weight_changes_accounts_that_are_open(rules):
    ledger = Ledger(FlowLimits())
    flow = ClientFlow(rules, ledger)
    accounts = []
    for number, user in enumerate(("u", "other")):
        cause = Cause(str(number), CONNECTION, "", "n1")
        cause.user = user
        accounts.append(ledger.open(cause))
    flow.on_events([UserLimitsChanged("u", {"publish-weight": 10})])
    assert [int(account.weight) for account in accounts] == [10, 1]
    flow.on_events([UserLimitsChanged("u", {})])
    assert [int(account.weight) for account in accounts] == [1, 1]
    rules.users_limits["u"] = {"publish-weight": 100_000}
    assert flow.weight("u") == 100, "what another version allowed stays within bounds"
    assert flow.weight("other") == 1
