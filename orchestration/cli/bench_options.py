"""Options that the bench commands share. Where `vllm bench serve` has the same thing, its name works too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from orchestration.cli.options import Temperature, TopP

Url = Annotated[
    str, typer.Option("--url", "--base-url", "-u", help="grpc://host:port, or http(s)://host:port of an OpenAI API.")
]
Model = Annotated[str, typer.Option("--model", "-m", help="Model to ask for; otherwise the first that is served.")]
Api = Annotated[str, typer.Option("--api", help="chat, or completions: the prompts as they are.")]
Datasets = Annotated[
    list[str], typer.Option("--dataset", "--dataset-name", help="chat, code, maths or mixed; may be repeated.")
]
DatasetPath = Annotated[
    Path | None,
    typer.Option("--dataset-path", exists=True, dir_okay=False, help='Own prompts: a {"prompt": ...} on each line.'),
]
Contexts = Annotated[
    list[int] | None,
    typer.Option("--context", min=32, help="Prompts of about so many tokens instead; may be repeated."),
]
Concurrency = Annotated[
    list[int] | None,
    typer.Option("--concurrency", "--max-concurrency", "-c", min=1, help="Requests at once; may be repeated."),
]
Rates = Annotated[
    list[float] | None,
    typer.Option("--request-rate", "-r", help="Arrivals a second, inf for all at once; may be repeated."),
]
Burstiness = Annotated[float, typer.Option("--burstiness", help="Of arrivals: 1 is Poisson, less is burstier.")]
Trace = Annotated[
    Path | None,
    typer.Option("--trace", exists=True, dir_okay=False, help='Arrivals: seconds, or JSON with "timestamp" in ms.'),
]
TraceScale = Annotated[float, typer.Option("--trace-scale", help="Multiplies the times of a trace.")]
NumPrompts = Annotated[
    int | None,
    typer.Option("--num-prompts", min=1, help="Requests of each run; otherwise 4 a client, or 60 s of arrivals."),
]
NumWarmups = Annotated[
    int | None,
    typer.Option(
        "--num-warmups",
        min=0,
        help="Requests before each cell that are in no figure; otherwise all prompts where runs repeat them.",
    ),
]
UniquePrompts = Annotated[
    bool, typer.Option("--unique-prompts", help="A random mark before each prompt, so that no prefix cache knows it.")
]
Goodput = Annotated[
    list[str] | None,
    typer.Option("--goodput", "-g", metavar="NAME:MS", help="Latency objective: ttft, tpot or e2el; may be repeated."),
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", "--output-len", "-n", min=1, help="Most tokens of an answer.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of arrivals, of the order of prompts and of sampling.")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Answers of exactly --max-tokens, where servers can.")]
Drafter = Annotated[
    str | None, typer.Option("--drafter", "-d", help="draftfleet only: auto, mtp, dfly, lookup or none.")
]
MaxDraft = Annotated[
    int | None, typer.Option("--max-draft-tokens", min=0, help="draftfleet only: most draft tokens a round.")
]
Force = Annotated[
    bool, typer.Option("--force", help="draftfleet only: draft that many in every round, and verify all of them.")
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option("--api-key-file", exists=True, dir_okay=False, help="File with the key of an OpenAI API."),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds until a request counts as failed.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="RESULT.json; RESULT.html and, with matplotlib, RESULT.png come beside it."),
]
SaveDetailed = Annotated[bool, typer.Option("--save-detailed", help="Keep the times of every token in the JSON.")]


@dataclass(frozen=True, slots=True)
class Shared:
    """What every measuring command takes, with its defaults."""

    url: Url = "grpc://127.0.0.1:9000"
    model: Model = ""
    api: Api = "chat"
    dataset_path: DatasetPath = None
    context: Contexts = None
    concurrency: Concurrency = None
    request_rate: Rates = None
    burstiness: Burstiness = 1.0
    trace: Trace = None
    trace_scale: TraceScale = 1.0
    num_prompts: NumPrompts = None
    num_warmups: NumWarmups = None
    max_tokens: MaxTokens = 128
    temperature: Temperature = 0.0
    top_p: TopP = 1.0
    seed: Seed = 0
    ignore_eos: IgnoreEos = False
    drafter: Drafter = None
    max_draft_tokens: MaxDraft = None
    force: Force = False
    unique_prompts: UniquePrompts = False
    goodput: Goodput = None
    timeout: Timeout = 600.0
    api_key_file: ApiKeyFile = None
    output: Output = None
    save_detailed: SaveDetailed = False


def with_shared(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command, which takes a `shared`, the options of Shared after its own."""
    own, common = get_type_hints(command, include_extras=True), get_type_hints(Shared, include_extras=True)
    parameters = [
        parameter.replace(annotation=own[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "shared"
    ]
    parameters += [
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=common[option.name]
        )
        for option in fields(Shared)
    ]

    @functools.wraps(command)
    def parsed(**given: Any) -> None:
        shared = Shared(**{option.name: given.pop(option.name) for option in fields(Shared)})
        command(**given, shared=shared)

    # What typer reads instead of the function's own.
    parsed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    parsed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return parsed
