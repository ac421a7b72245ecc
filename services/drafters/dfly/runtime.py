"""The DFly drafter at work: verified features into its KV cache, then one pass over a block and its correction.

Shapes: R context rows of all jobs, J jobs, N slots of a block, T captured layers, D hidden size,
I correction size, U draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from services.drafters.dfly.model import DflyModel, HiddenCorrection
from services.drafters.drafter import Proposal, Traits
from services.drafters.neural.choosing import choose
from services.drafters.neural.context import ContextPool, Span
from services.drafters.neural.packed import Machine, PackedLayer, PackedNorm, angle_table, serving_spec
from services.drafters.neural.sessions import SPARE_ROWS, Job, NeuralDrafter, NeuralSession
from services.drafters.neural.settings import NeuralSettings


class DflyDrafter(NeuralDrafter):
    """Row r of a session is the context of one position.

    A block's own keys and values are written to the rows past the context, and so are
    overwritten by the next context rows before anything else can see them.
    """

    def __init__(
        self, model: DflyModel, machine: Machine, settings: NeuralSettings, *, max_draft: int, max_sessions: int
    ) -> None:
        config = model.config
        window = min(settings.window or config.window, config.window)
        traits = Traits(
            kind="dfly",
            max_draft=min(max_draft, config.block_size - 1),
            max_position=config.max_position_embeddings,
            feature_layers=config.target_layer_ids,
            window=window,
            vocabulary=config.vocab_size,
            hidden_size=config.hidden_size,
        )
        spec = serving_spec(config, window + config.block_size)
        pool = ContextPool(spec, max_sessions, window, SPARE_ROWS + config.block_size, machine.dtype, machine.device)
        super().__init__(traits, config, pool, settings.max_batch)
        self._attention = machine.attention(spec)
        self._scale = config.head_dim**-0.5
        self._size = config.block_size
        self._embedding_VD = machine.tensor(model.vocabulary.embedding_VD)
        self._mask_ND = machine.tensor(model.mask_vector()).expand(self._size - 1, -1)
        self._context_proj = machine.matrix(model.context_proj.weight)
        self._context_norm = PackedNorm(model.context_norm, machine)
        fusion_LT = torch.softmax(model.layer_fusion_weights.detach().float(), -1)
        self._fusion_LT = machine.tensor(fusion_LT) if config.enable_layer_fusion else None
        angles_PR = angle_table(config, self._size, machine.device)
        self._layers = [PackedLayer(layer, config, machine, angles_PR) for layer in model.decoder_layers()]
        self._final_norm = PackedNorm(model.final_norm, machine)
        correction = model.hidden_correction
        self._correction = None if correction is None else _PackedCorrection(correction, machine)
        self._head = machine.matrix(model.vocabulary.head_UD)
        self._d2t_U = model.vocabulary.d2t.to(machine.device)

    def _absorb(self, session: NeuralSession, count: int) -> None:
        assert session.rows_RTD is not None
        features_RTD = session.rows_RTD[:count]
        writing = self._pool.writing([self._span(session, count)])
        common_RD = self._context_proj(features_RTD.flatten(1))
        for index, layer in enumerate(self._layers):
            qkv_RC = layer.qkv(self._context(index, common_RD, features_RTD))
            self._attention.rotate(index, writing, qkv_RC, layer.rotary, self._pool.kv)

    def _draft(self, jobs: Sequence[Job]) -> list[Proposal]:
        spans: list[Span] = []
        features: list[torch.Tensor] = []
        for job in jobs:
            rows_RTD = job.session.rows_RTD
            assert rows_RTD is not None
            spans.append(self._span(job.session, rows_RTD.shape[0], extra=self._size))
            features.append(rows_RTD)
        hidden_JND = self._trunk(spans, features[0] if len(features) == 1 else torch.cat(features), self._anchors(jobs))
        for job, span in zip(jobs, spans, strict=True):
            self._done(job.session, span.count - 1)
        return self._choose(jobs, hidden_JND[:, 1:])

    def _trunk(self, spans: Sequence[Span], features_RTD: torch.Tensor, anchors: list[int]) -> torch.Tensor:
        """Hidden states of all slots after the final norm: [J, N, D]."""
        blocks = [Span(s.context, s.first_row + s.count, self._size, is_causal=False) for s in spans]
        writing, reading = self._pool.writing([*spans, *blocks]), self._pool.reading(blocks)
        rows = features_RTD.shape[0]
        common_RD = self._context_proj(features_RTD.flatten(1))
        anchors_J1D = F.embedding(torch.tensor(anchors, device=self._device), self._embedding_VD)[:, None]
        x_XD = torch.cat((anchors_J1D, self._mask_ND.expand(len(anchors), -1, -1)), 1).flatten(0, 1)  # X = J N
        for index, layer in enumerate(self._layers):
            # The same weights make keys and values of the context and of the block.
            read = torch.cat((self._context(index, common_RD, features_RTD), layer.input_norm(x_XD)))
            query = self._attention.rotate(index, writing, layer.qkv(read), layer.rotary, self._pool.kv)
            mixed = self._attention.attend(index, reading, query[rows:], self._pool.kv, self._scale, 0.0)
            x_XD = layer.finish(x_XD, mixed)
        return self._final_norm(x_XD).view(len(anchors), self._size, -1)

    def _context(self, layer: int, common_RD: torch.Tensor, features_RTD: torch.Tensor) -> torch.Tensor:
        if self._fusion_LT is not None:
            common_RD = common_RD + torch.matmul(self._fusion_LT[layer], features_RTD)
        return self._context_norm(common_RD)

    def _choose(self, jobs: Sequence[Job], hidden_JND: torch.Tensor) -> list[Proposal]:
        """Left to right, each slot corrected by the token chosen before it."""
        drafts: list[list[int]] = [[] for _ in jobs]
        shares: list[list[float]] = [[] for _ in jobs]
        previous = self._anchors(jobs)
        active = list(range(len(jobs)))
        longest = max(job.count for job in jobs)
        slots_JND = hidden_JND[:, :longest]
        partial_JNI = None if self._correction is None else self._correction.begin(slots_JND)
        for slot in range(longest):
            y_JD = slots_JND[active, slot]
            if self._correction is not None and partial_JNI is not None:
                read_J = torch.tensor(previous, device=self._device)
                y_JD = self._correction(y_JD, partial_JNI[active, slot], F.embedding(read_J, self._embedding_VD))
            previous, given = choose(
                self._head(y_JD).float(),
                [jobs[i].session.opening for i in active],
                [jobs[i].base + slot for i in active],
                self._d2t_U,
            )
            for i, token, share in zip(active, previous, given, strict=True):
                drafts[i].append(token)
                shares[i].append(share)
            active = [i for i in active if jobs[i].count > slot + 1]
            previous = [drafts[i][-1] for i in active]
        return [Proposal(tuple(draft), tuple(share)) for draft, share in zip(drafts, shares, strict=True)]

    @staticmethod
    def _anchors(jobs: Sequence[Job]) -> list[int]:
        return [job.session.tokens[-1] for job in jobs]


class _PackedCorrection:
    """The half of W_g and W_u that reads a slot's hidden state runs once for all slots."""

    def __init__(self, correction: HiddenCorrection, machine: Machine) -> None:
        hidden_g, embedded_g = correction.gate_proj.weight.chunk(2, 1)
        hidden_u, embedded_u = correction.up_proj.weight.chunk(2, 1)
        self._hidden = machine.matrix(hidden_g, hidden_u)
        self._embedded = machine.matrix(embedded_g, embedded_u)
        self._down = machine.matrix(correction.down_proj.weight)
        self._hidden_norm = PackedNorm(correction.hidden_norm, machine)
        self._embed_norm = PackedNorm(correction.embed_norm, machine)

    def begin(self, hidden_JND: torch.Tensor) -> torch.Tensor:
        """[J, N, 2 I]"""
        jobs, slots = hidden_JND.shape[:2]
        return self._hidden(self._hidden_norm(hidden_JND).flatten(0, 1)).view(jobs, slots, -1)

    def __call__(self, y_JD: torch.Tensor, partial_JI: torch.Tensor, previous_JD: torch.Tensor) -> torch.Tensor:
        gate_JI, up_JI = (partial_JI + self._embedded(self._embed_norm(previous_JD))).chunk(2, -1)
        return y_JD + self._down(F.silu(gate_JI) * up_JI)
