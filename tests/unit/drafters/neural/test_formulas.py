"""The training forwards against their formulas, row by row, and what a row must not depend on."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from services.drafters.dfly.config import uniform_layers
from services.drafters.dfly.model import DflyModel, block_labels
from services.drafters.mtp.model import MtpModel, step_labels
from services.drafters.neural.layer import DecoderLayer
from tests.unit.drafters.neural.tiny import HIDDEN, VOCABULARY, dfly_model, draft_ids, mtp_model, parts

LENGTH = 40
HEADS, KV_HEADS, SIZE = 4, 2, 16


def norm(x_D: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
    return x_D / torch.sqrt(x_D.square().mean() + 1e-6) * weight_D


def turned(x_E: torch.Tensor, position: int) -> torch.Tensor:
    """Each pair (d, d + E / 2) as a complex number, turned by position / theta^(2 d / E)."""
    pairs = torch.complex(x_E[: SIZE // 2], x_E[SIZE // 2 :])
    angles = position / 10000.0 ** (torch.arange(0, SIZE, 2) / SIZE)
    pairs = pairs * torch.polar(torch.ones(SIZE // 2), angles)
    return torch.cat((pairs.real, pairs.imag))


def key_value(layer: DecoderLayer, x_D: torch.Tensor, position: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For each KV head; x_D is what the projections read."""
    attention = layer.self_attn
    keys, values = attention.k_proj(x_D).view(KV_HEADS, SIZE), attention.v_proj(x_D).view(KV_HEADS, SIZE)
    return [(turned(keys[h], position), values[h]) for h in range(KV_HEADS)]


def layer_output(
    layer: DecoderLayer, x_D: torch.Tensor, position: int, seen: list[list[tuple[torch.Tensor, torch.Tensor]]]
) -> torch.Tensor:
    queries = layer.self_attn.q_proj(norm(x_D, layer.input_layernorm.weight)).view(HEADS, SIZE)
    mixed = []
    for h in range(HEADS):
        pairs = [heads[h // (HEADS // KV_HEADS)] for heads in seen]
        scores = torch.stack([turned(queries[h], position) @ key / math.sqrt(SIZE) for key, _ in pairs])
        mixed.append(scores.softmax(0) @ torch.stack([value for _, value in pairs]))
    x_D = x_D + layer.self_attn.o_proj(torch.cat(mixed))
    fed = norm(x_D, layer.post_attention_layernorm.weight)
    return x_D + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(fed)) * layer.mlp.up_proj(fed))


def text(layers: int, seed: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (LENGTH,), generator=generator)
    return tokens, torch.randn(LENGTH, layers, HIDDEN, generator=generator)


def forward(model: MtpModel, tokens: torch.Tensor, hidden: torch.Tensor, steps: int = 3) -> list[torch.Tensor]:
    documents, positions = torch.zeros(1, LENGTH, dtype=torch.int64), torch.arange(LENGTH)[None]
    return [y[0] for y in model.train_forward(tokens[None], hidden[None], steps, documents, positions)]


