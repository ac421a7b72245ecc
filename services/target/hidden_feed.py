"""Which hidden states a step captures, and how they reach the drafters."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import torch

from services.target.drafting.interface import DraftingDesk, FeatureRequest
from services.target.kv.hidden import Capture, HiddenStates

log = logging.getLogger(__name__)

_MAX_COMPLAINTS = 16


class HiddenFeed:
    """What any known drafter wants is captured for every sequence and kept beside the KV cache.

    So a sequence can have it whatever became of it: a prompt found in the prefix cache,
    a drafter chosen half way, blocks that another request computed.
    """

    def __init__(self, desk: DraftingDesk, num_layers: int, memory_bytes: int) -> None:
        self._desk = desk
        self._num_layers = num_layers
        self._states = HiddenStates(memory_bytes)
        self._wanted: dict[int, FeatureRequest] = {}  # by sequence
        self._capture = Capture()
        self._refused: set[FeatureRequest] = set()

    def begin(self, sequences: Iterable[int]) -> Capture:
        """What the next pass has to capture."""
        wanted = {number: self._desk.features_wanted(number) for number in sequences}
        self._wanted = {
            number: request for number, request in wanted.items() if request is not None and self._is_sound(request)
        }
        everything = {*self._wanted.values(), *filter(self._is_sound, self._desk.features_of_interest())}
        layers = sorted({layer for request in everything for layer in request.layers})
        self._capture = Capture(tuple(layers), any(request.postnorm for request in everything))
        return self._capture

    def hand_over(
        self, sequence: int, blocks: Sequence[int], first: int, count: int, rows_RTD: torch.Tensor | None
    ) -> None:
        """The pass computed positions first .. first + count - 1, all committed; rows on the CPU, if it captured."""
        if rows_RTD is None:
            self._states.forget(blocks, first, count)
            return
        self._states.write(self._capture, blocks, first, rows_RTD)
        request = self._wanted.get(sequence)
        if request is None:
            return
        columns = [self._capture.layers.index(layer) for layer in request.layers]
        held = self._desk.features_end(sequence)
        if held < first:
            oldest = max(held, first - request.window if request.window else 0)
            earlier = self._states.newest(blocks, oldest, first)
            if earlier is not None:
                self._desk.add_features(sequence, earlier[0], earlier[1][:, columns])
        self._desk.add_features(sequence, first, rows_RTD[:, columns])

    def _is_sound(self, request: FeatureRequest) -> bool:
        """A drafter that wants layers which the target lacks gets nothing, and costs nobody anything."""
        if all(-1 <= layer < self._num_layers for layer in request.layers):
            return True
        if request not in self._refused and len(self._refused) < _MAX_COMPLAINTS:
            self._refused.add(request)
            log.error("a drafter wants layers %s; the target has %d", request.layers, self._num_layers)
        return False
