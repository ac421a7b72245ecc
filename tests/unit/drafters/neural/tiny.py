"""Small random drafters, and a way to feed sequences of hidden states to them as a target would."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import torch

from services.drafters.dfly.config import DflyConfig
from services.drafters.dfly.model import DflyModel
from services.drafters.dfly.runtime import DflyDrafter
from services.drafters.drafter import Drafter, Extension, Features, Opening, Proposal, Question
from services.drafters.mtp.config import MtpConfig
from services.drafters.mtp.model import MtpModel
from services.drafters.mtp.runtime import MtpDrafter
from services.drafters.neural.frozen import TargetParts
from services.drafters.neural.packed import Machine
from services.drafters.neural.settings import NeuralSettings

M = TypeVar("M", bound=torch.nn.Module)
VOCABULARY = 96
HIDDEN = 32
SIZES = {
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "draft_vocab_size": 64,
    "window": 24,
    "max_position_embeddings": 256,
}
SETTINGS = NeuralSettings(device="cpu", precision="fp32", max_batch=4)


def parts(seed: int = 0) -> TargetParts:
    generator = torch.Generator().manual_seed(seed)
    return TargetParts(
        torch.randn(VOCABULARY, HIDDEN, generator=generator), torch.randn(VOCABULARY, HIDDEN, generator=generator)
    )


def draft_ids() -> torch.Tensor:
    """64 of the 96, ascending."""
    return torch.arange(VOCABULARY)[torch.arange(VOCABULARY) % 3 != 1]


def mtp_model(**changes: object) -> MtpModel:
    torch.manual_seed(1)
    model = MtpModel(MtpConfig.model_validate({**SIZES, **changes}), parts(), draft_ids())
    return _shaken(model)


def dfly_model(**changes: object) -> DflyModel:
    torch.manual_seed(2)
    config = {
        **SIZES,
        "num_hidden_layers": 2,
        "block_size": 5,
        "target_layer_ids": (1, 3, 4),
        "target_num_hidden_layers": 7,
        **changes,
    }
    return _shaken(DflyModel(DflyConfig.model_validate(config), parts(), draft_ids()))


def machine(cache_dir: Path, native: bool) -> Machine:
    chosen = Machine.choose(SETTINGS, cache_dir)
    return chosen if native else Machine(chosen.device, chosen.dtype, None, cache_dir)


def serve(model: MtpModel | DflyModel, machine: Machine, max_sessions: int = 8) -> Drafter:
    if isinstance(model, MtpModel):
        return MtpDrafter(model, machine, SETTINGS, max_draft=16, max_sessions=max_sessions)
    return DflyDrafter(model, machine, SETTINGS, max_draft=16, max_sessions=max_sessions)


def layers_of(model: MtpModel | DflyModel) -> int:
    return 1 if isinstance(model, MtpModel) else len(model.config.target_layer_ids)


@dataclass
class Text:
    """Committed tokens of one sequence, and a hidden state for each but the last."""

    tokens: list[int]
    features_STD: torch.Tensor

    @classmethod
    def random(cls, length: int, layers: int, seed: int) -> Text:
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, VOCABULARY, (length,), generator=generator).tolist()
        return cls(tokens, torch.randn(length, layers, HIDDEN, generator=generator))

    def extension(self, session: int, base: int, end: int, first: int, chunks: int = 1) -> Extension:
        """Tokens base .. end - 1 with the hidden states first .. end - 2."""
        bounds = torch.linspace(first, end - 1, chunks + 1).round().long().tolist()
        features = tuple(
            Features(low, "float32", tuple(rows.shape), rows.contiguous().numpy().tobytes())  # type: ignore[arg-type]
            for low, high in pairwise(bounds)
            if (rows := self.features_STD[low:high]).shape[0]
        )
        return Extension(session, base, tuple(self.tokens[base:end]), features)


def opening(session: int, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0) -> Opening:
    return Opening(session, temperature, 1000 + session, top_k, top_p)


def start(drafter: Drafter, session: int, text: Text, end: int, first: int = 0, temperature: float = 0.0) -> None:
    drafter.open([opening(session, temperature)])
    drafter.catch_up([text.extension(session, first, end, first)])


def ask(drafter: Drafter, session: int, base: int, count: int = 16) -> Proposal:
    return drafter.draft([Question(session, base, count)])[0]


def _shaken(model: M) -> M:
    """Norms and biases that are not all alike, and a correction that does something."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()
