"""draftfleet generate"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.console import err


def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue; - reads it from stdin.")],
    address: options.Address = options.DEFAULT_ADDRESS,
    api_key_file: options.ApiKeyFile = None,
    ca_file: options.CaFile = None,
    max_tokens: options.MaxTokens = 256,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = None,
    drafter: options.Drafter = "auto",
    max_draft_tokens: options.MaxDraft = None,
    show_drafts: options.ShowDrafts = False,
    target: options.Target = None,
    stats: options.Stats = True,
) -> None:
    """Continue a text with a running service, streamed."""
    from orchestration.cli.answer import collect, print_stats
    from orchestration.cli.client import Client
    from orchestration.cli.drafts import legend, load_painter
    from orchestration.cli.requests import Controls, text_request

    text = sys.stdin.read() if prompt == "-" else prompt
    controls = Controls(max_tokens, temperature, top_p, seed, drafter, max_draft_tokens, trace=show_drafts)
    with Client(address, options.read_key(api_key_file), ca_file) as client:
        painter = load_painter(target, client.model().name) if show_drafts else None
        if painter is not None:
            err.print(legend())
        answer = collect(client.generate(text_request(text, controls)), show=True, painter=painter)
    if stats:
        print_stats(answer)