@pytest.mark.parametrize("postnorm", [False, True])
@torch.no_grad()
def test_mtp(postnorm: bool) -> None:
    model = mtp_model(draft_input_postnorm=postnorm)
    tokens, hidden = text(1)
    found = forward(model, tokens, hidden[:, 0])
    embedding, window, layer = model.vocabulary.embedding_VD, model.config.window, model.layer
    steps: list[list[torch.Tensor]] = []
    feedback = list(hidden[:, 0])
    kept: list[list[list[tuple[torch.Tensor, torch.Tensor]]]] = []
    for k in range(3):
        rows = [
            model.eh_proj.weight
            @ torch.cat((norm(embedding[tokens[j + 1 + k]], model.enorm.weight), norm(feedback[j], model.hnorm.weight)))
            for j in range(LENGTH - 1 - k)
        ]
        read = [norm(x, layer.input_layernorm.weight) for x in rows]
        kept.append([key_value(layer, read[j], j + k) for j in range(len(rows))])
        outputs = []
        for j, x in enumerate(rows):
            first = max(0, j + k - window + 1)
            seen = kept[0][first : j + 1] + [kept[step][j] for step in range(1, k + 1)]
            outputs.append(layer_output(layer, x, j + k, seen))
        steps.append([norm(out, model.final_layernorm.weight) for out in outputs])
        feedback = steps[-1] if postnorm else outputs
    assert window < LENGTH - 5, "the window matters here"
    for k in range(3):
        wanted = torch.stack(steps[k])
        torch.testing.assert_close(found[k][: len(wanted)], wanted, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_dfly() -> None:
    model = dfly_model()
    tokens, features = text(3)
    documents, positions = torch.zeros(1, LENGTH, dtype=torch.int64), torch.arange(LENGTH)[None]
    anchors = torch.tensor([[1, 12, 33]])
    plain, corrected = model.train_forward(tokens[None], features[None], anchors, documents, positions)
    size, window, correction = model.config.block_size, model.config.window, model.hidden_correction
    assert model.mask_embedding is not None
    assert correction is not None
    for index, n in enumerate(anchors[0].tolist()):
        rows = [model.vocabulary.embedding_VD[tokens[n]], *[model.mask_embedding] * (size - 1)]
        for i, layer in enumerate(model.decoder_layers()):
            weights = model.layer_fusion_weights[i].softmax(0)
            seen = []
            for s in range(max(0, n - window), n):
                c = model.context_proj.weight @ features[s].flatten()
                g = norm(c + sum(weights[t] * features[s, t] for t in range(3)), model.context_norm.weight)
                seen.append(key_value(layer, g, s))
            read = [norm(x, layer.input_layernorm.weight) for x in rows]
            seen += [key_value(layer, x, n + k) for k, x in enumerate(read)]
            rows = [layer_output(layer, x, n + k, seen) for k, x in enumerate(rows)]
        for k in range(1, size):
            h = norm(rows[k], model.final_norm.weight)
            torch.testing.assert_close(plain[0, index, k - 1], h, atol=1e-4, rtol=1e-4)
            before = model.vocabulary.embedding_VD[tokens[n + k - 1]]
            z = torch.cat((norm(h, correction.hidden_norm.weight), norm(before, correction.embed_norm.weight)))
            change = correction.down_proj(F.silu(correction.gate_proj(z)) * correction.up_proj(z))
            torch.testing.assert_close(corrected[0, index, k - 1], h + change, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_no_row_of_mtp_reads_what_it_predicts() -> None:
    model = mtp_model()
    tokens, hidden = text(1)
    base = forward(model, tokens, hidden[:, 0])
    for position in (10, 25):
        other = tokens.clone()
        other[position] = (other[position] + 1) % VOCABULARY
        for k, y in enumerate(forward(model, other, hidden[:, 0])):
            reader = position - 1 - k  # row j of step k reads tokens up to j + 1 + k
            assert torch.equal(y[:reader], base[k][:reader])
            assert not torch.equal(y[reader], base[k][reader])
        changed = hidden[:, 0].clone()
        changed[position] += 1
        for k, y in enumerate(forward(model, tokens, changed)):
            assert torch.equal(y[:position], base[k][:position])
            assert not torch.equal(y[position], base[k][position])


@torch.no_grad()
def test_a_block_reads_nothing_from_its_anchor_on_but_what_it_corrects_by() -> None:
    model = dfly_model()
    tokens, features = text(3)
    documents, positions = torch.zeros(1, LENGTH, dtype=torch.int64), torch.arange(LENGTH)[None]
    anchors, n = torch.tensor([[20]]), 20
    plain, corrected = model.train_forward(tokens[None], features[None], anchors, documents, positions)
    changed = features.clone()
    changed[n:] += 1
    other = tokens.clone()
    other[n + 2] = (other[n + 2] + 1) % VOCABULARY
    same, moved = model.train_forward(other[None], changed[None], anchors, documents, positions)
    assert torch.equal(same, plain)
    assert torch.equal(moved[0, 0, :2], corrected[0, 0, :2])
    assert not torch.equal(moved[0, 0, 2], corrected[0, 0, 2]), "slot 3 is corrected by the token at n + 2"
    assert torch.equal(moved[0, 0, 3:], corrected[0, 0, 3:])


@torch.no_grad()
def test_documents_of_a_row_do_not_see_each_other() -> None:
    lengths = (17, 12, 11)
    documents = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))[None]
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    mtp, dfly = mtp_model(), dfly_model()
    tokens, features = text(3)
    packed = mtp.train_forward(tokens[None], features[None, :, 0], 3, documents, positions)
    anchors = torch.tensor([[3, 20, 33]])
    blocks, _ = dfly.train_forward(tokens[None], features[None], anchors, documents, positions)
    start = 0
    for number, length in enumerate(lengths):
        part = slice(start, start + length)
        own = torch.zeros(1, length, dtype=torch.int64), torch.arange(length)[None]
        alone = mtp.train_forward(tokens[None, part], features[None, part, 0], 3, *own)
        for k in range(3):
            _, valid = step_labels(tokens[None], documents, k)
            count = int(valid[0, part].sum())
            assert count == length - 2 - k
            torch.testing.assert_close(packed[k][0, part][:count], alone[k][0, :count], atol=1e-5, rtol=1e-5)
        anchor = anchors[:, number : number + 1] - start
        block, _ = dfly.train_forward(tokens[None, part], features[None, part], anchor, *own)
        torch.testing.assert_close(blocks[0, number], block[0, 0], atol=1e-5, rtol=1e-5)
        start += length


