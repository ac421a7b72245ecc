"""The file that a benchmark leaves: everything that decides its figures, and the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestration.bench.load import Load
from orchestration.bench.options import Arm
from orchestration.bench.record import Record
from orchestration.bench.summary import ACCEPTED_LENGTH, METHOD, Summary
from orchestration.bench.surroundings import Machine

SCHEMA = "draftfleet-bench"
VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Settings(_Part):
    """What a run measures, besides its arms."""

    datasets: tuple[str, ...] = ("mixed",)
    contexts: tuple[int, ...] = Field((), description="Prompts of about so many tokens each, instead of datasets.")
    loads: tuple[Load, ...]
    num_prompts: int | None = Field(None, ge=1, description="Of each run; null: enough to hold the load a while.")
    num_warmups: int | None = Field(
        None,
        ge=0,
        description="Before each cell; null: all prompts where runs repeat them, else as many as run at once.",
    )
    repeats: int = Field(1, ge=1, description="Measured runs of each cell and arm.")
    seed: int = Field(0, ge=0, description="Of arrivals and of the order of prompts.")
    goodput_ms: dict[str, float] = Field(default_factory=dict, description="Limits of a latency objective.")
    unique_prompts: bool = Field(
        False, description="A random mark before each prompt, against prefix caches; always with contexts."
    )
    timeout_s: float = Field(600.0, gt=0, description="Of each request.")
    save_detailed: bool = Field(False, description="Keep every request's times in the result.")


class MeasuredArm(_Part):
    """An arm, and what its endpoint said of itself."""

    arm: Arm
    model: str
    facts: dict[str, Any]


class Request(_Part):
    """One request in detail; times are seconds after the start of its run."""

    run: int
    prompt: str
    due: float
    sent: float
    ended: float
    token_times: tuple[float, ...]
    burst_times: tuple[float, ...]
    prompt_tokens: int
    text_hash: str
    finish: str
    error: str

    @classmethod
    def of(cls, record: Record, run: int, start: float) -> Request:
        return cls(
            run=run,
            prompt=record.prompt,
            due=_round(record.due - start),
            sent=_round(record.sent - start),
            ended=_round(record.ended - start),
            token_times=tuple(_round(time - start) for time in record.token_times),
            burst_times=tuple(_round(time - start) for time in record.burst_times),
            prompt_tokens=record.prompt_tokens,
            text_hash=record.text_hash,
            finish=record.finish,
            error=record.error,
        )


class Cell(_Part):
    """An arm on a dataset under a load: all runs together, and each."""

    arm: str
    dataset: str
    load: str
    total: Summary
    runs: tuple[Summary, ...]
    requests: tuple[Request, ...] = ()


class Ratio(_Part):
    """Second arm over first: geometric mean of the pairs' ratios with its 95% interval."""

    ratio: float
    low: float
    high: float
    pairs: int


class Pairing(_Part):
    """Two arms compared on a dataset under a load."""

    first: str
    second: str
    dataset: str
    load: str
    ratios: dict[str, Ratio]  # by figure
    same_texts: int  # answers to the same prompt in the same pair of runs with the same text
    texts: int  # pairs of answers that both came to their end


class Result(_Part):
    """What `draftfleet bench` writes and `draftfleet bench compare` reads."""

    schema_name: Literal["draftfleet-bench"] = "draftfleet-bench"
    schema_version: Literal[1] = 1
    date: str  # UTC, when it began
    machine: Machine
    versions: dict[str, str]
    settings: Settings
    arms: tuple[MeasuredArm, ...]
    sources: dict[str, str]  # of the prompts, by dataset
    cells: tuple[Cell, ...]
    pairings: tuple[Pairing, ...] = ()
    method: str = METHOD
    accepted_length: str = ACCEPTED_LENGTH

    def save(self, path: Path) -> None:
        """The file appears whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(path.suffix + ".partial")
        scratch.write_text(self.model_dump_json(indent=1) + "\n")
        scratch.replace(path)


def load_result(path: Path) -> Result:
    """Raises ValueError for a file that is no result of this version."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: it is no JSON ({error})") from error
    if not isinstance(found, dict) or found.get("schema_name") != SCHEMA:
        raise ValueError(f"{path}: it is no result of `draftfleet bench`; schema_name must be {SCHEMA!r}")
    if found.get("schema_version") != VERSION:
        raise ValueError(
            f"{path}: schema_version: {found.get('schema_version')!r} cannot be read; this version reads {VERSION}"
        )
    try:
        return Result.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _round(seconds: float) -> float:
    return round(seconds, 6)
