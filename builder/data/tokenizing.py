"""From a source of text to shards of its tokens, written by several processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .. import registry
from ..errors import ArchlabError, ConfigError, Problem
from .shards import HERE, MANIFEST, Manifest, Shard, write_shard
from .split import split
from .texts import mark_of, refuse_padding
from .tokenizer import Tokenizer

Tell = Callable[[int, int], None]
"""Hears of every shard how many characters of how many are done."""

_Task = tuple[str, list[str]]
_Made = tuple[Shard, int]


def tokenize(
    data: Any, tokenizer_config: Any, folder: Path, *, cache: Path, workers: int, characters: int, tell: Tell
) -> Manifest:
    """Splits and tokenizes the documents of `data` as a run does, into shards of about so many `characters`.

    The result doesn't depend on `workers`. Raises ConfigError for data without documents, a folder that holds shards,
    or texts with the padding id; ArchlabError when a file can't be written or a process dies.
    """
    if not hasattr(data.component, "documents"):
        rule = "a source of documents, such as text or python_docs"
        raise ConfigError([Problem("data", data.name, rule, "data=text data.path=<your text>")])
    if (folder / MANIFEST).exists():
        raise ConfigError([Problem("path", f"{str(folder)!r}, which holds shards", "a new folder", "path=<another>")])
    tokenizer_config = tokenizer_config.model_copy(update={"specials": ()})  # no text encodes to those
    sides = split(data.component(data).documents(), data.val_fraction, data.split)
    tokenizer: Tokenizer = tokenizer_config.component.prepare(tokenizer_config, sides[0], cache)
    dtype = "uint16" if len(tokenizer) <= 1 << 16 else "uint32"
    tasks = [
        (f"{name}-{number:05}", texts)
        for name, side in zip(("train", "val"), sides, strict=True)
        for number, texts in enumerate(_grouped(side, characters))
    ]
    total, done = sum(len(text) for side in sides for text in side), 0
    written: dict[str, Shard] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(folder)
        for shard, size in _written(tasks, tokenizer_config, folder, dtype, workers):
            written[shard.name] = shard
            done += size
            tell(done, total)
        shards = [written[name] for name, _ in tasks]
        train, val = (tuple(s for s in shards if s.name.startswith(side)) for side in ("train", "val"))
        size = sum(len(text.encode()) for text in sides[1]) / sum(shard.tokens for shard in val)
        manifest = Manifest(
            tokenizer=tokenizer.fingerprint,
            write=_asked(tokenizer_config, tokenizer, folder),
            dtype=dtype,
            corpus=mark_of(tokenizer, *sides),
            val_bytes_per_token=size,
            train=train,
            val=val,
        )
        manifest.save(folder)
    except OSError as error:
        raise ArchlabError(f"path: {error.filename or folder} can't be written: {error.strerror or error}") from None
    except BrokenProcessPool:
        raise ArchlabError("a process that tokenized died, perhaps for want of memory; write workers=1") from None
    return manifest


def _asked(config: Any, tokenizer: Tokenizer, folder: Path) -> str:
    """The overrides that ask for the tokenizer that was saved in `folder`."""
    file = folder / "tokenizer.json"
    if not file.is_file():  # nothing was trained
        return f"tokenizer={config.name}"
    plain = registry.find("tokenizer", "file").Config(name="file", path=str(file))
    told = f"tokenizer=file tokenizer.path={HERE}/{file.name}"
    if plain.component.prepare(plain, (), folder).fingerprint == tokenizer.fingerprint:
        return told
    tokens = {id: token for token, id in tokenizer.specials.items()}
    return " ".join([told, *(f"\"tokenizer.{key}='{tokens[getattr(tokenizer, key)]}'\"" for key in ("eos", "pad"))])


def _grouped(texts: Sequence[str], characters: int) -> Iterator[list[str]]:
    """The texts one after another, in groups that are full once they have so many characters."""
    group: list[str] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= characters:
            yield group
            group, size = [], 0
    if group:
        yield group


def _written(tasks: Iterable[_Task], config: Any, folder: Path, dtype: str, workers: int) -> Iterator[_Made]:
    """Each shard as it is done, and its characters; a few tasks wait at a time, so that few are copied."""
    if workers == 1:
        mine = (config.component.load(config, folder), folder, dtype)
        yield from (_shard(task, *mine) for task in tasks)
        return
    with _pool(config, folder, dtype, workers) as submit:
        waiting: set[Future[Any]] = set()
        for task in tasks:
            waiting.add(submit(task))
            if len(waiting) >= 2 * workers:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (_whole(future.result()) for future in done)
        yield from (_whole(future.result()) for future in as_completed(waiting))


@contextmanager
def _pool(config: Any, folder: Path, dtype: str, workers: int) -> Iterator[Callable[[_Task], Future[Any]]]:
    given = (config, folder, dtype)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=given)
    try:
        yield lambda task: pool.submit(_shard_in_process, task)
    finally:
        pool.shutdown(cancel_futures=True)


def _whole(made: _Made | list[Problem]) -> _Made:
    if isinstance(made, list):
        raise ConfigError(made)
    return made


_mine: tuple[Tokenizer, Path, str]
"""What a process has: the tokenizer that all share, the folder, the type of the ids."""


def _begin(config: Any, folder: Path, dtype: str) -> None:
    global _mine
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's affair
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a process is a thread here
    _mine = (config.component.load(config, folder), folder, dtype)


def _shard_in_process(task: _Task) -> _Made | list[Problem]:
    try:
        return _shard(task, *_mine)
    except ConfigError as error:
        return list(error.problems)  # an exception with more than its text gets through no pipe


def _shard(task: _Task, tokenizer: Tokenizer, folder: Path, dtype: str) -> _Made:
    name, texts = task
    ids = tokenizer.encode_corpus(texts)
    refuse_padding(tokenizer, ids)
    return write_shard(folder, name, ids, tokenizer.eos, dtype), sum(map(len, texts))
