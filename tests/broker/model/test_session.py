"""Session ids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.model.session import (
    BOOT_MAX,
    boot_mark,
    session_boot,
    session_id,
    session_node,
)


@given(st.integers(1, 1023), st.integers(1, 2**31), st.integers(1, 2**32 - 1))
def test_id_tells_node_and_boot(node: int, boot: int, number: int) -> None:
    session = session_id(node, boot, number)
    assert 0 < session < 1 << 62
    assert session_node(session) == node
    assert session_boot(session) == boot_mark(boot)


def test_mark_is_the_boot_while_it_fits_and_never_that_of_no_boot() -> None:
    assert [boot_mark(boot) for boot in (0, 1, 2, BOOT_MAX)] == [0, 1, 2, BOOT_MAX]
    assert [boot_mark(BOOT_MAX + 1), boot_mark(2 * BOOT_MAX), boot_mark(2 * BOOT_MAX + 3)] == [
        1,
        BOOT_MAX,
        3,
    ]
