"""The MTP drafter at work: verified pairs into its KV cache, then a few steps on its own output.

Shapes: R rows of all jobs, J jobs, D hidden size, U draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from services.drafters.drafter import Proposal, Traits
from services.drafters.mtp.model import MtpModel
from services.drafters.neural.choosing import choose
from services.drafters.neural.context import ContextPool, Span
from services.drafters.neural.packed import Machine, PackedLayer, PackedNorm, angle_table, serving_spec
from services.drafters.neural.sessions import SPARE_ROWS, Job, NeuralDrafter, NeuralSession
from services.drafters.neural.settings import NeuralSettings


class MtpDrafter(NeuralDrafter):
    """Row r of a session pairs the hidden state of its position with the token after it.

    What a draft feeds itself is written to the rows past the verified ones, and so is
    overwritten by the next verified rows before anything can see it.
    """

    def __init__(
        self, model: MtpModel, machine: Machine, settings: NeuralSettings, *, max_draft: int, max_sessions: int
    ) -> None:
        config = model.config
        window = min(settings.window or config.window, config.window)
        steps = min(max_draft, config.num_steps)
        traits = Traits(
            kind="mtp",
            max_draft=steps,
            max_position=config.max_position_embeddings,
            feature_layers=(-1,),
            features_postnorm=config.draft_input_postnorm,
            window=window,
            vocabulary=config.vocab_size,
            hidden_size=config.hidden_size,
        )
        spec = serving_spec(config, window)
        pool = ContextPool(spec, max_sessions, window, SPARE_ROWS + steps, machine.dtype, machine.device)
        super().__init__(traits, config, pool, settings.max_batch)
        self._attention = machine.attention(spec)
        self._scale = config.head_dim**-0.5
        self._is_postnorm = config.draft_input_postnorm
        # Embeddings are only ever read normed.
        self._normed_VD = PackedNorm(model.enorm, machine)(machine.tensor(model.vocabulary.embedding_VD))
        self._hnorm = PackedNorm(model.hnorm, machine)
        self._combine = machine.matrix(model.eh_proj.weight)
        self._layer = PackedLayer(model.layer, config, machine, angle_table(config, steps, machine.device))
        self._final_norm = PackedNorm(model.final_layernorm, machine)
        self._head = machine.matrix(model.vocabulary.head_UD)
        self._d2t_U = model.vocabulary.d2t.to(machine.device)

    def _absorb(self, session: NeuralSession, count: int) -> None:
        assert session.rows_RTD is not None
        x_RD = self._input(session.tokens_from(session.first_row + 1, count), session.rows_RTD[:count, 0])
        self._write(x_RD, [self._span(session, count)])

    def _draft(self, jobs: Sequence[Job]) -> list[Proposal]:
        spans: list[Span] = []
        tokens: list[int] = []
        hidden: list[torch.Tensor] = []
        newest: list[int] = []
        for job in jobs:
            session = job.session
            assert session.rows_RTD is not None
            count = session.rows_RTD.shape[0]
            spans.append(self._span(session, count, extra=job.count))
            tokens.extend(session.tokens_from(session.first_row + 1, count))
            hidden.append(session.rows_RTD[:, 0])
            newest.append(len(tokens) - 1)
        x_RD = self._input(tokens, hidden[0] if len(hidden) == 1 else torch.cat(hidden))
        query_RHE = self._write(x_RD, spans)
        drafts: list[list[int]] = [[] for _ in jobs]
        shares: list[list[float]] = [[] for _ in jobs]
        active = list(range(len(jobs)))
        x_JD = feedback_JD = x_RD[newest]
        query_JHE = query_RHE[newest]
        for step in range(max(job.count for job in jobs)):
            queried = [Span(spans[i].context, spans[i].first_row + spans[i].count - 1 + step, 1) for i in active]
            if step:
                x_JD = self._input([drafts[i][-1] for i in active], feedback_JD)
                query_JHE = self._write(x_JD, queried)
            mixed_JH = self._attention.attend(
                0, self._pool.reading(queried), query_JHE, self._pool.kv, self._scale, 0.0
            )
            out_JD = self._layer.finish(x_JD, mixed_JH)
            y_JD = self._final_norm(out_JD)
            chosen, given = choose(
                self._head(y_JD).float(),
                [jobs[i].session.opening for i in active],
                [jobs[i].base + step for i in active],
                self._d2t_U,
            )
            for i, token, share in zip(active, chosen, given, strict=True):
                drafts[i].append(token)
                shares[i].append(share)
            feedback_JD = y_JD if self._is_postnorm else out_JD
            going_on = [at for at, i in enumerate(active) if jobs[i].count > step + 1]
            if len(going_on) < len(active):
                active, feedback_JD = [active[at] for at in going_on], feedback_JD[going_on]
        for job, span in zip(jobs, spans, strict=True):
            self._done(job.session, span.count - 1)
        return [Proposal(tuple(draft), tuple(share)) for draft, share in zip(drafts, shares, strict=True)]

    def _input(self, tokens: list[int], hidden_RD: torch.Tensor) -> torch.Tensor:
        tokens_R = torch.tensor(tokens, device=self._device)
        embedded_RD = F.embedding(tokens_R, self._normed_VD)
        return self._combine(torch.cat((embedded_RD, self._hnorm(hidden_RD)), -1))

    def _write(self, x_RD: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
        """Writes the rows' keys and values; returns their queries [R, heads, head size]."""
        qkv_RC = self._layer.qkv(self._layer.input_norm(x_RD))
        return self._attention.rotate(0, self._pool.writing(spans), qkv_RC, self._layer.rotary, self._pool.kv)
