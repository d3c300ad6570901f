"""The limits of flow control in force on this node: what the cluster sets, or the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from headrace_broker.catalog.event import Event, ParameterChanged
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow_parameter import (
    PARAMETERS,
    RELATIVE,
    Value,
    attribute_name,
    parameter_problem,
)

DEFAULT: Final = "default"
CONFIGURATION: Final = "configuration"
CLUSTER: Final = "cluster"

log = logging.getLogger("headrace.node")


class Setting(NamedTuple):
    """One limit."""

    value: Value  # in force, as stored
    otherwise: Value  # what is in force when the cluster does not set it
    source: str  # DEFAULT, CONFIGURATION or CLUSTER


class FlowSettings:
    """Follows the catalog and keeps `FlowLimits` up to date.

    Args:
        configured: values by name that the node's configuration gives; others have defaults.
    """

    def __init__(self, limits: FlowLimits, configured: Mapping[str, Value]) -> None:
        self._limits = limits  # the node's, which everybody reads
        self._configured = {
            name: configured.get(name, parameter.default) for name, parameter in PARAMETERS.items()
        }
        self._set: dict[str, Value] = {}
        self._watchers: list[Callable[[], None]] = []
        self._apply(PARAMETERS)

    def __getitem__(self, name: str) -> Value:
        """Return the value in force."""
        return self.find(name).value

    def find(self, name: str) -> Setting:
        """Return a limit; its name must be known."""
        otherwise = self._configured[name]
        if name in self._set:
            return Setting(self._set[name], otherwise, CLUSTER)
        source = DEFAULT if otherwise == PARAMETERS[name].default else CONFIGURATION
        return Setting(otherwise, otherwise, source)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change; it lets waiting work check again, without blocking."""
        self._watchers.append(callback)

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow changes of the catalog."""
        news = [event for event in events if isinstance(event, ParameterChanged)]
        changed = [event.name for event in news if self._take(event)]
        if changed:
            self._apply(changed)
            for name in changed:
                self._log_change(name)
            self.notify()

    def _log_change(self, name: str) -> None:
        setting = self.find(name)
        if setting.source == CLUSTER:
            log.info("limit %s set to %s for all nodes", name, setting.value)
        else:
            log.info("limit %s reset to this node's %s: %s", name, setting.source, setting.value)

    def set_share(self, share: int) -> None:
        """Change the percentage of the limits that holds; below 100 while memory is scarce."""
        if share != self._limits.share:
            self._limits.share = share
            self.notify()

    def notify(self) -> None:
        """Notify watchers of changed limits."""
        for watcher in list(self._watchers):
            watcher()

    def _take(self, event: ParameterChanged) -> bool:
        """Note what the cluster sets; what this version does not know counts for others."""
        name, value = event.name, event.value
        if value is None:
            return self._set.pop(name, None) is not None
        problem = parameter_problem(name, value)
        if problem:
            log.warning("cluster limit ignored, this version does not know it: %s", problem)
            return self._set.pop(name, None) is not None
        self._set[name] = value
        return True

    def _apply(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in RELATIVE:
                setattr(self._limits, attribute_name(name), self[name])
