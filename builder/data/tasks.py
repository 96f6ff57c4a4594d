"""From a task whose answers are known to a corpus of rows that are drawn as they are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import ArchlabError, ConfigError, Problem
from .corpus import Corpus
from .digest import digest
from .samples import Shape
from .samples.drawn import Drawn
from .tokenizer import Tokenizer
from .tokenizer.symbols import MARK

if TYPE_CHECKING:
    from .source import TaskSource


@dataclass(frozen=True)
class Ids:
    """The ids of what is no symbol: `mark` before an answer, `start` before a target, and the tokenizer's own."""

    mark: int
    eos: int
    pad: int
    start: int


def task_corpus(source: TaskSource, config: Any, tokenizer_config: Any, shape: Shape, cache: Path) -> Corpus:
    """The rows that `source` draws, in which the id of a symbol is its number.

    Raises ConfigError for a tokenizer in which it isn't, or where rows of `shape` have no room for the task.
    """
    tokenizer: Tokenizer = tokenizer_config.component.prepare(tokenizer_config, (), cache)
    ids = _ids(tokenizer, tokenizer_config.name, config)
    if problems := list(source.problems(shape)):
        raise ConfigError(problems)

    def side(held: bool) -> Drawn:
        return Drawn(
            lambda draw, shape: source.rows(draw, shape, ids),
            shape,
            tokenizer,
            count=config.val_rows,
            held=held,
            fraction=config.val_fraction,
        )

    train, val = side(False), side(True)
    for samples in (train, val):
        samples.rows(samples.every())  # raises now what it would raise later
    return Corpus(tokenizer, train, val, digest([tokenizer.fingerprint, config.model_dump_json()]), config.kind)


def _ids(tokenizer: Tokenizer, name: str, config: Any) -> Ids:
    """The ids of the marks, where symbol i has id i."""
    try:
        said = tokenizer.encode(" ".join([*map(str, range(config.n_symbols)), MARK]))
    except ArchlabError:  # too few symbols
        said = []
    if said[:-1] != list(range(config.n_symbols)):
        found = f"{name}, for a task of {config.n_symbols} symbols"
        fix = f"tokenizer=symbols tokenizer.n_symbols={config.n_symbols}"
        raise ConfigError([Problem("tokenizer", found, "each symbol of the task has its number as its id", fix)])
    return Ids(said[-1], tokenizer.eos, tokenizer.pad, tokenizer.start)


def joined(parts: list[tuple[Tensor, Tensor]], width: int, pad: int) -> tuple[Tensor, Tensor]:
    """Rows of several parts without a gap: of `values` (B, N) the first `counts` (B,), one part behind the other.

    Returns (tokens (B, W), the number of the part that each belongs to (B, W), -1 on padding).
    """
    rows = len(parts[0][1])
    tokens, part = torch.full((rows, width), pad), torch.full((rows, width), -1)
    before = torch.zeros(rows, dtype=torch.int64)  # (B,)
    for number, (values, counts) in enumerate(parts):
        row, place = (torch.arange(values.shape[1]) < counts[:, None]).nonzero(as_tuple=True)
        tokens[row, before[row] + place] = values[row, place]
        part[row, before[row] + place] = number
        before = before + counts
    return tokens, part
