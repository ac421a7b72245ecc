"""draftfleet chat"""

from __future__ import annotations

from typing import Annotated

import typer

from orchestration.cli import options
from orchestration.cli.console import err, out
from orchestration.cli.failure import Failure


def chat(
    message: Annotated[str | None, typer.Argument(help="One question; without it, a conversation.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="System message.")] = None,
    address: options.Address = options.DEFAULT_ADDRESS,
    api_key_file: options.ApiKeyFile = None,
    ca_file: options.CaFile = None,
    max_tokens: options.MaxTokens = 512,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = None,
    drafter: options.Drafter = "auto",
    max_draft_tokens: options.MaxDraft = None,
    show_drafts: options.ShowDrafts = False,
    target: options.Target = None,
    stats: options.Stats = True,
) -> None:
    """Chat with a running service, streamed; end the conversation with Ctrl-D."""
    from orchestration.cli.answer import collect, print_stats
    from orchestration.cli.client import Client
    from orchestration.cli.drafts import legend, load_painter
    from orchestration.cli.requests import Controls, chat_request

    controls = Controls(max_tokens, temperature, top_p, seed, drafter, max_draft_tokens, trace=show_drafts)
    turns = [("system", system)] if system else []
    with Client(address, options.read_key(api_key_file), ca_file) as client:
        name = client.model().name
        if show_drafts:
            err.print(legend())
        if message is None:
            err.print(f"{name}. Ctrl-C ends an answer, Ctrl-D the conversation.", style="dim")
        while True:
            if (question := message if message is not None else _ask()) is None:
                return
            turns.append(("user", question))
            painter = load_painter(target, name) if show_drafts else None
            try:
                answer = collect(client.generate(chat_request(turns, controls)), show=True, painter=painter)
            except KeyboardInterrupt:
                turns.pop()
                out.print()
            except Failure as failure:
                if message is not None:
                    raise
                turns.pop()
                err.print(f"[bold red]error:[/] {failure.markup}")
            else:
                turns.append(("assistant", answer.text))
                if stats:
                    print_stats(answer)
            if message is not None:
                return


def _ask() -> str | None:
    while True:
        try:
            text = out.input("[bold cyan]> [/]").strip()
        except (EOFError, KeyboardInterrupt):
            out.print()
            return None
        if text:
            return text
