"""What an attacker meets: the service as a user starts it, with keys and certificates, on a tiny model."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc
import httpx
import openai
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from protos import drafting_pb2, target_pb2
from protos import generation_pb2 as pb
from protos.drafting_pb2_grpc import DraftingStub
from protos.generation_pb2_grpc import GenerationStub
from protos.target_pb2_grpc import TargetStub
from services.gateway.access.keys import new_key
from tests.e2e.service import Service, serving
from tests.engines import make_tiny_model, tiny_tokenizer
from tests.unit.gateway.access.test_keys import record, write

pytestmark = pytest.mark.long

MAX_BODY = 1 << 20
SECRET = "Zanzibar-Xylophone-4711"  # a prompt that must be in no log
BODY = {"model": "default", "prompt": SECRET, "max_tokens": 4}
REQUEST = pb.GenerateRequest(model="default", text=SECRET, sampling=pb.Sampling(max_tokens=4))
NOW = datetime.now(timezone.utc)


@dataclass
class Besieged:
    service: Service
    keys: dict[str, str]
    ca_file: Path
    key_file: Path
    folder: Path

    @property
    def url(self) -> str:
        return self.service.http_url.replace("http:", "https:")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def http(self, key: str | None = "good") -> httpx.Client:
        headers = {} if key is None else {"authorization": f"Bearer {self.keys.get(key, key)}"}
        trusted = ssl.create_default_context(cafile=str(self.ca_file))
        return httpx.Client(base_url=self.url, headers=headers, verify=trusted, trust_env=False, timeout=60)

    def channel(self) -> grpc.Channel:
        credentials = grpc.ssl_channel_credentials(self.ca_file.read_bytes())
        return grpc.secure_channel(self.service.grpc_address, credentials)

    def metadata(self, key: str | None = "good") -> tuple[tuple[str, str], ...]:
        return () if key is None else (("authorization", f"Bearer {self.keys.get(key, key)}"),)

    def grpc_code(self, key: str | None, request: Any = REQUEST) -> grpc.StatusCode:
        with self.channel() as channel:
            try:
                list(GenerationStub(channel).Generate(request, metadata=self.metadata(key), timeout=60))
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    def answers(self) -> bool:
        with self.http() as http:
            return http.post("/v1/completions", json=BODY).status_code == 200

    def address(self, role: str) -> str:
        with self.http() as http:
            members = http.get("/status").json()["members"]
        return str(next(member["address"] for member in members if member["role"] == role))


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    folder = tmp_path_factory.mktemp("besieged")
    made = {name: new_key() for name in ("good", "revoked", "expired", "slow", "unknown")}
    write(
        folder / "keys.json",
        record(made["good"]),
        record(made["revoked"], revoked=NOW),
        record(made["expired"], expires=NOW - timedelta(seconds=1)),
        record(made["slow"], requests_per_minute=2),
    )
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued.private_key_pem.write_to_path(str(folder / "server.key"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "server.pem"))
    (folder / "good.txt").write_text(made["good"].text)
    model = make_tiny_model("llama", folder / "tiny")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(model)
    settings = [
        f"gateway.tls.certificate={folder / 'server.pem'}",
        f"gateway.tls.key={folder / 'server.key'}",
        "gateway.access.reflection=false",
        f"gateway.max_body_bytes={MAX_BODY}",
        "drafters.mtp.replicas=0",
        "drafters.dfly.replicas=0",
        # A step of so small a model is over before a draft comes, and no draft would be worth it.
        "engine.dcut.mode=off",
        "engine.dcut.profile=false",
        "engine.gather_ms=50",
        "engine.drafting.min_wait_ms=500",
        "engine.drafting.max_wait_ms=500",
        "engine.drafting.local_lookup=false",
        "engine.kv_memory_mb=64",
    ]
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    # Ray's logs go below it, and its sockets need short paths.
    logs = Path(tempfile.mkdtemp(prefix="df-"))
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(logs)
    try:
        with serving("--target", str(model), "--keys", str(folder / "keys.json"), *arguments) as service:
            service.wait_for("ready:")
            keys = {name: key.text for name, key in made.items()}
            yield Besieged(service, keys, folder / "ca.pem", folder / "good.txt", logs)
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
        shutil.rmtree(logs, ignore_errors=True)


@pytest.mark.parametrize("key", [None, "unknown", "revoked", "expired", "not-even-a-key"])
def test_without_a_valid_key_nothing_is_served(besieged: Besieged, key: str | None) -> None:
    with besieged.http(key) as http:
        for method, path in (("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("GET", "/v1/models")):
            reply = http.request(method, path, json=BODY if method == "POST" else None)
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key"), path
        for path in ("/status", "/-/routes/", "/docs"):
            assert http.get(path).status_code in (401, 404), path
        for path in ("/healthz", "/readyz"):
            assert http.get(path).status_code == 200
    assert besieged.grpc_code(key) is grpc.StatusCode.UNAUTHENTICATED


def test_with_a_valid_key_both_doors_serve(besieged: Besieged) -> None:
    assert besieged.answers()
    assert besieged.grpc_code("good") is grpc.StatusCode.OK
    trusted = ssl.create_default_context(cafile=str(besieged.ca_file))
    with openai.OpenAI(
        base_url=f"{besieged.url}/v1",
        api_key=besieged.keys["good"],
        http_client=httpx.Client(verify=trusted, trust_env=False),
    ) as client:
        events = client.completions.create(model="default", prompt="a", max_tokens=4, stream=True)
        assert [event.choices[0].finish_reason for event in events][-1] == "length"


def test_the_commands_show_a_key_and_speak_tls(besieged: Besieged) -> None:
    papers = ("--api-key-file", str(besieged.key_file), "--ca-file", str(besieged.ca_file))
    asked = ("generate", "abc", "--address", besieged.service.grpc_address, "--max-tokens", "4")
    done = besieged.service.cli(*asked, *papers)
    assert done.returncode == 0, done.stderr
    assert "UNAUTHENTICATED" in besieged.service.cli(*asked, *papers[2:]).stderr
    told = besieged.service.cli("status", "--url", besieged.url, "--json", *papers)
    assert json.loads(told.stdout)["gateway"]["refused_keys"] >= 1
    assert "wants a valid API key" in besieged.service.cli("status", "--url", besieged.url, *papers[2:]).stderr


def test_plain_text_is_not_served(besieged: Besieged) -> None:
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{besieged.port}/healthz", trust_env=False, timeout=10)
    with grpc.insecure_channel(besieged.service.grpc_address) as channel:
        with pytest.raises(grpc.RpcError) as error:
            GenerationStub(channel).GetModel(pb.GetModelRequest(model="default"), timeout=10)
        assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_a_key_past_its_rate_is_told_when_to_come_back(besieged: Besieged) -> None:
    with besieged.http("slow") as http:
        replies = [http.get("/v1/models") for _ in range(3)]
    assert [reply.status_code for reply in replies] == [200, 200, 429]
    assert 1 <= int(replies[2].headers["retry-after"]) <= 30
    assert besieged.grpc_code("slow") is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_an_oversize_body_is_refused(besieged: Besieged) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b"x" * MAX_BODY

    with besieged.http() as http:
        assert http.post("/v1/completions", content=b"x" * (MAX_BODY + 1)).status_code == 413
    for key, status in (("good", 413), (None, 401)):
        # It may be hung up on while it is still sending.
        with besieged.http(key) as http, suppress(httpx.TransportError):
            assert http.post("/v1/completions", content=endless()).status_code == status
    big = pb.GenerateRequest(model="default", text="x" * (MAX_BODY + 1))
    assert besieged.grpc_code("good", big) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert besieged.answers()


def test_oversize_headers_are_refused(besieged: Besieged) -> None:
    for size, statuses in ((20_000, {431}), (2_000_000, {400, 431})):
        with besieged.http() as http:
            try:
                reply = http.get("/v1/models", headers={"x-padding": "a" * size})
            except httpx.TransportError:
                continue
            assert reply.status_code in statuses
    with besieged.channel() as channel:
        metadata = (*besieged.metadata(), ("x-padding", "a" * 100_000))
        with pytest.raises(grpc.RpcError) as error:
            GenerationStub(channel).GetModel(pb.GetModelRequest(model="default"), metadata=metadata, timeout=60)
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert besieged.answers()


def test_slow_loris_holds_connections_and_nobody_up(besieged: Besieged) -> None:
    """Serve's proxy sets no limit to how long a request may take to arrive: it costs a socket each, and no more."""
    trusted = ssl.create_default_context(cafile=str(besieged.ca_file))
    with ExitStack() as held:
        slow = []
        for number in range(100):
            plain = held.enter_context(socket.create_connection(("127.0.0.1", besieged.port), timeout=30))
            if number % 2:  # half of them do not even end the handshake
                slow.append(held.enter_context(trusted.wrap_socket(plain, server_hostname="127.0.0.1")))
                slow[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n")
        assert besieged.answers()
        for connection in slow:
            connection.sendall(b"X-More: 1\r\n")
        assert besieged.answers()
        assert besieged.grpc_code("good") is grpc.StatusCode.OK


def test_reflection_can_be_switched_off(besieged: Besieged) -> None:
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with besieged.channel() as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        for key, code in ((None, grpc.StatusCode.UNAUTHENTICATED), ("good", grpc.StatusCode.UNIMPLEMENTED)):
            with pytest.raises(grpc.RpcError) as error:
                list(stub.ServerReflectionInfo(iter([asked]), metadata=besieged.metadata(key), timeout=60))
            assert error.value.code() is code
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert health.status == health_pb2.HealthCheckResponse.SERVING


def test_targets_and_drafters_serve_replicas_alone(besieged: Besieged) -> None:
    """Not even the holder of an API key."""
    for metadata in ((), besieged.metadata(), (("draftfleet-credential", besieged.keys["good"]),)):
        with grpc.insecure_channel(besieged.address("target")) as channel:
            request = target_pb2.TargetRequest(request_id="r", prompt_ids=[1, 2, 3])
            with pytest.raises(grpc.RpcError) as error:
                list(TargetStub(channel).Generate(request, metadata=metadata, timeout=60))
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.RpcError) as error:
                TargetStub(channel).GetDcut(target_pb2.GetDcutRequest(), metadata=metadata, timeout=60)
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with grpc.insecure_channel(besieged.address("drafter")) as channel:
            reserve = drafting_pb2.ReserveRequest(protocol=1, request_id="r", sequences=1)
            with pytest.raises(grpc.RpcError) as error:
                DraftingStub(channel).Reserve(reserve, metadata=metadata, timeout=60)
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.RpcError) as error:
                list(DraftingStub(channel).Rounds(iter(()), metadata=metadata, timeout=60))
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_drafters_still_serve_the_target(besieged: Besieged) -> None:
    with besieged.http() as http:
        body = {"model": "default", "prompt": "abab" * 20, "max_tokens": 100, "temperature": 0, "ignore_eos": True}
        for _ in range(20):
            reply = http.post("/v1/completions", json={**body, "draftfleet": {"drafter": "lookup"}}).json()
            if reply["draftfleet"]["drafter"] == "lookup" and reply["draftfleet"]["num_drafts"]:
                return
    raise AssertionError("no drafter could be used")


