"""Runs one drafter replica in a process of its own, without Ray, until it is told to end.

Prints its address on one line when it serves. Callers must show the token that is the first line of its input;
without --credential they need none, and then it listens on the loopback interface alone.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from services.drafters.config import DrafterConfig
from services.drafters.drafter import Drafter, Extension, Opening, Proposal, Question, Traits
from services.drafters.registry import Target, kind_of
from services.drafters.server import DrafterServer
from services.models.cache import cache_root
from services.models.source import resolve
from services.rpc.credential import Credential
from services.rpc.ports import PortRange

PAYLOAD_HIDDEN = 4096
_TIMEOUT_S = 60.0


class PayloadDrafter:
    """Takes in hidden states and proposes token 1: all the transport, none of the model."""

    def __init__(self, config: DrafterConfig) -> None:
        self.traits = Traits("payload", config.max_draft, max_position=0, feature_layers=(-1,))

    def open(self, openings: Sequence[Opening]) -> None: ...

    def append(self, extensions: Sequence[Extension]) -> None: ...

    def catch_up(self, extensions: Sequence[Extension]) -> None: ...

    def draft(self, questions: Sequence[Question]) -> Sequence[Proposal]:
        return [Proposal((1,) * q.max_draft, (0.5,) * q.max_draft) for q in questions]

    def close(self, sessions: Sequence[int]) -> None: ...


@contextmanager
def running(credential: Credential, *arguments: str) -> Iterator[str]:
    """The address of such a process, given these arguments, which ends with the block.

    Raises RuntimeError when it does not start.
    """
    command = [sys.executable, "-m", "orchestration.drafter_process", "--credential", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # Not an argument: those of a process can be read by everyone on the machine.
        with process.stdin:
            process.stdin.write(credential.token + "\n")
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"the drafter did not start; it ended with {process.wait(_TIMEOUT_S)}")
        yield address
    finally:
        process.terminate()
        process.wait(_TIMEOUT_S)
        process.stdout.close()


async def serve(config: DrafterConfig, drafter: Drafter, host: str, port: int, credential: Credential | None) -> None:
    server = DrafterServer(config, drafter, "drafter-process", credential)
    print(await server.start(host, PortRange(first=port, count=1)), flush=True)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="{}", help="a DrafterConfig as JSON")
    parser.add_argument("--payload", action="store_true", help="take in hidden states instead of drafting for real")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--target", default="default", help="the target, for kinds with weights")
    parser.add_argument("--credential", action="store_true", help="the first line of the input is the callers' token")
    arguments = parser.parse_args()
    config = DrafterConfig.model_validate_json(arguments.config)
    credential = Credential(sys.stdin.readline().strip()) if arguments.credential else None
    if credential is None and not ipaddress.ip_address(arguments.host).is_loopback:
        parser.error(f"--host {arguments.host} needs --credential: without it, everyone could use the drafter")
    drafter: Drafter = PayloadDrafter(config) if arguments.payload else build(config, arguments.target)
    asyncio.run(serve(config, drafter, arguments.host, arguments.port, credential))


def build(config: DrafterConfig, target_name: str) -> Drafter:
    kind = kind_of(config)
    if not kind.has_weights:
        return kind.build(config)
    folder = resolve(target_name)
    return kind.build(config, Target(folder.path, folder.name, cache_root()))


if __name__ == "__main__":
    main()
