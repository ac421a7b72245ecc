"""Engines for tests: small random models of several families, and a way to run requests through one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from services.dcut.costs.steps import StepCosts
from services.dcut.local.guide import NO_GUIDE, Guide
from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.requests.task import UNKNOWN_TASK
from services.target.config import EngineConfig
from services.target.drafting.interface import DraftingDesk
from services.target.emission import Emission, Finish, TokenTrace
from services.target.engine import Engine
from services.target.model.loader import LoadedTarget, Precision, load_target
from services.target.sampling.logprobs import TokenLogprobs
from services.target.sequence import Progress, Request

VOCABULARY = 320
TIMEOUT_S = 240.0
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    # Large enough for logits that differ, as those of a trained model do.
    "initializer_range": 0.2,
    "eos_token_id": VOCABULARY - 1,
    "bos_token_id": VOCABULARY - 2,
    "pad_token_id": VOCABULARY - 3,
}
FAMILIES: dict[str, Callable[[], PretrainedConfig]] = {
    "llama": lambda: LlamaConfig(**_SIZES),
    "qwen2": lambda: Qwen2Config(**_SIZES),
    "qwen3": lambda: Qwen3Config(**_SIZES),
    "gemma3": lambda: Gemma3TextConfig(
        **_SIZES,
        sliding_window=24,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        query_pre_attn_scalar=16,
    ),
    "mistral": lambda: MistralConfig(**_SIZES, sliding_window=24),
}


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and a few merged ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(a, b) for a, b in itertools.product("etaoins", repeat=2)][: VOCABULARY - 3 - len(alphabet)]
    vocabulary = {token: i for i, token in enumerate([*alphabet, *(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def make_tiny_model(family: str, folder: Path, seed: int = 0) -> Path:
    """Saves a random model of the family and its tokenizer."""
    torch.manual_seed(seed)
    config = FAMILIES[family]()
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def load_tiny(folder: Path, precision: Precision, max_rows: int = 64) -> LoadedTarget:
    return load_target(folder, (VOCABULARY - 1,), precision, torch.device("cpu"), max_rows, folder.parent)


@dataclass(slots=True)
class Answer:
    """All that one choice of a request was told."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    trace: list[TokenTrace] = field(default_factory=list)
    num_emissions: int = 0
    finish: Finish | None = None

    def add(self, emission: Emission) -> None:
        assert self.finish is None, "something was told after the end"
        self.tokens.extend(emission.tokens)
        self.text += emission.text
        self.logprobs.extend(emission.logprobs)
        self.prompt_logprobs.extend(emission.prompt_logprobs)
        self.trace.extend(emission.trace)
        self.num_emissions += 1
        self.finish = emission.finish


@dataclass(frozen=True, slots=True)
class Ask:
    prompt: Sequence[int]
    sampling: SamplingParams
    speculation: Speculation = field(default_factory=Speculation)
    begun: tuple[int, ...] = ()  # what of the first choice another replica has said already
    tenant: str = ""


@contextmanager
def running_engine(
    target: LoadedTarget,
    desk: DraftingDesk,
    tokenizer: PreTrainedTokenizerFast | None = None,
    table: StepCosts | None = None,
    guide: Callable[[], Guide] = lambda: NO_GUIDE,
    **settings: object,
) -> Iterator[Engine]:
    """Drafts are verified whole unless `dcut` says otherwise: so most of them meet the target."""
    config = EngineConfig.model_validate({"kv_memory_mb": 64, "dcut": {"mode": "off"}, **settings})
    engine = Engine(target, tokenizer or tiny_tokenizer(), config, desk, table, guide)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


_numbers = itertools.count()


def answer_all(engine: Engine, asks: Sequence[Ask], concurrency: int | None = None) -> list[list[Answer]]:
    """Runs requests, at most `concurrency` together; the answers of each, choice by choice."""
    answers = [[Answer() for _ in range(ask.sampling.n)] for ask in asks]
    places = threading.Semaphore(concurrency or len(asks))
    ended = [threading.Event() for _ in asks]

    def submit(index: int) -> None:
        ask = asks[index]
        left = ask.sampling.n

        def sink(emission: Emission) -> None:
            nonlocal left
            answers[index][emission.choice].add(emission)
            if emission.finish is not None:
                left -= 1
                if left == 0:
                    ended[index].set()
                    places.release()

        sampling = ask.sampling if ask.sampling.seed is not None else replace(ask.sampling, seed=0)
        grammar = None if sampling.response_format is None else engine.grammars.compile(sampling.response_format)
        request_id = f"request-{next(_numbers)}"
        progress = (Progress(0, ask.begun),) if ask.begun else ()
        request = Request(
            request_id, tuple(ask.prompt), sampling, ask.speculation, sink, UNKNOWN_TASK, progress, grammar, ask.tenant
        )
        engine.submit(request)

    for index in range(len(asks)):
        assert places.acquire(timeout=TIMEOUT_S), "requests do not end"
        submit(index)
    for event in ended:
        assert event.wait(TIMEOUT_S), "a request does not end"
    for choices in answers:
        for answer in choices:
            assert answer.finish is not None
            assert answer.finish.reason != "error", answer.finish
    return answers


def answer_tokens(engine: Engine, asks: Sequence[Ask], concurrency: int | None = None) -> list[list[int]]:
    """The tokens of the first choice of each request."""
    return [choices[0].tokens for choices in answer_all(engine, asks, concurrency)]


@dataclass(frozen=True, slots=True)
class Reference:
    """transformers' greedy tokens, and the gap between the two best logits at each."""

    tokens: list[int]
    gaps: list[float]


TIE = 1e-4  # a smaller gap decides nothing


def transformers_greedy(model: PreTrainedModel, prompt: Sequence[int], max_tokens: int) -> Reference:
    ids = torch.tensor([prompt])
    out = model.generate(  # type: ignore[operator]
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    best = [logits[0].topk(2).values for logits in out.logits]
    return Reference(out.sequences[0, len(prompt) :].tolist(), [float(b[0] - b[1]) for b in best])


def check_identity(references: Sequence[Reference], answers: Sequence[Sequence[int]]) -> list[tuple[int, int, float]]:
    """Asserts equal tokens up to ties of the reference; the ties admitted: (prompt, token, gap)."""
    admitted = []
    for index, (reference, mine) in enumerate(zip(references, answers, strict=True)):
        pairs = zip(reference.tokens, mine, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if at is None:
            assert len(mine) == len(reference.tokens)
            continue
        gap = reference.gaps[at]
        assert gap < TIE, f"prompt {index} differs at token {at}, where the gap is {gap}"
        admitted.append((index, at, gap))
    return admitted
