"""What `draftfleet serve` says of a door that is open, and of files that cannot lock it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray.serve.schema import ServeDeploySchema

from orchestration.cli import options
from orchestration.cli.failure import Failure
from orchestration.cli.serve import check_access
from orchestration.cluster.pods import pod_spec
from orchestration.cluster.schema import serve_schema
from orchestration.cluster.write import OVERLAYS
from orchestration.sources import load
from services.gateway.access.keys import new_key
from tests.unit.gateway.access.test_keys import record, write


def check(**flags: Any) -> None:
    check_access(load(None, {name.replace("__", "."): value for name, value in flags.items()}, {},
                      defaults=options.LOCAL_DEFAULTS))  # fmt: skip


@pytest.fixture
def keys(tmp_path: Path) -> str:
    write(tmp_path / "keys.json", record(new_key()))
    return str(tmp_path / "keys.json")


def test_at_home_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        check(gateway__host=host, serve__http_host=host)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flag", ["gateway__host", "serve__http_host"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "some-name"])
def test_a_door_that_is_open_to_others_is_told_loudly(flag: str, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(**{flag: host})
    told = " ".join(capsys.readouterr().err.split())
    assert f"warning: whoever reaches {host} may use this service" in told
    assert "there is no TLS" in told


def test_with_keys_only_the_missing_tls_is_told(keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(gateway__host="0.0.0.0", gateway__access__keys_file=keys)
    told = capsys.readouterr().err
    assert "whoever" not in told
    assert "there is no TLS" in told


def test_files_that_cannot_be_used_end_the_command(keys: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="keys_file"):
        check(gateway__access__keys_file=str(tmp_path / "none.json"))
    with pytest.raises(Failure, match="cannot be used"):
        check(gateway__tls__certificate=keys, gateway__tls__key=keys)


def test_serves_proxies_have_the_gateways_certificate_unless_told_otherwise() -> None:
    given = {"gateway.tls": {"certificate": "/etc/a.pem", "key": "/etc/b.pem"}}
    for flags, secure in (
        ({}, {}),
        (given, {"ssl_certfile": "/etc/a.pem", "ssl_keyfile": "/etc/b.pem"}),
        ({**given, "serve.http_tls": False}, {}),
    ):
        told = serve_schema(load(None, flags, {}), {})
        assert told["http_options"] == {"host": "127.0.0.1", "port": 8000, **secure}
        options = ServeDeploySchema.model_validate(told).http_options
        assert options.ssl_certfile == secure.get("ssl_certfile")


def test_kubernetes_asks_an_https_door_by_https() -> None:
    given = {"gateway.tls": {"certificate": "/etc/draftfleet/tls.crt", "key": "/etc/draftfleet/tls.key"}}
    for flags, scheme in (({}, None), (given, "HTTPS"), ({**given, "serve.http_tls": False}, None)):
        config = load(OVERLAYS / "high-availability" / "fleet.yaml", flags, {})
        spec = pod_spec(config, "gateway", grace_s=60, has_gateway=True)
        (container,) = spec["containers"]
        assert container["readinessProbe"]["httpGet"].get("scheme") == scheme


def test_paths_hold_wherever_a_replica_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = {"gateway.access.keys_file": "keys.json", "gateway.tls": {"certificate": "a.pem", "key": "b.pem"}}
    config = load(None, flags, {}).gateway
    assert config.access.keys_file == tmp_path / "keys.json"
    assert (config.tls.certificate, config.tls.key) == (tmp_path / "a.pem", tmp_path / "b.pem")
