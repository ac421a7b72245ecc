"""What a client may ask of sampling, with the bounds of every field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.requests.json_schema import check_schema

MAX_CHOICES = 16
MAX_LOGPROBS = 20
MAX_STOPS = 16
MAX_STOP_LENGTH = 256
MAX_BIASES = 1024
MAX_BAD_WORDS = 128
MAX_BAD_WORD_TOKENS = 32
MAX_SEED = 2**64 - 1
MAX_COUNT = 2**32 - 1  # of tokens; what the messages can carry
MAX_TOKEN_ID = 2**31 - 1
# Smaller ones overflow fp32 logits. Both are no less after rounding to fp32, as the messages do.
MIN_TEMPERATURE = 1e-7
MIN_REPETITION_PENALTY = 0.001


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling controls of one request, the same with and without drafts.

    Raises ValueError naming the field, the value and the allowed range.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    include_stop: bool = False
    response_format: str | None = None  # the JSON schema that the answer follows; None: free text

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _in_range("max_tokens", self.max_tokens, 1, MAX_COUNT)
        _in_range("temperature", self.temperature, 0.0, 2.0)
        if 0.0 < self.temperature < MIN_TEMPERATURE:
            raise ValueError(
                f"temperature: {self.temperature} is out of range; it must be 0 (greedy), or at least "
                f"{MIN_TEMPERATURE} and at most 2.0"
            )
        _in_range("top_k", self.top_k, 0, MAX_COUNT)
        _in_range("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _in_range("min_p", self.min_p, 0.0, 1.0)
        _in_range("repetition_penalty", self.repetition_penalty, MIN_REPETITION_PENALTY, 2.0)
        _in_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _in_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _in_range("min_tokens", self.min_tokens, 0, MAX_COUNT if self.max_tokens is None else self.max_tokens)
        _in_range("n", self.n, 1, MAX_CHOICES)
        if self.seed is not None:
            _in_range("seed", self.seed, 0, MAX_SEED)
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None:
                _in_range(name, count, 0, MAX_LOGPROBS)
        check_count("logit_bias", len(self.logit_bias), MAX_BIASES)
        for token, bias in self.logit_bias.items():
            _in_range(f"logit_bias[{token}]", bias, -100.0, 100.0)
        check_count("bad_words", len(self.bad_words), MAX_BAD_WORDS)
        if not all(self.bad_words):
            raise ValueError("bad_words: an empty word is not allowed; every word needs at least one token")
        for word in self.bad_words:
            check_count("bad_words[...] tokens", len(word), MAX_BAD_WORD_TOKENS)
        self._check_token_ids(MAX_TOKEN_ID)
        check_count("stop", len(self.stop), MAX_STOPS)
        for text in self.stop:
            if not text:
                raise ValueError("stop: an empty string is not allowed; give 1 to 256 characters")
            check_count("stop[...] characters", len(text), MAX_STOP_LENGTH)
            if any("\ud800" <= character <= "\udfff" for character in text):
                raise ValueError("stop: a lone surrogate is not allowed; give text that UTF-8 can write")
        check_count("stop_token_ids", len(self.stop_token_ids), MAX_STOPS)
        if self.response_format is not None:
            check_schema(self.response_format)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    def check_vocabulary(self, vocabulary: int) -> None:
        """Raises ValueError when a token id named here is not below `vocabulary`."""
        self._check_token_ids(vocabulary - 1)

    def _check_token_ids(self, highest: int) -> None:
        named = {
            "logit_bias": self.logit_bias.keys(),
            "stop_token_ids": self.stop_token_ids,
            "bad_words": (token for word in self.bad_words for token in word),
        }
        for name, tokens in named.items():
            for token in tokens:
                _in_range(name, token, 0, highest)


def _in_range(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    if low <= value <= high and not (open_low and value == low):  # false for NaN
        return
    left = f"greater than {low}" if open_low else f"at least {low}"
    raise ValueError(f"{name}: {value} is out of range; it must be {left} and at most {high}")


def check_count(name: str, count: int, limit: int) -> None:
    """Raises ValueError."""
    if count > limit:
        raise ValueError(f"{name}: {count} is too many; at most {limit} are allowed")
