"""Prints the credential that the replicas of a cluster share. Runs as a driver of its own."""

from __future__ import annotations

import sys

import ray

from services.rpc.shared import shared_credential


def main(address: str) -> None:
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    print(shared_credential().token)


if __name__ == "__main__":
    main(sys.argv[1])
