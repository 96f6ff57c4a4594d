"""Configurations: runs on the same data that differ in nothing but the seed, and the keys that tell them apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from builder.acting import acting, likeness
from builder.errors import ArchlabError, nearest
from builder.load import load
from builder.spec import EXECUTION, RunSpec

from .apart import ABSENT_VALUE, Columns, belongs, shortened
from .run import COMPLETED, Run

APART = ("seed", "output", "logger", "sample", "budget", *EXECUTION)
"""What makes no other configuration: the seed, and what the hash of a run leaves out but for callbacks that act."""

CORPUS = "data (fingerprint)"
"""The key under which configurations differ whose configs are equal and whose texts aren't."""


@dataclass(frozen=True)
class Configuration:
    """Runs that are the same but for their seeds.

    config      every leaf by its path, defaults filled in; what was typed, of jobs that never had a config
    spec        the same as it was loaded, with any seed; None where this version can't
    runs        all of them
    notes       what is odd about it as a whole
    """

    identity: str
    config: Mapping[str, Any]
    runs: tuple[Run, ...]
    spec: RunSpec | None = None
    differing: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether it has a config; else what was typed for its job stands in the place of one."""
        return any(run.config for run in self.runs)

    @property
    def counted(self) -> tuple[Run, ...]:
        """The runs that count: those that were completed, one for each seed, the longest and then the last."""
        return self._one_a_seed(run for run in self.runs if run.state == COMPLETED)

    @property
    def begun(self) -> tuple[Run, ...]:
        """One run for each seed, whatever became of it."""
        return self._one_a_seed(run for run in self.runs if run.end is not None)

    @property
    def repeats(self) -> tuple[Run, ...]:
        """Completed runs that say nothing more, since their seed ran already."""
        chosen = self.counted
        return tuple(run for run in self.runs if run.state == COMPLETED and run not in chosen)

    @staticmethod
    def _one_a_seed(runs: Iterable[Run]) -> tuple[Run, ...]:
        chosen: dict[Any, Run] = {}
        for run in runs:
            key = run.where if run.seed is None else run.seed
            if key not in chosen or _reach(run) >= _reach(chosen[key]):
                chosen[key] = run
        return tuple(chosen.values())


def group(runs: Sequence[Run]) -> list[Configuration]:
    """The configurations of runs, in their order, with labels and the keys in which they differ."""
    keyed: dict[tuple[str, str | None], tuple[_Known, list[Run], list[str]]] = {}
    corpora: dict[str, str | None] = {}
    known: dict[str, _Known] = {}  # loaded once for all seeds
    siblings: dict[str, Run] = {}  # a job without a config is what another seed of it in its sweep is
    for run in runs:
        if run.config and run.typed:
            siblings.setdefault(_job(run), run)
    identified = [_identify(run if run.config else siblings.get(_job(run), run), known) for run in runs]
    for run, (found, _) in zip(runs, identified, strict=True):
        corpora[found.identity] = corpora.get(found.identity) or run.corpus
    for run, (found, notes) in zip(runs, identified, strict=True):
        corpus = run.corpus or corpora[found.identity]  # of a run that ended before it had read any
        held = keyed.setdefault((found.identity, corpus), (found, [], []))
        held[1].append(run)
        held[2].extend(note for note in notes if note not in held[2])
    made = [
        Configuration(found.identity, found.leaves, tuple(members), found.spec, notes=tuple(notes))
        for found, members, notes in keyed.values()
    ]
    return _told_apart(made, [corpus for _, corpus in keyed])


def where(runs: Sequence[Run], conditions: Iterable[tuple[str, Sequence[Any]]]) -> list[Run]:
    """The runs whose configs have one of the values at each path; raises ArchlabError for a path that none has."""
    kept = list(runs)
    flat = {run.where: dict(flattened(run.config)) or dict(run.typed) for run in runs}
    for path, values in conditions:
        if runs and not any(_holds(leaves, path) for leaves in flat.values()):
            close = nearest(path, {key for leaves in flat.values() for key in leaves})
            hint = f"did you mean {close}?" if close else "the config.yaml of a run shows its keys"
            raise ArchlabError(f"where: found {path!r}, a key that none of the configs has; {hint}")
        kept = [run for run in kept if any(_equal(_told(flat[run.where], path), value) for value in values)]
    return kept


def flattened(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested config by their dotted paths; a list is a leaf, and so is an empty section."""
    if isinstance(node, Mapping) and (node or not path):
        for key, value in node.items():
            yield from flattened(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, list(node) if isinstance(node, tuple) else node


class _Known(NamedTuple):
    """What is equal for equal configurations, and their leaves; their spec, where there is one."""

    identity: str
    leaves: dict[str, Any]
    spec: RunSpec | None = None


def telling(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The leaves of a config that make it another configuration, by their paths; of callbacks, those that act."""
    callbacks = config.get("callbacks")
    kept = {key: value for key, value in config.items() if key != "callbacks"}
    if found := acting(callbacks) if isinstance(callbacks, Mapping) else callbacks:
        kept["callbacks"] = found
    return ((path, value) for path, value in flattened(kept) if not belongs(path, APART))


def _identify(run: Run, known: dict[str, _Known]) -> tuple[_Known, list[str]]:
    """What a run is, and what is odd about it."""
    if not run.config:
        leaves = {path: value for path, value in run.typed.items() if path != "seed"}
        return _Known(f"typed {_digest(leaves)}" if leaves else run.where, leaves), []
    stated = dict(telling(run.config))
    key = _digest(stated)
    if key not in known:
        try:
            spec = load(dict(run.config)).model_copy(update={"seed": 0})
            known[key] = _Known(likeness(spec), dict(telling(spec.to_dict())), spec)
        except ArchlabError:  # of another version, or made by hand
            known[key] = _Known(f"raw {key}", stated)
    found = known[key]
    if found.spec is None:
        return found, ["a config that this version can't load"]
    own = found.spec.model_copy(update={"seed": run.seed}).hash
    changed = [f"{run.name}: config.yaml was changed after the run"] if run.hash not in (None, own) else []
    return found, changed


def _job(run: Run) -> str:
    """What a sweep asked of a job, but for its seed."""
    typed = {path: value for path, value in run.typed.items() if path != "seed"}
    return f"{run.where.rpartition('/')[0]} {_digest(typed)}" if typed else run.where


def _told_apart(made: list[Configuration], corpora: list[str | None]) -> list[Configuration]:
    """The configurations with what sets them apart: the leaves whose values aren't one and the same."""
    known = [item for item in made if item.known] or made
    paths = dict.fromkeys(path for item in known for path in item.config)
    differing = [path for path in paths if len({_digest(_told(item.config, path)) for item in known}) > 1]
    texts = {item.identity: set() for item in made}
    for item, corpus in zip(made, corpora, strict=True):
        texts[item.identity].add(corpus)
    other_text = any(len(found) > 1 for found in texts.values())
    values = [{path: _told(item.config, path) for path in differing} for item in made]
    if other_text:
        values = [own | {CORPUS: (corpus or "unknown")[:8]} for own, corpus in zip(values, corpora, strict=True)]
    able = [own for item, own in zip(made, values, strict=True) if item.known]
    columns = Columns.of(shortened(list(values[0])) if values else {}, able or values)
    finished = []
    for item, own in zip(made, values, strict=True):
        typed = [word for word in item.runs[0].apart if not word.startswith("seed=")]
        label = columns.label(own) if item.known else " ".join(typed)
        label = label or (item.runs[0].name if len(made) > 1 else "all runs")
        finished.append(replace(item, differing=own, label=label))
    return finished


def _told(config: Mapping[str, Any], path: str) -> Any:
    return config.get(path, ABSENT_VALUE)


def _reach(run: Run) -> int:
    return run.end.step if run.end else -1


def _holds(leaves: Mapping[str, Any], path: str) -> bool:
    return path in leaves or any(key.startswith(f"{path}.") for key in leaves)


def _equal(found: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, or a list that holds it; 1 is 1.0, and true is no 1."""
    if isinstance(found, list) and not isinstance(wanted, list):
        return any(_equal(entry, wanted) for entry in found)
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
