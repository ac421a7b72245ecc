"""A small client of the gRPC front door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import grpc

from orchestration.cli.failure import Failure
from protos import generation_pb2 as pb
from protos.generation_pb2_grpc import GenerationStub

_CONNECT_TIMEOUT_S = 5.0


class Client:
    """`with Client(address) as client:`; its methods raise Failure with the server's own words."""

    def __init__(self, address: str, api_key: str | None = None, ca_file: Path | None = None) -> None:
        """With `ca_file` it speaks TLS."""
        self._address = address
        self._metadata = () if api_key is None else (("authorization", f"Bearer {api_key}"),)
        options = (("grpc.enable_http_proxy", 0),)
        if ca_file is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(ca_file.read_bytes())
            self._channel = grpc.secure_channel(address, credentials, options=options)
        self._stub = GenerationStub(self._channel)

    def __enter__(self) -> Client:
        try:
            grpc.channel_ready_future(self._channel).result(timeout=_CONNECT_TIMEOUT_S)
        except grpc.FutureTimeoutError as error:
            self._channel.close()
            raise Failure(
                f"nothing answers at {self._address}. Start the service with `draftfleet serve`, "
                "or name its gRPC address with --address host:port."
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def model(self) -> pb.ModelInfo:
        try:
            return self._stub.GetModel(
                pb.GetModelRequest(model="default"), timeout=_CONNECT_TIMEOUT_S, metadata=self._metadata
            )
        except grpc.RpcError as error:
            raise _failure(error) from error

    def generate(self, request: pb.GenerateRequest) -> Iterator[pb.GenerateChunk]:
        """Ends the generation on the server when it is closed early."""
        call = self._stub.Generate(request, metadata=self._metadata)
        try:
            yield from call
        except grpc.RpcError as error:
            raise _failure(error) from error
        finally:
            call.cancel()


def _failure(error: grpc.RpcError) -> Failure:
    assert isinstance(error, grpc.Call)
    return Failure(f"{error.details()} ({error.code().name})")
