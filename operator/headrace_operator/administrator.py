"""The administrator of a cluster, whose password may change in its Secret."""

from __future__ import annotations

from headrace_operator.broker_api import BrokerApi, BrokerError
from headrace_operator.observing import Answers, ask
from headrace_operator.reconciler import Key


class Administrators:
    """Remembers which password each cluster has taken last.

    By it the password becomes what its Secret says when somebody changes that while the operator
    runs. One that is changed while none runs has to be set in the cluster by hand.
    """

    def __init__(self) -> None:
        self._taken: dict[Key, tuple[str, str]] = {}

    def forget(self, key: Key) -> None:
        """Forget the password of a cluster."""
        self._taken.pop(key, None)

    async def ask(self, key: Key, api: BrokerApi, closely: bool, formed: bool) -> Answers | None:
        """Ask brokers for their state, and make them accept the log-in.

        Args:
            key: which cluster.
            api: of its brokers.
            closely: as in `observing.ask`.
            formed: likewise.

        Raises:
            BrokerError: one answers, and refuses.
        """
        try:
            found = await ask(api, closely, formed)
        except BrokerError as error:
            if error.status != 401 or not await self._renewed(key, api):
                raise
            found = await ask(api, closely, formed)
        if found is not None:
            self._taken[key] = api.login
        return found

    async def _renewed(self, key: Key, api: BrokerApi) -> bool:
        """Set the password by the one that was taken before; return whether there is such a one.

        Raises:
            BrokerError: that is refused, too.
        """
        name, password = api.login
        known, before = self._taken.get(key, ("", ""))
        if name != known or password == before:
            return False
        old = api.logged_in(name, before)
        user = await old.get("users", name) or {}
        await old.put({"password": password, "tags": user.get("tags") or []}, "users", name)
        return True
