"""Runs one drafter replica in a process of its own, without Ray, until it is told to end.

Prints its address on one line when it serves.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence

from services.drafters.config import DrafterConfig
from services.drafters.drafter import Drafter, Extension, Opening, Proposal, Question, Traits
from services.drafters.registry import Target, kind_of
from services.drafters.server import DrafterServer
from services.models.cache import cache_root
from services.models.source import resolve
from services.rpc.ports import PortRange

PAYLOAD_HIDDEN = 4096


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


async def serve(config: DrafterConfig, drafter: Drafter, host: str, port: int) -> None:
    server = DrafterServer(config, drafter, "drafter-process")
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
    arguments = parser.parse_args()
    config = DrafterConfig.model_validate_json(arguments.config)
    drafter: Drafter = PayloadDrafter(config) if arguments.payload else build(config, arguments.target)
    asyncio.run(serve(config, drafter, arguments.host, arguments.port))


def build(config: DrafterConfig, target_name: str) -> Drafter:
    kind = kind_of(config)
    if not kind.has_weights:
        return kind.build(config)
    folder = resolve(target_name)
    return kind.build(config, Target(folder.path, folder.name, cache_root()))


if __name__ == "__main__":
    main()
