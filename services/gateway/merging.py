"""Several streams of one request as a single one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

_T = TypeVar("_T")
_WAITING_ITEMS = 2  # for each stream, while the reader is slow


async def merge(streams: Sequence[AsyncGenerator[_T, None]]) -> AsyncGenerator[tuple[int, _T], None]:
    """(index of the stream, item), as they come. The first failure ends all streams, as does closing."""
    queue: asyncio.Queue[tuple[int, _T] | Exception | None] = asyncio.Queue(len(streams) * _WAITING_ITEMS)

    async def pump(index: int, stream: AsyncGenerator[_T, None]) -> None:
        try:
            async with aclosing(stream):
                async for item in stream:
                    await queue.put((index, item))
        except Exception as error:
            await queue.put(error)
        else:
            await queue.put(None)

    pumps = [asyncio.create_task(pump(index, stream)) for index, stream in enumerate(streams)]
    num_open = len(pumps)
    try:
        while num_open:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield item
    finally:
        for task in pumps:
            task.cancel()
