"""Ports of replicas: who does not show the credential gets nothing but health."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from protos import drafting_pb2 as pb
from protos.drafting_pb2_grpc import DraftingStub
from services.drafters.config import DrafterConfig
from services.drafters.registry import kind_of
from services.drafters.server import DrafterServer
from services.rpc.channels import ChannelConfig, ChannelPool
from services.rpc.credential import Credential, metadata_of

CREDENTIAL = Credential.random()
WRONG = [
    (),
    (("draftfleet-credential", ""),),
    Credential.random().metadata,
    (("draftfleet-credential", CREDENTIAL.token[:-1]),),
    (("authorization", f"Bearer {CREDENTIAL.token}"),),
    (("draftfleet-credential-bin", CREDENTIAL.token.encode()),),
]


@pytest.fixture
async def address() -> AsyncIterator[str]:
    config = DrafterConfig()
    server = DrafterServer(config, kind_of(config).build(config), "drafter", CREDENTIAL)
    yield await server.start("127.0.0.1")
    await server.stop()


async def test_calls_that_show_it_are_served(address: str) -> None:
    pool = ChannelPool(ChannelConfig(), CREDENTIAL)
    async with pool.use(address) as channel:
        request = pb.ReserveRequest(protocol=1, request_id="r", sequences=1)
        reply = await DraftingStub(channel).Reserve(request, metadata=pool.metadata)
        assert reply.lease.token
    await pool.close()


@pytest.mark.parametrize("metadata", WRONG)
async def test_a_call_without_it_is_refused(address: str, metadata: tuple[tuple[str, str], ...]) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await DraftingStub(channel).Reserve(pb.ReserveRequest(protocol=1, sequences=1), metadata=metadata)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        # A stream is refused before its hello, which a stranger may leave out.
        call = DraftingStub(channel).Rounds(metadata=metadata, timeout=20)
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        # Nor is it told whether a method exists.
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary("/draftfleet.drafting.v1.Drafting/Other")(b"", metadata=metadata)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_it_is_in_no_representation() -> None:
    assert CREDENTIAL.token not in f"{CREDENTIAL!r} {CREDENTIAL}"


def test_every_one_is_different_and_none_is_short() -> None:
    assert Credential.random() != Credential.random()
    with pytest.raises(ValueError, match="too short"):
        Credential("")
    assert metadata_of(None) == ()


def test_a_drafter_process_lets_nobody_in_from_outside_without_one(capfd: pytest.CaptureFixture[str]) -> None:
    from orchestration.drafter_process import running

    with pytest.raises(RuntimeError, match="did not start"), running(CREDENTIAL, "--host", "not-an-address"):
        pass
    capfd.readouterr()


def test_the_token_is_in_no_argument_of_a_drafter_process() -> None:
    from orchestration.drafter_process import running

    with running(CREDENTIAL):
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                assert CREDENTIAL.token.encode() not in entry.read_bytes()
            except OSError:
                continue
