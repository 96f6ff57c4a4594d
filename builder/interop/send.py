"""A model of ours in, a folder that transformers loads out."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from builder.data.tokenizer import Tokenizer
from builder.errors import ArchlabError, ConfigError
from builder.model.language_model import LanguageModel

from .bring import depth, tied
from .facts import Facts, differences
from .family import Family, find, model_types
from .heads import named
from .hf_config import BESIDE, FILE, HFConfig
from .rule import matches
from .sentence import write_modules
from .tokenizer import write_tokenizer
from .weights import FILE as WEIGHTS


@dataclass(frozen=True)
class Exported:
    """Which family a model was written as, and of which class of transformers; and what of its spec only training would
    notice and the family can't say."""

    model_type: str
    architecture: str
    left_out: tuple[str, ...]


def export_hf(
    model: LanguageModel,
    path: str | Path,
    *,
    family: str | None = None,
    dtype: torch.dtype = torch.float32,
    tokenizer: Tokenizer | None = None,
    labels: Sequence[str] = (),
) -> Exported:
    """Writes config.json, model.safetensors, and a tokenizer's files to a new folder; all of it, or nothing.

    family   None: the first one that can say everything that this model computes
    labels   the names of the classes that its head tells apart, where they have some

    Raises ArchlabError when the folder holds something, or when no family, or not the one asked for, fits.
    """
    folder = Path(path)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ArchlabError(f"out: found {str(folder)!r}, which holds something already; choose another folder")
    facts = Facts(model.spec)
    kind, fields, left_out = choose(facts, family)
    beside = fields.pop(BESIDE, {})
    if "id2label" in fields and len(labels) == len(fields["id2label"]):
        fields |= named(labels)
    fields = {"architectures": [kind.architecture]} | fields | {"model_type": kind.model_type}
    name = str(dtype).removeprefix("torch.")
    fields |= {"dtype": name, "torch_dtype": name}  # as transformers 5 says it, and as versions before did
    ids: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))  # or theirs would be put in
    ids |= kind.ids
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    try:
        if tokenizer is not None:
            ids |= write_tokenizer(tokenizer, draft, model.deploy_length, starts=model.encoder is not None)
            _refuse_other_ids(fields, ids, kind)
        write_modules(beside, draft)
        _write_json(draft / FILE, ids | fields)
        save_file(_state(model, kind, facts, dtype), draft / WEIGHTS, metadata={"format": "pt"})
        draft.chmod(0o755)
        draft.replace(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return Exported(kind.model_type, fields["architectures"][0], tuple(left_out))


def choose(facts: Facts, model_type: str | None = None) -> tuple[Family, dict[str, Any], list[str]]:
    """The family to write a model as, its config.json, and what of training is left out.

    Raises ArchlabError, with what the closest families can't express, when none fits.
    """
    refused: dict[str, list[str]] = {}
    far: set[str] = set()  # those that lack what no config of theirs could do without
    for kind in [find(name, "family") for name in ([model_type] if model_type else model_types())]:
        fields: dict[str, Any] = {}
        try:
            fields = kind.write(facts)
            changed, left_out = differences(facts, Facts(kind.spec(HFConfig(fields))))
        except ConfigError as error:
            changed, left_out = [f"{problem.path}: {problem.rule}" for problem in error.problems], []
            far.add(kind.model_type)
        except KeyError as error:
            changed, left_out = [f"it needs {error.args[0]}, which this model doesn't have"], []
            far.add(kind.model_type)
        if not changed:
            return kind, fields, left_out
        refused[kind.model_type] = changed
    closest = sorted(refused, key=lambda name: (name in far, len(refused[name])))[:3]
    lines = [f"{name}: {'; '.join(refused[name][:4])}{'; ...' * (len(refused[name]) > 4)}" for name in closest]
    head = f"family: {model_type} can't express this model" if model_type else "out: no family can express this model"
    raise ArchlabError("\n    ".join([f"{head}; it would become another one", *lines]))


def _state(model: LanguageModel, kind: Family, facts: Facts, dtype: torch.dtype) -> dict[str, Tensor]:
    state: Mapping[str, Tensor] = model.state_dict()
    kept = dict(model.named_buffers())  # no weights: they keep their own precision
    made = {}
    for match in matches(kind.tensors(facts), state, depth(facts.spec), kind.model_type):
        if match.ours[0] not in tied(facts.spec):  # no file holds a tie's other end
            own = state[match.ours[0]].dtype if match.ours[0] in kept else dtype
            made[match.theirs] = match.join(state).detach().to("cpu", own).contiguous()
    return made | {name: value.to(dtype) for name, value in kind.idle(facts).items()}


def _refuse_other_ids(fields: Mapping[str, Any], ids: Mapping[str, Any], kind: Family) -> None:
    """Raises ArchlabError when a tokenizer's id isn't the one by which their code computes something."""
    for name, id in ids.items():
        if fields.get(name, id) != id:
            rule = f"{kind.model_type} computes with {name}, which must be {fields[name]} for this model"
            raise ArchlabError(f"tokenizer: {name} is {id}, and {rule}; export it without a tokenizer")


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
