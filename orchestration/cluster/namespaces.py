"""Hosts that are namespaces of this machine: own address, own processes, own home and /tmp, and an SSH server."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

NETWORK = "10.77.0"
OUTSIDE_TMP = "/var/tmp"  # hosts have a /tmp of their own, and would not see folders in this machine's
_BRIDGE = "draftfleet0"
_START_TIMEOUT_S = 20.0
TOOLS = ("ip", "unshare", "nsenter", "ssh", "sshd", "ssh-keygen", "rsync", "mount")


class NamespaceError(RuntimeError):
    """Hosts cannot be made here; the message says why."""


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    address: str
    home: Path


@dataclass(frozen=True, slots=True)
class HostNetwork:
    hosts: tuple[Host, ...]
    private_key: Path


def check_tools() -> None:
    """Raises NamespaceError when this machine or user cannot make hosts."""
    if os.geteuid() != 0:
        raise NamespaceError("namespaces with addresses of their own take root")
    # sshd and ip are where not every user looks.
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_path()) is None]
    if missing:
        raise NamespaceError(
            f"{', '.join(missing)} not found; on Debian and Ubuntu: "
            "apt install iproute2 util-linux openssh-server openssh-client rsync"
        )


@contextmanager
def hosts(names: Sequence[str], folder: Path) -> Iterator[HostNetwork]:
    """Hosts 10.77.0.11 and up, on a bridge of this machine's; `folder` is not in /tmp. Raises NamespaceError."""
    check_tools()
    key = folder / "key"
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    with ExitStack() as stack:
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        stack.callback(_run, "ip", "link", "delete", _BRIDGE)
        _run("ip", "address", "add", f"{NETWORK}.1/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        made = tuple(
            stack.enter_context(_host(name, number, folder, key.with_suffix(".pub")))
            for number, name in enumerate(names, start=11)
        )
        yield HostNetwork(made, key)


@contextmanager
def _host(name: str, number: int, folder: Path, public_key: Path) -> Iterator[Host]:
    home = folder / name / "home"
    temporary = folder / name / "tmp"
    run = folder / name / "run"
    for path in (home, temporary, run / "sshd"):
        path.mkdir(parents=True)
    host = Host(name, f"{NETWORK}.{number}", home)
    passwd = folder / name / "passwd"
    passwd.write_text(_passwd(home))
    # Waits for its address, then is its SSH server.
    script = f"""set -e
mount --bind {temporary} /tmp
mount --bind {run} /run
mount --bind {passwd} /etc/passwd
until ip -brief address show dev eth0 2>/dev/null | grep -q {host.address}; do sleep 0.05; done
ssh-keygen -q -t ed25519 -N "" -f /run/hostkey
exec {shutil.which("sshd", path=_path())} -D -e -f /dev/null -h /run/hostkey -o ListenAddress={host.address} \
  -o AuthorizedKeysFile={public_key} -o StrictModes=no -o UsePAM=no -o PidFile=none -o PermitRootLogin=prohibit-password
"""
    log = (folder / name / "sshd.log").open("wb")
    process = subprocess.Popen(
        ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
        stdout=log,
        stderr=subprocess.STDOUT,
        env={"PATH": _path()},
    )
    log.close()
    first = None
    try:
        first = _child(process)
        _connect(host, number, first)
        _await_ssh(host, process, folder / name / "sshd.log")
        yield host
    finally:
        if first is None:
            process.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)  # and with it all others of its namespace; unshare ends by itself
        process.wait()


def _connect(host: Host, number: int, pid: int) -> None:
    outside = f"df{number}"
    _run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _run("ip", "link", "set", outside, "master", _BRIDGE, "up")
    inside = ("nsenter", "--net", "--target", str(pid), "ip")
    _run(*inside, "link", "set", "lo", "up")
    _run(*inside, "link", "set", "eth0", "up")
    _run(*inside, "address", "add", f"{host.address}/24", "dev", "eth0")
    _run(*inside, "route", "add", "default", "via", f"{NETWORK}.1")


def _child(process: subprocess.Popen[bytes]) -> int:
    """The process in the new namespaces: unshare itself stays outside of the one for processes."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while time.monotonic() < deadline:
        if children := path.read_text().split():
            return int(children[0])
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise NamespaceError("unshare started nothing; does this machine allow namespaces?")


def _await_ssh(host: Host, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((host.address, 22), timeout=1):
            return
        time.sleep(0.05)
    raise NamespaceError(f"the SSH server of {host.name} does not answer: {log.read_text(errors='replace')[-500:]}")


def _passwd(home: Path) -> str:
    """root's home is the host's own; sshd wants a user of its name."""
    lines = ["root:x:0:0:root:" + str(home) + ":/bin/bash"]
    lines += [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith(("root:", "sshd:"))]
    return "\n".join([*lines, "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin", ""])


def _path() -> str:
    return os.pathsep.join([os.defpath, "/usr/sbin", "/sbin", "/usr/local/bin"])


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, env={"PATH": _path()})
    if result.returncode != 0:
        raise NamespaceError(f"{' '.join(command)} failed: {result.stderr.strip()}")
