"""What the questions are asked about: one spec, with everything that several of them need made once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from builder.component import Config
from builder.data.corpus import Corpus
from builder.data.tokenizer import Tokenizer
from builder.finding import Finding, Status
from builder.ledger import Ledger, ledger
from builder.model.assemble import position_slots
from builder.spec import ModelSpec, RunSpec

from .probes import Specimen, specimen


@dataclass(frozen=True)
class Subject:
    """A run's spec, whether probes are wanted, and data and tokenizer as far as they were read."""

    spec: RunSpec
    probes: bool
    corpus: Corpus | None
    tokenizer: Tokenizer | None

    @property
    def model(self) -> ModelSpec:
        return self.spec.model

    @cached_property
    def used(self) -> dict[str, Config]:
        """The slots that some layer uses, in order of use."""
        return {part.slot: part.config for layer in self.model.layers for part in layer.parts}

    @cached_property
    def stated(self) -> tuple[Finding, ...]:
        """What every component says of itself, paths made whole: layers' parts, position schemes, norm, block, init."""
        slots = self.used | {slot: getattr(self.model, slot) for slot in ("norm", "block", "init", "position")}
        nested = {f"{slot}.position": config for slot, config in position_slots(self.model).items()}
        site = self.model.site(0)
        found: Iterator[tuple[str, Iterable[Finding]]]
        found = ((path, config.component.check(config, site)) for path, config in (slots | nested).items())
        return tuple(finding.under(f"model.{path}") for path, findings in found for finding in findings)

    def stated_in(self, section: int) -> list[Finding]:
        """What components say of themselves in one section."""
        return [finding for finding in self.stated if finding.section == section]

    @cached_property
    def buildable(self) -> bool:
        """Whether no component refuses its site, so that a model can be built at all."""
        return all(finding.status is not Status.FAIL for finding in self.stated if finding.section == 1)

    @cached_property
    def ledger(self) -> Ledger | None:
        """The costs, or None when the model can't be built."""
        return ledger(self.model) if self.buildable else None

    @cached_property
    def specimen(self) -> Specimen | None:
        """The small copy that probes run on; None when probes aren't wanted or it can't be built."""
        return specimen(self.model) if self.probes and self.buildable else None

    def unproven(self, section: int, path: str, what: str) -> Finding:
        """The finding that stands where a probe would, when there is no specimen."""
        reason = "the model can't be built while section 1 fails" if self.probes else "probes are off"
        return Finding(Status.UNKNOWN, section, path, "not run", f"{what}: {reason}", "probes=true" * (not self.probes))
