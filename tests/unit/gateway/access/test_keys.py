"""Keys, their file, and the ring that follows it."""

from __future__ import annotations

import os
import stat
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestration.cli.keys import app
from services.gateway.access.keyfile import KeyFile, changing, load
from services.gateway.access.keys import KeyRecord, NewKey, PresentedKey, new_key
from services.gateway.access.ring import KeyRing

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def record(key: NewKey, **fields: object) -> KeyRecord:
    return KeyRecord.model_validate({"id": key.id, "name": "n", "digest": key.digest, "created": NOW, **fields})


def write(path: Path, *records: KeyRecord) -> None:
    with changing(path) as keys:
        keys[:] = records


def test_a_key_proves_its_own_record_and_no_other() -> None:
    mine, other = new_key(), new_key()
    presented = PresentedKey.parse(mine.text)
    assert presented is not None
    assert presented.id == mine.id
    assert presented.proves(record(mine))
    assert not presented.proves(record(other))
    assert not presented.proves(record(other).model_copy(update={"id": mine.id}))


@pytest.mark.parametrize("change", [str.upper, lambda t: t + "x", lambda t: t[:-1], lambda t: t[3:], lambda t: ""])
def test_what_has_not_the_shape_is_no_key(change: object) -> None:
    assert PresentedKey.parse(change(new_key().text)) is None  # type: ignore[operator]


def test_no_representation_holds_the_secret() -> None:
    key = new_key()
    secret = key.text.rpartition("-")[2][-20:]
    presented = PresentedKey.parse(key.text)
    for shown in (repr(key), str(key), f"{presented!r}", f"{presented}", repr(record(key))):
        assert secret not in shown
        assert key.text not in shown


def test_the_file_is_its_owners_alone_and_holds_no_secret(tmp_path: Path) -> None:
    path, key = tmp_path / "keys.json", new_key()
    write(path, record(key))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key.text.split("-", 2)[2] not in path.read_text()
    assert [p.name for p in tmp_path.iterdir() if p.name not in ("keys.json", "keys.json.lock")] == []


def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"

    def add() -> None:
        for _ in range(5):
            with changing(path) as keys:
                keys.append(record(new_key()))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(load(path).keys) == 20


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b'{"version": 2}', b'{"keys": [{"id": "SECRET"}]}', b'{"kyes": []}', b"[" * 10**6]
)
def test_another_file_is_an_error_that_repeats_none_of_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"keys\.json: it is not a key file") as error:
        load(path)
    assert "SECRET" not in str(error.value)


def test_ids_are_unique() -> None:
    key = new_key()
    with pytest.raises(ValueError, match="the same id"):
        KeyFile(keys=(record(key), record(key)))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ring(path: Path, clock: Clock) -> KeyRing:
    return KeyRing(path, 1.0, clock, lambda: NOW)


def test_the_ring_follows_the_file(tmp_path: Path) -> None:
    path, clock, first, second = tmp_path / "keys.json", Clock(), new_key(), new_key()
    write(path, record(first))
    found = ring(path, clock)
    assert found.find(PresentedKey.parse(first.text)) == record(first)
    assert found.find(PresentedKey.parse(second.text)) is None
    assert found.find(None) is None
    write(path, record(first, revoked=NOW), record(second))
    clock.now += 1.1
    assert found.find(PresentedKey.parse(first.text)) is None
    assert found.find(PresentedKey.parse(second.text)) == record(second)


def test_a_key_ends_when_it_expires(tmp_path: Path) -> None:
    path, lasting, over = tmp_path / "keys.json", new_key(), new_key()
    write(path, record(lasting, expires=NOW + timedelta(seconds=1)), record(over, expires=NOW))
    found = ring(path, Clock())
    assert found.find(PresentedKey.parse(lasting.text)) is not None
    assert found.find(PresentedKey.parse(over.text)) is None


def test_a_spoiled_file_leaves_the_last_good_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, clock, key = tmp_path / "keys.json", Clock(), new_key()
    write(path, record(key))
    found = ring(path, clock)
    for spoil in (lambda: path.write_text("{"), path.unlink):
        spoil()
        clock.now += 1.1
        assert found.find(PresentedKey.parse(key.text)) is not None
    assert found.failed_reloads == 2
    assert len(caplog.records) == 1
    write(path)
    clock.now += 1.1
    assert found.find(PresentedKey.parse(key.text)) is None
    assert found.failed_reloads == 0


def test_a_ring_does_not_start_without_its_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keys_file"):
        KeyRing(tmp_path / "none.json", 1.0)


def test_the_command_adds_lists_and_revokes(tmp_path: Path) -> None:
    path, run = tmp_path / "keys.json", CliRunner()
    added = run.invoke(app, ["add", "alice", "-f", str(path), "--tokens-per-minute", "900", "--expires-in-days", "1"])
    assert added.exit_code == 0
    text = added.stdout.strip()
    presented = PresentedKey.parse(text)
    assert presented is not None
    (kept,) = load(path).keys
    assert presented.proves(kept)
    assert kept.tokens_per_minute == 900
    assert kept.expires is not None
    assert kept.expires - kept.created == timedelta(days=1)
    listed = run.invoke(app, ["list", "-f", str(path)], env={"COLUMNS": "200"})
    assert "alice" in listed.stdout
    assert "valid" in listed.stdout
    assert text not in listed.stdout
    assert run.invoke(app, ["revoke", kept.id, "-f", str(path)]).exit_code == 0
    assert load(path).keys[0].revoked is not None
    assert "revoked" in run.invoke(app, ["list", "-f", str(path)], env={"COLUMNS": "200"}).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "", "-f", "{}"], "name"),
        (["add", "a", "-f", "{}", "--requests-per-minute", "0"], "requests_per_minute"),
        (["revoke", "0" * 12, "-f", "{}"], "there is no key file"),
        (["list", "-f", "{}"], "No such file"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = tmp_path / "keys.json"
    done = CliRunner().invoke(app, [argument.format(path) for argument in arguments])
    assert done.exit_code != 0
    assert message in str(done.exception)
    assert not os.path.exists(path)