BOMBS = {
    "objects as prompts": b'{"model":"default","prompt":[' + b",".join([b"{}"] * 300_000) + b"]}",
    "a deep list": b'{"model":"default","prompt":' + b"[" * 500_000,
    "unknown keys": b"{" + b",".join(b'"%d":0' % number for number in range(90_000)) + b"}",
    "messages": b'{"model":"default","messages":[' + b",".join([b"{}"] * 300_000) + b"]}",
    "a long number": b'{"model":"default","prompt":"a","seed":' + b"9" * 1_000_000 + b"}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_json_bombs_are_refused(besieged: Besieged, name: str) -> None:
    path = "/v1/chat/completions" if name == "messages" else "/v1/completions"
    with besieged.http() as http:
        assert http.post(path, content=BOMBS[name]).status_code == 400
    assert besieged.answers()


@pytest.mark.parametrize(
    "tail",
    [b"\x52\x00" * 400_000, b"\xf8\x01\x01" * 300_000, b"\xff" * 1000, b"\x0b" * 500_000],
    ids=["empty bad words", "unknown fields", "noise", "deep groups"],
)
def test_protobuf_bombs_are_refused(besieged: Besieged, tail: bytes) -> None:
    sampling = b"\x2a" + _varint(len(tail)) + tail
    data = pb.GenerateRequest(model="default", text="a").SerializeToString() + sampling
    with besieged.channel() as channel:
        call = channel.unary_stream("/draftfleet.v1.Generation/Generate")
        with pytest.raises(grpc.RpcError) as error:
            list(call(data, metadata=besieged.metadata(), timeout=60))
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert besieged.answers()


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def test_no_log_holds_a_prompt_or_a_secret(besieged: Besieged) -> None:
    """The last of this module, after all that went wrong."""
    assert besieged.answers()
    logs = [path for path in besieged.folder.rglob("*") if path.is_file() and path.suffix in (".log", ".out", ".err")]
    assert any("Gateway" in path.name for path in logs)
    held = "".join(besieged.service.said).encode() + b"".join(path.read_bytes() for path in logs)
    assert b"draftfleet" in held
    assert SECRET.encode() not in held
    for name, key in besieged.keys.items():
        assert key.split("-", 2)[2].encode() not in held, name
