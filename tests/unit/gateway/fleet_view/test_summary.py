from __future__ import annotations

import httpx

from services.gateway.fleet_view.summary import MAX_REPLICAS, summarize
from tests.unit.gateway.conftest import Setup
from tests.unit.gateway.scripted import member


def test_groups_add_up_and_come_in_order() -> None:
    told = summarize(
        [
            member("drafter", "d1", "", kind="mtp", sessions=1, capacity=4, queue=1),
            member("drafter", "d0", "", kind="dfly", sessions=2, capacity=4),
            member("target", "t0", "", sessions=3, capacity=16),
            member("drafter", "d2", "", kind="mtp", sessions=2, capacity=4, queue=2),
        ]
    )
    assert [
        (g["role"], g["kind"], g["replicas"], g["sessions"], g["capacity"], g["queue"]) for g in told["groups"]
    ] == [
        ("target", "", 1, 3, 16, 0),
        ("drafter", "dfly", 1, 2, 4, 0),
        ("drafter", "mtp", 2, 3, 8, 3),
    ]
    assert [r["replica"] for r in told["replicas"]] == ["t0", "d0", "d1", "d2"]
    assert told["left_out"] == 0


def test_a_large_fleet_is_cut_but_counted() -> None:
    told = summarize([member("target", f"t{number:04}", "") for number in range(MAX_REPLICAS + 5)])
    assert len(told["replicas"]) == MAX_REPLICAS
    assert told["left_out"] == 5
    assert told["groups"][0]["replicas"] == MAX_REPLICAS + 5


async def test_no_address_leaves_by_this_door(setup: Setup) -> None:
    async with httpx.AsyncClient(base_url=setup.url) as client:
        reply = await client.get("/fleet")
    assert reply.json()["replicas"][0]["exactness"] == "bitwise"
    assert setup.target.address not in reply.text
