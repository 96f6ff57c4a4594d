"""An imported model as a run of its own, which loads, generates and is exported like one that was trained here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from builder.checklist import Report, check
from builder.compose import compose
from builder.data.tokenizer import Tokenizer
from builder.experiments.folder import RunFolder
from builder.experiments.sheet import sheet
from builder.ledger import ledger
from builder.load import load
from builder.registry import find, names
from builder.spec import ModelSpec, RunSpec

from .bring import import_hf, labels_on, note_on
from .tokenizer import read_tokenizer


@dataclass(frozen=True)
class Imported:
    """The run folder that was made, what the checklist says of it, and notes on it and its tokenizer, "" for none."""

    folder: RunFolder
    spec: RunSpec
    report: Report
    note: str


def import_run(source: str | Path, target: str | Path, *, dtype: torch.dtype = torch.float32) -> Imported:
    """Makes the run folder `target` of the model in folder `source`; its data and training are the defaults.

    Raises ArchlabError, with nothing written, when the model can't be read or the folder holds something.
    """
    from builder.training.checkpoint import AtomicIO, pack  # imports lightning, which reading a model doesn't need

    model, state = import_hf(source, dtype=dtype)
    section, on_tokenizer = read_tokenizer(Path(source), model.vocab_size or 0)
    note = "; ".join(filter(None, (note_on(source, model), on_tokenizer)))
    spec = _run(model, section, Path(target))
    tokenizer_class: Any = spec.tokenizer.component
    tokenizer: Tokenizer = tokenizer_class.prepare(spec.tokenizer, (), Path(source))
    report = check(spec, tokenizer=tokenizer, trains=False)
    folder = RunFolder.create(spec)
    folder.summarise("importing", reason=None, hash=spec.hash, source=str(source))
    tokenizer.save(folder.path)
    folder.write_json("checklist.json", report.to_dict())
    costs = ledger(spec.model) if report.ok else None
    if costs is not None:
        folder.write("sheet.md", sheet(spec, costs, report))
    contents: dict[str, Any] = {"state_dict": state, "global_step": 0}
    pack(contents, spec)
    AtomicIO().save_checkpoint(contents, folder.checkpoint("best"))
    labels = labels_on(source, model)
    known = ({"ledger": costs.summary()} if costs else {}) | ({"labels": list(labels)} if labels else {})
    folder.summarise("imported", **known)
    return Imported(folder, spec, report, note)


def config_of(model: ModelSpec, tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a run of this model; its data and training are the defaults."""
    config = compose([f"objective={_objective(model)}", "logger=none"])
    return config | {"model": model.model_dump(mode="json"), "tokenizer": dict(tokenizer)}


def _objective(model: ModelSpec) -> str:
    """The first objective by which a model with this head can be trained."""
    kinds = {name: find("objective", name) for name in names("objective")}
    return next(
        name
        for name, kind in kinds.items()
        if model.kind in kind.kinds and model.head.component.gives in kind.gives and kind.prefix == model.prefix
    )


def _run(model: ModelSpec, tokenizer: Mapping[str, Any], target: Path) -> RunSpec:
    place = Path(os.path.normpath(target))
    if place.parts[-2:-1] in ((), ("..",), ("/",)):  # the experiment is a folder that has a name
        place = place.absolute().resolve()
    output = {"root": str(place.parent.parent), "experiment": place.parent.name, "name": place.name}
    config = config_of(model, tokenizer)
    return load(config | {"output": config["output"] | output})