def test_rows_that_are_not_wanted_change_nothing_for_the_others() -> None:
    model = mtp_model()
    tokens, hidden = text(1)
    tokens, hidden = torch.stack((tokens, tokens.flip(0))), torch.stack((hidden, hidden.flip(0)))[:, :, 0]
    documents, positions = torch.zeros(2, LENGTH, dtype=torch.int64), torch.arange(LENGTH).expand(2, -1)
    rows = torch.tensor([[3, 4, 11, 30], [0, 7, 8, 36]])
    whole = model.train_forward(tokens, hidden, 3, documents, positions)
    chosen = model.train_forward(tokens, hidden, 3, documents, positions, rows)
    for all_BSD, some_BMD in zip(whole, chosen, strict=True):
        for batch in range(2):
            torch.testing.assert_close(some_BMD[batch], all_BSD[batch, rows[batch]], atol=1e-5, rtol=1e-5)


def test_labels() -> None:
    tokens = torch.arange(100, 110)[None]
    documents = torch.tensor([[0] * 6 + [1] * 4])
    labels, valid = step_labels(tokens, documents, 1)
    assert labels[0, :7].tolist() == [103, 104, 105, 106, 107, 108, 109]
    assert valid[0].tolist() == [True] * 3 + [False] * 3 + [True] + [False] * 3
    labels, valid = block_labels(tokens, documents, torch.tensor([[1, 4, 7]]), 4)
    assert labels[0].tolist() == [[102, 103, 104], [105, 106, 107], [108, 109, 109]]
    assert valid[0].tolist() == [[True] * 3, [True, False, False], [True, True, False]]


@pytest.mark.parametrize(
    ("layers", "count", "wanted"),
    [(30, 5, (1, 8, 14, 20, 27)), (36, 5, (1, 9, 17, 25, 33)), (4, 5, (1,)), (3, 5, (1,)), (1, 5, (0,))],
)
def test_captured_layers_are_spread(layers: int, count: int, wanted: tuple[int, ...]) -> None:
    assert uniform_layers(layers, count) == wanted


@pytest.mark.parametrize(("layers", "wanted"), [(1, [4]), (2, [0, 4]), (5, [0, 1, 2, 3, 4])])
def test_each_layer_starts_with_its_own_depth(layers: int, wanted: list[int]) -> None:
    config = dfly_model(num_hidden_layers=layers, target_layer_ids=(0, 1, 2, 3, 4)).config
    assert DflyModel(config, parts(), draft_ids()).layer_fusion_weights.argmax(-1).tolist() == wanted
