"""The command `draftfleet`."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Annotated

import typer

from orchestration.cli import (
    bench,
    chat,
    classifier,
    config,
    costs,
    demo,
    deploy,
    doctor,
    generate,
    keys,
    metrics,
    models,
    serve,
    simulate,
    status,
    train,
)
from orchestration.cli.console import err
from orchestration.cli.failure import Failure

app = typer.Typer(
    name="draftfleet",
    help="Lossless speculative decoding with drafters that run, scale and fail apart from their target.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (
    serve.serve,
    deploy.deploy,
    demo.demo,
    generate.generate,
    chat.chat,
    status.status,
    costs.costs,
    simulate.simulate,
    metrics.metrics,
    doctor.doctor,
):
    app.command()(command)
app.add_typer(models.app, name="models")
app.add_typer(keys.app, name="keys")
app.add_typer(config.app, name="config")
app.add_typer(train.app, name="train")
app.add_typer(bench.app, name="bench")
app.add_typer(classifier.app, name="classifier")


def _version(wanted: bool) -> None:
    if wanted:
        print(importlib.metadata.version("draftfleet"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: a user's mistake is one message and exit status 1, never a traceback."""
    try:
        app()
    except Failure as failure:
        err.print(f"[bold red]error:[/] {failure.markup}", highlight=False, soft_wrap=True)
        sys.exit(failure.status)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
