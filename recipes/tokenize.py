"""Tokenizes text into shards for data=tokens: `python -m recipes.tokenize path=DIR [data=text ...] [workers=4]`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import PositiveInt
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from builder.cli import main
from builder.component import Config, Room
from builder.data import cache_folder
from builder.data.tokenizing import tokenize
from builder.load import read
from builder.section import Section


class TokenizeSpec(Section):
    """`data` and `tokenizer` as of a run; the shards are written to the new folder `path`.

    workers      processes; null: one for each processor
    characters   of text that a shard takes, or a little more
    """

    data: Annotated[Config, Room("data")]
    tokenizer: Annotated[Config, Room("tokenizer")]
    path: str
    workers: PositiveInt | None = None
    characters: PositiveInt = 1 << 24


def job(config: dict[str, Any]) -> None:
    """Tokenizes, and says how to train on the result."""
    spec, console = read(TokenizeSpec, config), Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tokenizing")
        manifest = tokenize(
            spec.data,
            spec.tokenizer,
            Path(spec.path).expanduser(),
            cache=cache_folder(),
            workers=spec.workers or os.cpu_count() or 1,
            characters=spec.characters,
            tell=lambda done, total: bar.update(task, completed=done, total=total),
        )
    for side in ("train", "val"):
        shards = getattr(manifest, side)
        tokens, documents = (sum(getattr(shard, key) for shard in shards) for key in ("tokens", "documents"))
        told = f"{tokens:,} tokens of {documents:,} documents in {len(shards)} shards of {manifest.dtype}"
        console.out(f"{side:<5} {told}", highlight=False)
    console.out(
        f"next: python -m recipes.train data=tokens data.path={spec.path} {manifest.asked(spec.path)}", highlight=False
    )


if __name__ == "__main__":
    main(job, "tokenize")
