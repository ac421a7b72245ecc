"""TLS at the gRPC door, with certificates made for the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme
from transformers import PreTrainedTokenizerFast

from orchestration.cli.client import Client
from orchestration.cli.failure import Failure
from protos import generation_pb2 as pb
from protos.generation_pb2_grpc import GenerationStub
from services.gateway.access.tls import Certificates, TlsConfig
from tests.unit.gateway.conftest import opened

REQUEST = pb.GetModelRequest(model="tiny")


class Papers:
    """A certificate authority, and the files of a server with a certificate of it."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        self.authority.cert_pem.write_to_path(str(self.ca_file))
        self.issue()

    def issue(self, authority: trustme.CA | None = None) -> None:
        issued = (authority or self.authority).issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(str(self.key))
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def settings(self, **more: object) -> dict[str, object]:
        return {"certificate": str(self.certificate), "key": str(self.key), **more}


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


@asynccontextmanager
async def secure(address: str, credentials: grpc.ChannelCredentials) -> AsyncIterator[GenerationStub]:
    # Channels of one process share connections.
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.secure_channel(address, credentials, options) as channel:
        yield GenerationStub(channel)


async def code(stub: GenerationStub) -> grpc.StatusCode:
    try:
        await stub.GetModel(REQUEST, timeout=5)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def trusting(*authorities: trustme.CA, client: trustme.LeafCert | None = None) -> grpc.ChannelCredentials:
    roots = b"".join(authority.cert_pem.bytes() for authority in authorities)
    if client is None:
        return grpc.ssl_channel_credentials(roots)
    return grpc.ssl_channel_credentials(roots, client.private_key_pem.bytes(), client.cert_chain_pems[0].bytes())


async def test_only_who_trusts_the_certificate_is_served(tokenizer: PreTrainedTokenizerFast, papers: Papers) -> None:
    async with opened(tokenizer, tls=papers.settings()) as setup:
        async with secure(setup.grpc_address, trusting(papers.authority)) as stub:
            assert await code(stub) is grpc.StatusCode.OK
            chunks = [chunk.text async for chunk in stub.Generate(pb.GenerateRequest(model="tiny", text="a"))]
            assert "".join(chunks) == "hello world"
        async with secure(setup.grpc_address, trusting(trustme.CA())) as stub:
            assert await code(stub) is grpc.StatusCode.UNAVAILABLE
        assert await code(GenerationStub(setup.channel)) is grpc.StatusCode.UNAVAILABLE  # plain text


async def test_clients_may_have_to_show_a_certificate(tokenizer: PreTrainedTokenizerFast, papers: Papers) -> None:
    clients = trustme.CA()
    clients.cert_pem.write_to_path(str(papers.ca_file.with_name("clients.pem")))
    settings = papers.settings(client_ca=str(papers.ca_file.with_name("clients.pem")))
    async with opened(tokenizer, tls=settings) as setup:
        for client, expected in (
            (clients.issue_cert("client"), grpc.StatusCode.OK),
            (trustme.CA().issue_cert("client"), grpc.StatusCode.UNAVAILABLE),
            (None, grpc.StatusCode.UNAVAILABLE),
        ):
            async with secure(setup.grpc_address, trusting(papers.authority, client=client)) as stub:
                assert await code(stub) is expected


async def test_a_renewed_certificate_takes_effect_without_a_restart(
    tokenizer: PreTrainedTokenizerFast, papers: Papers
) -> None:
    renewed = trustme.CA()
    async with (
        opened(tokenizer, tls=papers.settings()) as setup,
        secure(setup.grpc_address, trusting(papers.authority)) as before,
    ):
        assert await code(before) is grpc.StatusCode.OK
        papers.issue(renewed)
        async with secure(setup.grpc_address, trusting(renewed)) as stub:
            assert await code(stub) is grpc.StatusCode.OK
        assert await code(before) is grpc.StatusCode.OK  # the open connection goes on
        Papers(subfolder(papers.key.parent, "other")).key.replace(papers.key)  # half of another pair
        async with secure(setup.grpc_address, trusting(renewed)) as stub:
            assert await code(stub) is grpc.StatusCode.OK
        papers.key.unlink()
        async with secure(setup.grpc_address, trusting(renewed)) as stub:
            assert await code(stub) is grpc.StatusCode.OK


async def test_the_commands_client_speaks_tls(tokenizer: PreTrainedTokenizerFast, papers: Papers) -> None:
    async with opened(tokenizer, tls=papers.settings()) as setup:

        def ask(ca_file: Path | None) -> str:
            with Client(setup.grpc_address, ca_file=ca_file) as client:
                return client.model().name

        assert await asyncio.to_thread(ask, papers.ca_file) == "tiny"
        with pytest.raises(Failure, match="nothing answers"):
            await asyncio.to_thread(ask, None)


def test_settings_go_together(papers: Papers) -> None:
    with pytest.raises(ValueError, match="certificate and key go together"):
        TlsConfig(certificate=papers.certificate)
    with pytest.raises(ValueError, match="client_ca"):
        TlsConfig(client_ca=papers.ca_file)


@pytest.mark.parametrize("field", ["certificate", "key"])
def test_files_that_cannot_be_used_are_named(papers: Papers, field: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    config = TlsConfig.model_validate(papers.settings(**{field: str(wrong)}))
    with pytest.raises(ValueError, match=r"wrong\.pem cannot be used \(No such file"):
        Certificates(config)
    wrong.write_text("no PEM")
    with pytest.raises(ValueError, match=r"server\.|wrong\.pem.* cannot be used"):
        Certificates(config)
    other = Papers(subfolder(tmp_path, "other"))
    config = TlsConfig.model_validate(papers.settings(**{field: str(getattr(other, field))}))
    with pytest.raises(ValueError, match=r"cannot be used .*mismatch"):
        Certificates(config)


def subfolder(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name
