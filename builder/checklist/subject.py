"""What the questions are asked about: one spec, with everything that several of them need made once."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from builder.component import Config, Site
from builder.data.corpus import Corpus
from builder.data.tokenizer import Tokenizer
from builder.finding import Finding, Status
from builder.layers import Part
from builder.ledger import Ledger, ledger
from builder.spec import ModelSpec, RunSpec

from .fitting import misfits
from .probes import Specimen, specimen
from .probes.lesson import BATCHES, Lesson
from .probes.range import InRange

Probe = Callable[[Specimen], Iterable[Finding]]
Teaching = Callable[[Lesson], Iterable[Finding]]


@contextmanager
def _one_thread() -> Iterator[None]:
    """On tensors as small as a specimen's, threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _broken(section: int, when: str, error: Exception, path: str = "model") -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    found = f"{type(error).__name__} at {place}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    fix = "mend the component, or the knobs that don't fit together"
    return Finding(Status.FAIL, section, path, found, f"a component failed {when}", fix)


def _said(config: Config, site: Site) -> list[Finding]:
    """What a component says of itself; what it raises instead is told too."""
    try:
        return list(config.component.check(config, site))
    except Exception as error:
        return [_broken(1, "while it was asked for its verdict", error, path="name")]


def _with_its_slots(path: str, config: Config, site: Site) -> Iterator[tuple[str, Config, Site]]:
    """A component and those in its own slots."""
    yield path, config, site
    for key, inner, place in config.component.inner(config, site):
        yield from _with_its_slots(f"{path}.{key}", inner, place)


def _of(tower: ModelSpec) -> Iterator[tuple[str, Config, Site]]:
    """The components of a tower that are asked for their verdict, each at its site."""
    site = tower.site(0)
    slots = {part.slot: part.config for layer in tower.layers for part in layer.parts}
    slots |= {slot: getattr(tower, slot) for slot in ("norm", "block", "init", "head")}
    slots |= {} if tower.embedding.norm is None else {"embedding.norm": tower.embedding.norm}
    yield from ((path, config, site) for path, config in slots.items())
    for scheme, config in tower.schemes.items():
        path = "position" if scheme == "model" else f"{scheme}.position"
        yield path, config, tower.scheme_site(scheme)


@dataclass(frozen=True)
class Subject:
    """A run's spec, whether probes are wanted, data and tokenizer as far as they were read, and whether it trains."""

    spec: RunSpec
    probes: bool
    corpus: Corpus | None
    tokenizer: Tokenizer | None
    trains: bool = True

    @property
    def model(self) -> ModelSpec:
        """The architecture."""
        return self.spec.model

    @cached_property
    def used(self) -> dict[str, Config]:
        """The slots that some layer of any tower uses, in order of use."""
        return {part.slot: part.config for part in self._parts}

    @property
    def ffns(self) -> dict[str, Config]:
        """The feed-forward slots that some layer uses."""
        return {part.slot: part.config for part in self._parts if part.kind == "ffn"}

    @property
    def _parts(self) -> list[Part]:
        return [part for tower in self.model.towers.values() for layer in tower.layers for part in layer.parts]

    @cached_property
    def stated(self) -> tuple[Finding, ...]:
        """What every component says of itself, paths made whole: layers' parts, position schemes, norm, block, init,
        head; what those of two towers say alike, once."""
        every = [
            nested for tower in self.model.towers.values() for part in _of(tower) for nested in _with_its_slots(*part)
        ]
        said = (finding.under(f"model.{path}") for path, config, at in every for finding in _said(config, at))
        return tuple(dict.fromkeys(said))

    def stated_in(self, section: int) -> list[Finding]:
        """What components say of themselves in one section."""
        return [finding for finding in self.stated if finding.section == section]

    @property
    def ledger(self) -> Ledger | None:
        """The costs, or None when the model can't be built."""
        return self._built[0]

    @property
    def specimen(self) -> Specimen | None:
        """The small copy that probes run on; None when probes aren't wanted or it can't be built."""
        return self._built[1]

    @property
    def fault(self) -> Finding | None:
        """What a component raised while the model was built or run empty: told, and not met as a traceback."""
        return self._built[2]

    @cached_property
    def _built(self) -> tuple[Ledger | None, Specimen | None, Finding | None]:
        if any(finding.status is Status.FAIL for section in (1, 5) for finding in self.stated_in(section)):
            return None, None, None  # a component refuses its site, or a router its experts
        if any(f.status is Status.FAIL and f.path.endswith(".kernel") for f in self.stated_in(4)):
            return None, None, None  # no pass can be computed
        if any(tower.unserved for tower in self.model.towers.values()):
            return None, None, None  # question 3 says which mixers differ
        try:
            with _one_thread():
                small = specimen(self.model, len(self._specials)) if self.probes else None
                return ledger(self.model), small, None
        except Exception as error:
            return None, None, _broken(1, "while the model is built", error)

    @cached_property
    def misfits(self) -> tuple[Finding, ...]:
        """What doesn't fit the objective."""
        return tuple(misfits(self.spec))

    @cached_property
    def lesson(self) -> Lesson | None:
        """What the specimen is taught; None where there is no specimen, or nothing to teach it."""
        data: Any = self.spec.data
        return Lesson(self.specimen, self.spec) if self.specimen and not self.misfits and data.kind in BATCHES else None

    @property
    def _specials(self) -> tuple[str, ...]:
        objective: Any = self.spec.objective.component
        return objective.specials(self.spec.objective)

    def prove(self, section: int, path: str, what: str, probe: Probe) -> list[Finding]:
        """The findings of a probe; one that is raised by a component under it becomes a FAIL."""
        return self._tried(section, path, what, lambda: self.specimen, probe)

    def teach(self, section: int, path: str, what: str, probe: Teaching) -> list[Finding]:
        """The same of a probe that trains; nothing where no training is asked for."""
        return self._tried(section, path, what, lambda: self.lesson, probe) if self.trains else []

    def _tried(self, section: int, path: str, what: str, given: Callable[[], Any], probe: Any) -> list[Finding]:
        found = self._asked(section, path, what, given, probe)
        right = all(finding.status is Status.PASS for finding in found)
        if right or self.specimen is None or not self.specimen.overflows:
            return found
        with InRange():  # what float32 can't hold is none of its faults
            return self._asked(section, path, what, given, probe)

    def _asked(self, section: int, path: str, what: str, given: Callable[[], Any], probe: Any) -> list[Finding]:
        try:
            if (there := given()) is None:
                return [self.unproven(section, path, what)]
            with _one_thread():
                return list(probe(there))
        except Exception as error:
            return [_broken(section, f"while proving: {what}", error)]

    def unproven(self, section: int, path: str, what: str) -> Finding:
        """The finding that stands where a probe would, when there is no specimen."""
        reason = "probes are off"
        if self.probes:
            reason = (
                "the model can't be built as it is"
                if self.specimen is None
                else "the objective doesn't fit, or the data is of a kind of its own"
            )
        return Finding(Status.UNKNOWN, section, path, "not run", f"{what}: {reason}", "probes=true" * (not self.probes))
