"""A folder that transformers wrote in, a ModelSpec and its state dict out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from builder.errors import ArchlabError, ConfigError
from builder.model.assemble import build
from builder.spec import ModelSpec

from .facts import Facts
from .family import Family, find
from .heads import labels_in
from .hf_config import HFConfig
from .rule import Match, matches
from .weights import Weights

HEAD, TABLE, SOURCE = "head.weight", "embedding.weight", "encoder.embedding.weight"


@dataclass(frozen=True)
class Found:
    """A folder that transformers wrote, read as far as can be without its weights: names and shapes are known."""

    folder: Path
    family: Family
    config: HFConfig
    files: Weights
    spec: ModelSpec


@dataclass(frozen=True)
class Misfit:
    """A tensor of theirs that isn't what our model needs: `ours` is the tensor that it would be a part of, or ""."""

    ours: str
    said: str


@dataclass(frozen=True)
class Fit:
    """Which tensor of a folder is which of ours: `empty` is our state dict on meta, `buffers` those in it that are no
    weights, `stored` has the names in the files by those in `table`, and `misfits` all that names and shapes tell."""

    empty: dict[str, Tensor]
    buffers: frozenset[str]
    table: tuple[Match, ...]
    stored: dict[str, str]
    misfits: tuple[Misfit, ...]


def look(path: str | Path) -> Found:
    """What a local folder holds: config.json and safetensors.

    Nothing is fetched and no code of the folder is run. Raises ArchlabError with every field that can't be served.
    """
    folder = Path(path)
    config = HFConfig.open(folder)
    kind, files = find(config.get("model_type"), f"{config.where}: model_type"), Weights(folder)
    config.tell(kind.beside(files))
    kind.judge_depth(config, files.shapes)  # before a model of that size is made
    return Found(folder, kind, config, files, kind.spec(config))


def import_hf(path: str | Path, *, dtype: torch.dtype = torch.float32) -> tuple[ModelSpec, dict[str, Tensor]]:
    """The spec and state dict of a model in a local folder, as `look` reads it.

    Raises ArchlabError with every field that can't be served, or with every tensor that is missing, unexpected or of
    the wrong shape.
    """
    found = look(path)
    return found.spec, _whole(found, dtype)


def note_on(path: str | Path, spec: ModelSpec) -> str:
    """What its family says of the model in a folder, which was read as `spec`; "" for nothing."""
    config = HFConfig.open(Path(path))
    return find(config.get("model_type"), f"{config.where}: model_type").note(Facts(spec), config)


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


def fit(found: Found) -> Fit:
    """Their tensors laid beside ours; no weight is read. Raises ArchlabError when the model can't be built."""
    kind, spec, files = found.family, found.spec, found.files
    try:
        model = build(spec, device="meta")
    except ConfigError as error:
        raise ConfigError(kind.theirs(problem, found.config) for problem in error.problems) from None
    except ArchlabError as error:  # its parts don't go together
        raise ArchlabError(f"hf: {found.folder}: {error}") from None
    empty, buffers = model.state_dict(), frozenset(name for name, _ in model.named_buffers())
    table = matches(kind.tensors(Facts(spec)), empty, depth(spec), kind.model_type)
    names = _full_names(files.shapes, table, kind)
    misfits = _misfits(kind, spec, table, empty, {names[name]: shape for name, shape in files.shapes.items()})
    return Fit(empty, buffers, tuple(table), {ours: name for name, ours in names.items()}, tuple(misfits))


def unlike(found: Found, laid: Fit, state: Mapping[str, Tensor]) -> Iterator[Misfit]:
    """What of `state`, ours as far as it was read, differs from what it must equal: a tied table, a second copy."""
    for match in laid.table:
        ours = match.ours[0]
        if ours in tied(found.spec) and match.theirs in laid.stored and not torch.equal(state[ours], state[TABLE]):
            yield Misfit(ours, f"{match.theirs}: differs from the embedding, while config.json says they are tied")
    for theirs, ours in found.family.copies.items():
        if theirs in laid.stored and ours in state:
            copy = found.files[laid.stored[theirs]].to(state[ours].dtype)
            if not torch.equal(copy, state[ours]):
                yield Misfit(ours, f"{theirs}: differs from what it should be a copy of, our {ours}")


def read_state(found: Found, laid: Fit, dtype: torch.dtype, names: Collection[str]) -> dict[str, Tensor]:
    """The tensors of our state dict that are called so, and those that lie in one of theirs with them, each its own
    memory, in the order of the model's own; a buffer keeps its own precision."""
    asked = set(names)
    table = [match for match in laid.table if not asked.isdisjoint(match.ours)]
    wanted = {name for match in table for name in match.ours}
    made = {
        name: torch.empty(value.shape, dtype=value.dtype if name in laid.buffers else dtype)
        for name, value in laid.empty.items()
        if name in wanted
    }
    for match in table:
        if match.theirs in laid.stored:
            match.split(found.files[laid.stored[match.theirs]], made)
    return made


def _whole(found: Found, dtype: torch.dtype) -> dict[str, Tensor]:
    """Our whole state dict; raises ArchlabError with every tensor that doesn't fit."""
    laid = fit(found)
    made = {} if laid.misfits else read_state(found, laid, dtype, laid.empty)
    if misfits := laid.misfits or tuple(unlike(found, laid, made)):
        head = f"hf: {found.folder}: {len(misfits)} tensors don't fit the {found.family.model_type} model"
        raise ArchlabError("\n    ".join([head, *(misfit.said for misfit in misfits)]))
    return made | dict.fromkeys(tied(found.spec), made[TABLE])


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


def _misfits(
    kind: Family, spec: ModelSpec, table: list[Match], empty: Mapping[str, Tensor], found: Mapping[str, tuple[int, ...]]
) -> Iterator[Misfit]:
    """What names and shapes tell: tensors that are missing, of another shape, or not expected."""
    for match in table:
        shape, may_lack = tuple(match.join(empty).shape), match.ours[0] in tied(spec)
        if match.theirs not in found:
            why = ", and tie_word_embeddings is false" if match.ours == (HEAD,) else ""
            if not may_lack:
                yield Misfit(match.ours[0], f"{match.theirs}: missing, expected {_size(shape)}{why}")
        elif found[match.theirs] != shape:
            yield Misfit(match.ours[0], f"{match.theirs}: found {_size(found[match.theirs])}, expected {_size(shape)}")
    known = {match.theirs for match in table}
    for name in found:
        if name not in known and name not in kind.copies and not kind.ignores(name):
            yield Misfit("", f"{name}: unexpected, {_size(found[name])}; nothing in the model is made of it")


def _size(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
