"""Peers that break the protocol on purpose."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from protos import drafting_pb2 as pb
from services.drafters.server import SERVICE
from tests.integration.drafting.support import TIMEOUT_S, server_loop

Script = Callable[[pb.Round], list[bytes]]  # what to answer a frame with, as raw messages
HELLO = pb.DrafterHello(protocol=1, replica="hostile", kind="lookup", max_draft=8)
_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]


@contextmanager
def hostile_drafter(script: Script, hello: bytes | None = None) -> Iterator[str]:
    """Serves drafting by the script; yields its address. An empty list is silence."""
    thread = server_loop()
    first = pb.DrafterFrame(hello=HELLO).SerializeToString() if hello is None else hello

    async def rounds(_: object, context: Any) -> None:
        await context.read()
        await context.write(first)
        while (data := await context.read()) is not _EOF:
            for message in script(pb.TargetFrame.FromString(data).round):
                await context.write(message)

    async def start() -> tuple[Any, str]:
        server = grpc.aio.server()
        methods = {"Rounds": grpc.stream_stream_rpc_method_handler(rounds)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, f"127.0.0.1:{port}"

    server, address = thread.run(start(), TIMEOUT_S)
    try:
        yield address
    finally:
        thread.run(server.stop(0), TIMEOUT_S)


class HostileTarget:
    """Speaks raw bytes on a drafting stream; says a sound hello first."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, (("grpc.max_send_message_length", 64 << 20),))
        self._is_over = threading.Event()

    def talk(self, messages: list[bytes], *, hold: bool = True) -> Iterator[pb.DrafterFrame]:
        """Sends them all and yields what comes back; with `hold` the stream stays open until `close`."""
        hello = pb.TargetHello(protocol=1, oldest_protocol=1, replica="hostile", vocabulary=100, hidden_size=8)

        def say() -> Iterator[bytes]:
            yield pb.TargetFrame(hello=hello).SerializeToString()
            yield from messages
            if hold:
                self._is_over.wait(TIMEOUT_S)

        replies: Any = self._channel.stream_stream(f"/{SERVICE}/Rounds")(say(), timeout=TIMEOUT_S)
        for data in replies:
            yield pb.DrafterFrame.FromString(data)

    def close(self) -> None:
        self._is_over.set()
        self._channel.close()
