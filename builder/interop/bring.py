"""A folder that transformers wrote in, a ModelSpec and its state dict out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from builder.errors import ArchlabError
from builder.model.assemble import build
from builder.spec import ModelSpec

from .facts import Facts
from .family import Family, find
from .hf_config import HFConfig
from .rule import Match, matches
from .weights import Weights

HEAD, TABLE = "head.weight", "embedding.weight"


def import_hf(path: str | Path, *, dtype: torch.dtype = torch.float32) -> tuple[ModelSpec, dict[str, Tensor]]:
    """The spec and state dict of a model in a local folder: config.json and safetensors.

    Nothing is fetched and no code of the folder is run. Raises ArchlabError with every field that can't be served, or
    with every tensor that is missing, unexpected or of the wrong shape.
    """
    folder = Path(path)
    config = HFConfig.open(folder)
    kind, files = find(config.get("model_type"), config.where), Weights(folder)
    kind.judge_depth(config, files.shapes)  # before a model of that size is made
    spec = kind.spec(config)
    return spec, read_state(kind, spec, files, folder, dtype)


def note_on(path: str | Path, spec: ModelSpec) -> str:
    """What its family says of the model in a folder, which was read as `spec`; "" for nothing."""
    config = HFConfig.open(Path(path))
    return find(config.get("model_type"), config.where).note(Facts(spec))


def read_state(kind: Family, spec: ModelSpec, files: Weights, folder: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """Our state dict for `spec`, each tensor its own memory, in the order of the model's own."""
    try:
        model = build(spec, device="meta")
    except ArchlabError as error:  # its parts don't go together
        raise ArchlabError(f"hf: {folder}: {error}") from None
    empty, kept = model.state_dict(), dict(model.named_buffers())
    table = matches(kind.tensors(Facts(spec)), empty, spec.n_layers, kind.model_type)
    names = _full_names(files.shapes, table, kind.base)
    faults = list(_faults(kind, spec, table, empty, {names[name]: shape for name, shape in files.shapes.items()}))
    stored = {ours: name for name, ours in names.items()}
    made: dict[str, Tensor] = {}
    if not faults:  # a buffer is no weight and keeps its own precision
        made = {
            name: torch.empty(value.shape, dtype=value.dtype if name in kept else dtype)
            for name, value in empty.items()
        }
        for match in table:
            if match.theirs in stored:
                match.split(files[stored[match.theirs]], made)
    if spec.tie_embeddings and not faults:
        if _head(table).theirs in stored and not torch.equal(made[HEAD], made[TABLE]):
            faults = [f"{_head(table).theirs}: differs from the embedding, while config.json says they are tied"]
        made[HEAD] = made[TABLE]
    if faults:
        raise ArchlabError(
            "\n    ".join([f"hf: {folder}: {len(faults)} tensors don't fit the {kind.model_type} model", *faults])
        )
    return made


def _full_names(names: Iterable[str], table: list[Match], base: str) -> dict[str, str]:
    """The full name of each tensor: the base's is given back to files that were saved without the head."""
    tops = {match.theirs.partition(".")[0] for match in table}
    return {name: name if not base or name.partition(".")[0] in tops else f"{base}{name}" for name in names}


def _faults(
    kind: Family, spec: ModelSpec, table: list[Match], empty: Mapping[str, Tensor], found: Mapping[str, tuple[int, ...]]
) -> Iterator[str]:
    for match in table:
        shape, tied = tuple(match.join(empty).shape), spec.tie_embeddings and match.ours == (HEAD,)
        if match.theirs not in found:
            why = ", and tie_word_embeddings is false" if match.ours == (HEAD,) else ""
            yield from () if tied else (f"{match.theirs}: missing, expected {_size(shape)}{why}",)
        elif found[match.theirs] != shape:
            yield f"{match.theirs}: found {_size(found[match.theirs])}, expected {_size(shape)}"
    known = {match.theirs for match in table}
    for name in found:
        if name not in known and not kind.ignores(name):
            yield f"{name}: unexpected, {_size(found[name])}; nothing in the model is made of it"


def _head(table: list[Match]) -> Match:
    return next(match for match in table if match.ours == (HEAD,))


def _size(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
