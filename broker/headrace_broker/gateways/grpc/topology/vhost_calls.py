"""Calls about vhosts."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_broker.catalog.access import Caller, check_administers, check_manages
from headrace_broker.catalog.command import DeleteVhost, PutVhost, SetVhostLimits
from headrace_broker.catalog.setting import VHOST_LIMITS, Integer, limits_problem
from headrace_broker.gateways.grpc.server.errors import bad_field
from headrace_broker.gateways.grpc.server.lookup import LookupService, check_name, done
from headrace_broker.gateways.grpc.server.page import Pager
from headrace_broker.model.definition import Vhost
from headrace_protos.broker.v1 import topology_pb2 as messages


class VhostCalls:
    """Declares, deletes and describes vhosts."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup
        self._pager: Pager[Vhost] = Pager("vhosts", lambda vhost: (vhost.name,))

    async def declare(
        self, who: Caller, request: messages.DeclareVhostRequest
    ) -> messages.DeclareVhostResponse:
        """Create a vhost, or change one."""
        check_administers(who)
        lookup, name = self._lookup, request.name
        check_name("name", name)
        limits = checked_limits(request.limits, VHOST_LIMITS)
        if lookup.view.vhost(name) is None:
            await lookup.node.catch_up()
        current = lookup.view.vhost(name)
        vhost = _changed(current or Vhost(name), request)
        if vhost != current:
            done(await lookup.node.submit(PutVhost(vhost, creator=who.name)), "name")
        if limits:
            done(await lookup.node.submit(SetVhostLimits(name, limits)), "limits")
        return messages.DeclareVhostResponse(created=current is None)

    async def delete(
        self, who: Caller, request: messages.DeleteVhostRequest
    ) -> messages.DeleteResponse:
        """Delete a vhost and all that is in it; one that is not there is no error."""
        check_administers(who)
        lookup, name = self._lookup, request.name
        check_name("name", name)
        if lookup.view.vhost(name) is None:
            await lookup.node.catch_up()
        if lookup.view.vhost(name) is None:
            return messages.DeleteResponse(deleted=False)
        done(await lookup.node.submit(DeleteVhost(name)), "name")
        return messages.DeleteResponse(deleted=True)

    async def describe(
        self, who: Caller, request: messages.DescribeVhostRequest
    ) -> messages.VhostDescription:
        """Return everything about a vhost."""
        check_manages(who)
        name = await self._lookup.known_vhost(who, request.name, "name")
        self._lookup.check_sees(who, name)
        vhost = self._lookup.view.vhost(name)
        assert vhost is not None, "it was looked up without a pause since"
        return self._render(vhost)

    async def list(
        self, who: Caller, request: messages.ListVhostsRequest
    ) -> messages.ListVhostsResponse:
        """List the vhosts that the caller may look at."""
        check_manages(who)
        view = self._lookup.view
        rows = [vhost for vhost in view.vhosts() if who.sees(view, vhost.name)]
        vhosts, token = await self._pager.page(request.page, rows, self._render)
        return messages.ListVhostsResponse(vhosts=vhosts, next_token=token)

    def _render(self, vhost: Vhost) -> messages.VhostDescription:
        return messages.VhostDescription(
            name=vhost.name,
            description=vhost.description,
            tags=vhost.tags,
            default_queue_type=vhost.default_queue_type,
            limits=self._lookup.view.vhost_limits(vhost.name),
        )


def checked_limits(limits: Mapping[str, int], known: dict[str, Integer]) -> dict[str, int]:
    """Return the limits of a request.

    Raises:
        CallError: INVALID_ARGUMENT.
    """
    for name, value in limits.items():
        problem = limits_problem({name: value}, known)
        if problem:
            raise bad_field(f'limits["{name}"]' if name in known else "limits", problem)
    return dict(limits)


def checked_tags(message: messages.Tags) -> tuple[str, ...]:
    """Return the tags of a request, each once.

    Raises:
        CallError: INVALID_ARGUMENT.
    """
    for at, tag in enumerate(message.tags):
        check_name(f"tags.tags[{at}]", tag)
        if tag != tag.strip() or "," in tag:
            raise bad_field(f"tags.tags[{at}]", "must have no comma, and no space at its ends")
    return tuple(dict.fromkeys(message.tags))


def _changed(vhost: Vhost, request: messages.DeclareVhostRequest) -> Vhost:
    """Return a vhost with what a request says."""
    given = request.HasField
    return Vhost(
        vhost.name,
        request.default_queue_type if given("default_queue_type") else vhost.default_queue_type,
        request.description if given("description") else vhost.description,
        checked_tags(request.tags) if given("tags") else vhost.tags,
    )
