"""From a JSON schema to a grammar over the model's tokens, off the event loop and with bounds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tokenizers
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

from services.target.grammar.config import GrammarConfig
from services.target.grammar.state import GrammarState

_END = "<|end of the constrained text|>"


class CompilerBusy(RuntimeError):
    """Other grammars are being compiled; the request may be tried again later."""


class GrammarCompiler:
    """One thread compiles; what it made is kept for the next request with the same schema."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        vocabulary: int,
        eos_ids: Sequence[int],
        config: GrammarConfig | None = None,
    ) -> None:
        """`vocabulary`: rows of the logits."""
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._eos_ids = eos_ids
        self._config = config or GrammarConfig()
        self._tokens: tuple[LLTokenizer, int] | None = None
        self._compiled: OrderedDict[str, GrammarState] = OrderedDict()
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")

    async def grammar(self, schema: str) -> GrammarState:
        """To be made `fresh` for every answer.

        Raises ValueError for a schema that cannot be compiled, or not for this model, and CompilerBusy.
        """
        if (known := self._known(schema)) is not None:
            return known
        timeout_s = self._config.compile_timeout_s
        try:
            await asyncio.wait_for(self._turn.acquire(), timeout_s)
        except asyncio.TimeoutError:
            raise CompilerBusy("other grammars are being compiled; try again later") from None
        if (known := self._known(schema)) is not None:  # another request had the same
            self._turn.release()
            return known
        work = asyncio.get_running_loop().run_in_executor(self._thread, self.compile, schema)
        work.add_done_callback(self._ended)
        done, _ = await asyncio.wait({work}, timeout=timeout_s)
        if not done:
            raise ValueError(f"response_format: it is too complex; it was not compiled within {timeout_s} s")
        grammar = self._compiled[schema] = work.result()
        while len(self._compiled) > self._config.cached:
            self._compiled.popitem(last=False)
        return grammar

    def compile(self, schema: str) -> GrammarState:
        """Raises ValueError."""
        tokens, end = self._tokens = self._tokens or self._read_tokenizer()
        white_space = rf"[\x20\x0A\x0D\x09]{{0,{self._config.max_whitespace}}}"
        try:
            grammar = LLMatcher.grammar_from_json_schema(
                schema,
                # Not lenient: a keyword that is not known must not be ignored.
                overrides={"whitespace_pattern": white_space, "lenient": False},
            )
        except ValueError as error:
            raise ValueError(f"response_format: it cannot be read ({error})") from error
        matcher = LLMatcher(tokens, grammar, log_level=0, limits=self._limits())
        if matcher.is_error():
            raise ValueError(f"response_format: it cannot be followed ({matcher.get_error().strip()[:500]})")
        state = GrammarState(matcher, self._vocabulary, end, self._eos_ids)
        state.allowed(())
        if state.failure:  # at the very start
            raise ValueError(state.failure)
        return state

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _known(self, schema: str) -> GrammarState | None:
        grammar = self._compiled.get(schema)
        if grammar is not None:
            self._compiled.move_to_end(schema)
        return grammar

    def _ended(self, work: asyncio.Future[GrammarState]) -> None:
        self._turn.release()
        if not work.cancelled():
            work.exception()  # nobody may be there to ask for it any more

    def _read_tokenizer(self) -> tuple[LLTokenizer, int]:
        """The model's tokens, and one more that says where a text may end: a model may have no such token, or many."""
        backend: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        try:
            if backend is None:
                raise ValueError("it is not a fast one")
            own = tokenizers.Tokenizer.from_str(backend.to_str())
            own.no_padding()
            own.no_truncation()
            own.add_special_tokens([AddedToken(_END, special=True)])
            end = own.token_to_id(_END)
            assert end is not None
            return LLTokenizer(own.to_str(), n_vocab=max(self._vocabulary, end + 1), eos_token=end), end
        except ValueError as error:
            raise ValueError(f"response_format: this model's tokenizer cannot serve grammars ({error})") from error

    def _limits(self) -> LLParserLimits:
        config = self._config
        return LLParserLimits(
            max_grammar_size=config.max_size,
            step_max_items=config.max_step_items,
            max_lexer_states=config.max_lexer_states,
            verbose_errors=False,  # they would repeat the text
        )
