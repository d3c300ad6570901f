"""The window of a publish stream."""

from __future__ import annotations

from headrace_broker.flow.stream_window import StreamWindow


def exceeded(window: StreamWindow) -> bool:
    return window.exceeded


def test_a_window_grows_in_steps_of_half_its_size() -> None:
    window = StreamWindow()
    window.open(10, 1000, 0, 0)
    assert (window.messages, window.byte_count) == (10, 1000)
    window.receive(4, 40)
    assert not window.renew(10, 1000, 0, 0)
    assert window.messages == 10
    window.receive(1, 10)
    assert window.renew(10, 1000, 0, 0)
    assert (window.messages, window.byte_count) == (15, 1050)


def test_bytes_alone_make_it_grow() -> None:
    window = StreamWindow()
    window.open(10, 1000, 0, 0)
    window.receive(1, 500)
    assert window.renew(10, 1000, 0, 0)
    assert (window.messages, window.byte_count) == (11, 1500)


def test_what_is_held_is_not_allowed_again() -> None:
    window = StreamWindow()
    window.open(10, 1000, 0, 0)
    window.receive(10, 100)
    assert not window.renew(10, 1000, 10, 600)
    assert window.messages == 10
    assert window.renew(10, 1000, 4, 40)
    assert (window.messages, window.byte_count) == (16, 1060)


def test_a_shut_window_allows_what_has_come_and_what_is_on_its_way_is_no_offence() -> None:
    window = StreamWindow()
    window.open(10, 1000, 0, 0)
    window.receive(3, 30)
    window.shut()
    assert (window.messages, window.byte_count) == (3, 30)
    window.receive(7, 70)
    assert not exceeded(window)
    window.receive(1, 1)
    assert exceeded(window)
    window.open(10, 1000, 8, 80)
    assert not exceeded(window)
    assert (window.messages, window.byte_count) == (13, 1021)


def test_more_than_was_allowed_in_one_message_is_made_up_for_at_once() -> None:
    window = StreamWindow()
    window.open(10, 1000, 0, 0)
    window.receive(1, 5000)
    assert exceeded(window)
    assert window.renew(10, 1000, 0, 0)
    assert not exceeded(window)
    assert (window.messages, window.byte_count) == (11, 6000)


def test_a_window_of_one_message_still_moves() -> None:
    window = StreamWindow()
    window.open(1, 1, 0, 0)
    window.receive(1, 100)
    assert window.renew(1, 1, 0, 0)
    assert (window.messages, window.byte_count) == (2, 101)
