"""What the gateway asks of the router, and its answer."""

from __future__ import annotations

from dataclasses import dataclass

from services.requests.speculation import DrafterChoice
from services.requests.task import UNKNOWN_TASK, Task


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """Asks for a drafter for one request that a target replica has begun."""

    request_id: str
    target: str  # replica id
    drafter: DrafterChoice
    sequences: int = 1  # one for each choice
    task: Task = UNKNOWN_TASK


@dataclass(frozen=True, slots=True)
class RouteReply:
    """`lease` is empty where no drafter replica has a place: the target then
    drafts for itself, or decodes plainly."""

    kind: str  # "none" without a lease
    replica: str
    lease: bytes  # a serialised draftfleet.drafting.v1.Lease
    attempts: int  # reservations tried
