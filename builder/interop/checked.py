"""A folder checked where it lies, a run or what transformers wrote: nothing is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from builder.data.tokenizer import Tokenizer
from builder.errors import ArchlabError
from builder.experiments.checked import Checked, check_run, judge
from builder.finding import Finding, Status
from builder.load import load

from .bring import Found, look, note_on
from .proof import prove
from .run_folder import config_of
from .tokenizer import read_tokenizer


def check_hf(source: str | Path, overrides: Sequence[str] = (), probes: bool = True) -> Checked:
    """The checklist of the model in a folder, with overrides laid over its config, and the proof of its weights.

    Its data and training are the defaults. Raises ArchlabError when the model can't be read.
    """
    found = look(source)
    section, note = read_tokenizer(found.folder, found.spec.vocab_size or 0)
    spec = load(config_of(found.spec, section))
    tokenizer_class: Any = spec.tokenizer.component
    tokenizer: Tokenizer = tokenizer_class.prepare(spec.tokenizer, (), found.folder)
    return judge(spec, tokenizer, overrides, f"hf={source}", probes, [*prove(found), *_noted(found, note)])


def _noted(found: Found, on_tokenizer: str) -> Iterator[Finding]:
    """What there is to know of a model that comes in, and of its tokenizer."""
    for section, path, note in ((4, "model", note_on(found.folder, found.spec)), (6, "tokenizer", on_tokenizer)):
        if note:
            yield Finding(Status.WARN, section, path, note, "to be known where a folder of transformers is read")


FOLDERS: dict[str, Callable[[str, Sequence[str], bool], Checked]] = {"run": check_run, "hf": check_hf}
"""The keys that name a folder with a config of its own, and what checks it."""


def check_folder(folders: Mapping[str, Any], overrides: Sequence[str] | None, probes: bool) -> Checked:
    """The checklist of the one folder that is named, {its key: its path}; no overrides were read if they are None."""
    (key, path), *others = folders.items()
    if others or not isinstance(path, str):
        raise ArchlabError(f"{key}: found {path!r}; the path of one folder: run=RUNDIR, or hf=FOLDER")
    if overrides is None:
        raise ArchlabError(f"{key}: a folder is checked by itself: leave out what begins with a dash")
    return FOLDERS[key](path, overrides, probes)
