"""The labels' values are all that the code can say: nothing known is told as `other`."""

from __future__ import annotations

from typing import get_args

from protos import drafting_pb2
from protos import generation_pb2 as pb
from services.dcut.messages import Role
from services.drafters.registry import KINDS
from services.gateway.errors import ErrorKind
from services.metrics import labels
from services.metrics.defined import gateway, router
from services.requests.speculation import MAX_DRAFT_TOKENS, DrafterChoice
from services.requests.task import CLASSES


def test_kinds_classes_roles_and_positions() -> None:
    assert set(labels.DRAFTER.values) == {*KINDS, "none"}
    assert set(labels.CLASS.values) == {*CLASSES, "unknown"}
    assert set(labels.ROLE.values) == set(get_args(Role))
    assert len(labels.POSITION.values) == MAX_DRAFT_TOKENS
    assert set(router.ROUTES.labels[1].values) == set(get_args(DrafterChoice))


def test_faults_errors_and_reasons() -> None:
    faults = {name.removeprefix("FAULT_CODE_").lower() for name in drafting_pb2.FaultCode.DESCRIPTOR.values_by_name}
    assert set(labels.FAULT.values) == faults - {"unspecified"}
    assert {kind.name.lower() for kind in ErrorKind} <= set(gateway.ERRORS.labels[1].values)
    reasons = {name.removeprefix("FINISH_REASON_").lower() for name in pb.FinishReason.DESCRIPTOR.values_by_name}
    assert set(gateway.CHOICES.labels[0].values) == reasons - {"unspecified"}
