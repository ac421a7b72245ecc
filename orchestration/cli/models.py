"""draftfleet models"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from orchestration.cli.console import fetch_model, out

app = typer.Typer(help="Models on this machine.", no_args_is_help=True)

TargetArgument = Annotated[str, typer.Argument(help="'default', a model folder, a hub id or a .gguf file.")]
CacheDir = Annotated[Path | None, typer.Option("--cache-dir", help="Instead of ~/.cache/draftfleet.")]


@app.command()
def fetch(
    target: TargetArgument = "default",
    cache_dir: CacheDir = None,
    sha256: Annotated[str | None, typer.Option("--sha256", help="Fail unless `models digest` tells this.")] = None,
) -> None:
    """Download and convert a model, so that `serve` finds it ready."""
    folder = fetch_model(target, cache_dir, sha256)
    out.print(f"{folder.name}: {folder.path}")


@app.command()
def digest(target: TargetArgument = "default", cache_dir: CacheDir = None) -> None:
    """The digest of a model's folder, for the setting model.sha256; fetches the model when it is not here."""
    from services.models.digest import folder_digest

    out.print(folder_digest(fetch_model(target, cache_dir).path))


@app.command("list")
def list_models(cache_dir: CacheDir = None) -> None:
    """Models that have been fetched."""
    from services.models.cache import cache_root
    from services.models.cached import cached_models

    models = cached_models(cache_dir)
    if not models:
        out.print(f"none in {cache_root(cache_dir)}; `draftfleet models fetch` fetches the default one")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("model", "MB", "folder"):
        table.add_column(column, justify="right" if column == "MB" else "left", overflow="fold")
    for model in models:
        table.add_row(model.name, f"{_size(model.path) / 1e6:.0f}", str(model.path))
    out.print(table)


@app.command()
def show(target: TargetArgument = "default", cache_dir: CacheDir = None) -> None:
    """Sizes and tokenizer of one model; fetches it when it is not here."""
    folder = fetch_model(target, cache_dir)
    config: dict[str, Any] = json.loads((folder.path / "config.json").read_text())
    config = {**config, **config.get("text_config", {})}
    out.print(f"[bold]{folder.name}[/] {folder.path}")
    for label, key in (
        ("family", "model_type"),
        ("layers", "num_hidden_layers"),
        ("hidden size", "hidden_size"),
        ("heads", "num_attention_heads"),
        ("KV heads", "num_key_value_heads"),
        ("vocabulary", "vocab_size"),
        ("context", "max_position_embeddings"),
        ("weights", "dtype"),
    ):
        out.print(f"  {label:<12}{config.get(key, '?')}")
    out.print(f"  {'on disk':<12}{_size(folder.path) / 1e6:.0f} MB")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
