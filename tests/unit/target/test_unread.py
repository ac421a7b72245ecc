"""Who reads too slowly keeps a bounded part of the answer, and is told."""

from __future__ import annotations

import asyncio

import pytest

from services.target.emission import Emission
from services.target.unread import SlowReader, Unread


def emission(number: int) -> Emission:
    return Emission(0, (number,), "", 0.0)


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_is_read_in_time_comes_whole() -> None:
    overflows: list[int] = []
    unread = Unread(4, lambda: overflows.append(1))
    for number in range(20):
        unread.sink(emission(number))
        assert (await unread.next()).tokens == (number,)
    assert not overflows


async def test_what_is_too_much_ends_the_request_once_and_leaves_no_gap() -> None:
    overflows: list[int] = []
    unread = Unread(4, lambda: overflows.append(1))
    for number in range(10):
        unread.sink(emission(number))
    await settle()
    assert overflows == [1]
    assert [(await unread.next()).tokens[0] for _ in range(4)] == [0, 1, 2, 3]
    unread.sink(emission(10))  # the engine's last word, after what has been lost
    await settle()
    with pytest.raises(SlowReader, match="4 chunks"):
        await unread.next()


async def test_a_reader_that_waits_gets_the_next() -> None:
    unread = Unread(4, lambda: None)
    reading = asyncio.create_task(unread.next())
    await settle()
    unread.sink(emission(7))
    assert (await asyncio.wait_for(reading, 10)).tokens == (7,)
