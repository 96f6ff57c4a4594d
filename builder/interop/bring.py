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
from .heads import labels_in
from .hf_config import HFConfig
from .rule import Match, matches
from .weights import Weights

HEAD, TABLE, SOURCE = "head.weight", "embedding.weight", "encoder.embedding.weight"


def import_hf(path: str | Path, *, dtype: torch.dtype = torch.float32) -> tuple[ModelSpec, dict[str, Tensor]]:
    """The spec and state dict of a model in a local folder: config.json and safetensors.

    Nothing is fetched and no code of the folder is run. Raises ArchlabError with every field that can't be served, or
    with every tensor that is missing, unexpected or of the wrong shape.
    """
    folder = Path(path)
    config = HFConfig.open(folder)
    kind, files = find(config.get("model_type"), config.where), Weights(folder)
    config.tell(kind.beside(files))
    kind.judge_depth(config, files.shapes)  # before a model of that size is made
    spec = kind.spec(config)
    return spec, read_state(kind, spec, files, folder, dtype)


def note_on(path: str | Path, spec: ModelSpec) -> str:
    """What its family says of the model in a folder, which was read as `spec`; "" for nothing."""
    config = HFConfig.open(Path(path))
    return find(config.get("model_type"), config.where).note(Facts(spec), config)


def labels_on(path: str | Path, spec: ModelSpec) -> tuple[str, ...]:
    """The names of the classes that the model in a folder, read as `spec`, tells apart; () for none."""
    labels = labels_in(HFConfig.open(Path(path)))
    width = getattr(spec.head.component, "width_of", None)
    return labels if width is not None and len(labels) == getattr(spec.head, width) else ()


def tied(spec: ModelSpec) -> set[str]:
    """The names of our tensors that are another name of the table of tokens."""
    ends = {HEAD: spec.tie_embeddings, SOURCE: spec.encoder is not None}
    return {name for name, same in ends.items() if same}


def depth(spec: ModelSpec) -> int:
    """The layers of the deepest tower."""
    return max(tower.n_layers for tower in spec.towers.values())


def read_state(kind: Family, spec: ModelSpec, files: Weights, folder: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """Our state dict for `spec`, each tensor its own memory, in the order of the model's own."""
    try:
        model = build(spec, device="meta")
    except ArchlabError as error:  # its parts don't go together
        raise ArchlabError(f"hf: {folder}: {error}") from None
    empty, kept = model.state_dict(), dict(model.named_buffers())
    table = matches(kind.tensors(Facts(spec)), empty, depth(spec), kind.model_type)
    names = _full_names(files.shapes, table, kind)
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
    if not faults:
        faults = [*_untied(kind, spec, table, stored, made), *_unlike(kind, files, stored, made, dtype)]
        made |= dict.fromkeys(tied(spec), made[TABLE])
    if faults:
        raise ArchlabError(
            "\n    ".join([f"hf: {folder}: {len(faults)} tensors don't fit the {kind.model_type} model", *faults])
        )
    return made


def _untied(
    kind: Family, spec: ModelSpec, table: list[Match], stored: Mapping[str, str], made: Mapping[str, Tensor]
) -> Iterator[str]:
    for match in table:
        ours = match.ours[0]
        if ours in tied(spec) and match.theirs in stored and not torch.equal(made[ours], made[TABLE]):
            yield f"{match.theirs}: differs from the embedding, while config.json says they are tied"


def _unlike(
    kind: Family, files: Weights, stored: Mapping[str, str], made: Mapping[str, Tensor], dtype: torch.dtype
) -> Iterator[str]:
    """Second copies that differ from the first."""
    for theirs, ours in kind.copies.items():
        if theirs in stored and ours in made and not torch.equal(files[stored[theirs]].to(dtype), made[ours]):
            yield f"{theirs}: differs from what it should be a copy of, our {ours}"


def _full_names(names: Iterable[str], table: list[Match], kind: Family) -> dict[str, str]:
    """The full name of each tensor, as names are spelt now: the base's is given back to files that were saved without
    the head, and taken from those of a model that is its base alone."""
    tops = {match.theirs.partition(".")[0] for match in table}
    alone = bool(kind.base) and not any(f"{top}." == kind.base for top in tops)
    return {name: _full_name(kind.spelt(name), tops, kind, alone) for name in names}


def _full_name(name: str, tops: set[str], kind: Family, alone: bool) -> str:
    if alone:
        return name.removeprefix(kind.base)
    whole = not kind.base or name.partition(".")[0] in tops or kind.ignores(name)
    return name if whole else f"{kind.base}{name}"


def _faults(
    kind: Family, spec: ModelSpec, table: list[Match], empty: Mapping[str, Tensor], found: Mapping[str, tuple[int, ...]]
) -> Iterator[str]:
    for match in table:
        shape, may_lack = tuple(match.join(empty).shape), match.ours[0] in tied(spec)
        if match.theirs not in found:
            why = ", and tie_word_embeddings is false" if match.ours == (HEAD,) else ""
            yield from () if may_lack else (f"{match.theirs}: missing, expected {_size(shape)}{why}",)
        elif found[match.theirs] != shape:
            yield f"{match.theirs}: found {_size(found[match.theirs])}, expected {_size(shape)}"
    known = {match.theirs for match in table}
    for name in found:
        if name not in known and name not in kind.copies and not kind.ignores(name):
            yield f"{name}: unexpected, {_size(found[name])}; nothing in the model is made of it"


def _size(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
