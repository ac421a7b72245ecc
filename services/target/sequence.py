"""One choice of a request, from admission to its last token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from services.requests.sampling import SamplingParams
from services.requests.speculation import Speculation
from services.requests.task import UNKNOWN_TASK, Task
from services.target.emission import Emission, Statistics
from services.target.grammar.state import GrammarState
from services.target.kv.blocks import root_of
from services.target.sampling.logprobs import TokenLogprobs
from services.target.sampling.pipeline import SamplingState
from services.target.text import Detokenizer, StopScanner

Sink = Callable[[Emission], None]


@dataclass(frozen=True, slots=True)
class Progress:
    """What another replica had emitted of a choice when it was lost: it goes on after that."""

    choice: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request. `seed` of the sampling parameters is set; max_tokens too."""

    request_id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    speculation: Speculation
    sink: Sink  # called in the engine's thread; must not block
    task: Task = UNKNOWN_TASK
    progress: tuple[Progress, ...] = ()  # choices to go on with; empty: all, from the beginning
    grammar: GrammarState | None = None  # at its start, of the schema that the sampling parameters name
    tenant: str = ""  # whose share of the target it uses, and whose prefixes it may reuse

    @property
    def choices(self) -> tuple[Progress, ...]:
        """Those that are computed here, and where they begin."""
        return self.progress or tuple(Progress(choice, ()) for choice in range(self.sampling.n))


@dataclass(slots=True, eq=False)
class Sequence:
    id: int
    request: Request
    choice: int
    tokens: list[int]  # prompt and output; all but those after `num_computed` have KV
    sampling: SamplingState
    detokenizer: Detokenizer
    stops: StopScanner
    blocks: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)  # of the full blocks, in order
    num_computed: int = 0
    num_charged: int = 0  # positions that its tenant has paid for: computing one anew costs nothing
    num_cached: int = 0  # prompt tokens found in the prefix cache at first admission
    was_admitted: bool = False
    is_cancelled: bool = False
    drafter: str = "none"
    num_rounds: int = 0
    num_round_tokens: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)

    @property
    def num_prompt(self) -> int:
        return len(self.request.prompt)

    @property
    def tenant(self) -> str:
        return self.request.tenant

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Committed tokens without KV: 1 in plain decoding, more in a prefill."""
        return len(self.tokens) - self.num_computed

    @property
    def is_decoding(self) -> bool:
        return self.num_pending == 1 and self.num_output > 0

    @property
    def max_drafts(self) -> int:
        """Draft tokens beyond this could not all be emitted."""
        assert self.request.sampling.max_tokens is not None
        return self.request.sampling.max_tokens - self.num_output - 1

    @property
    def last_hash(self) -> bytes:
        return self.hashes[-1] if self.hashes else root_of(self.tenant)

    def statistics(self) -> Statistics:
        return Statistics(
            self.drafter,
            self.num_rounds,
            self.num_round_tokens,
            self.num_drafts,
            self.num_draft_tokens,
            self.num_accepted_tokens,
        )
