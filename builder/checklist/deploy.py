"""The deploy contract: how far each kind of layer was trained, how far it is to go, what ends it, and what it keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from builder.component import Config, Site
from builder.components.position import Position
from builder.errors import ConfigError
from builder.finding import Finding, Status
from builder.generation.request import GenerationError
from builder.layers import Part
from builder.ledger.states import kept, once
from builder.model.mask import Mask
from builder.model.tower import Tower
from builder.spec import ModelSpec

from .subject import Subject
from .where import where

_WORST = (Status.FAIL, Status.WARN, Status.UNKNOWN, Status.PASS)
_CARRIED = "a state carries the order of what was read, however long that is: there is nothing to run out of"
_PLACELESS = "its queries and keys stay as they are, wherever they stand: there is nothing to run out of"

_Verdict = tuple[Status, str, str]
"""A status, its rule, and what to write."""


@dataclass(frozen=True)
class Deployed:
    """What becomes of the layers of a tower that have one slot in common, between the train and the deploy length.

    layers       which, in words: `layers 0 to 5`, `encoder layers 0 to 5`, `3 layers (0, 2, 4)`
    slot         what mixes their positions, or reads the source
    scheme       how they know order: `rope`, `rope + yarn 4`, `none`
    window       how many tokens back a query sees, itself included; None: all
    table        the first position that doesn't exist; None: there is no end
    state_bytes  what they keep of one sequence of deploy_length tokens, all together, in float32; of a source of
                 train_length tokens where they read one
    batch        how many sequences a training step reads; no key says how many are deployed at once
    batch_bytes  what they keep of so many
    status       the verdict, by `rule`; `fix` is what to write
    """

    COLUMNS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("status", "verdict"),
        ("layers", "layers"),
        ("slot", "slot"),
        ("scheme", "positions"),
        ("train_length", "trained"),
        ("deploy_length", "deployed"),
        ("window", "window"),
        ("table", "table ends"),
        ("state_bytes", "state bytes"),
        ("batch", "batch"),
        ("batch_bytes", "of a batch"),
        ("rule", "rule"),
        ("fix", "fix"),
    )
    """The fields in the order in which a table shows them, each with its heading."""

    layers: str
    slot: str
    scheme: str
    train_length: int
    deploy_length: int
    window: int | None
    table: int | None
    state_bytes: int
    batch: int
    batch_bytes: int
    status: Status
    rule: str
    fix: str = ""

    def cells(self) -> tuple[str, ...]:
        """The row of a table, a text for each of COLUMNS: numbers in groups of three digits, `-` for None."""
        return tuple(_shown(getattr(self, field)) for field, _ in self.COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """The row in plain Python."""
        return asdict(self) | {"status": str(self.status)}


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def rows(subject: Subject) -> tuple[Deployed, ...]:
    """A row for each slot that mixes positions or reads a source, tower by tower; none where nothing can be built."""
    if subject.ledger is None:
        return ()
    batch, length = subject.spec.rows, subject.model.deploy_length
    model = once(subject.model)
    held = [kept(model, count, length) for count in (1, batch)]
    found: list[Deployed] = []
    for name, tower in model.towers.items():
        for part, numbers in _parts(tower):
            spec = subject.model.towers[name]
            kinds = list(spec.kinds.values())
            layers = sorted((layer for number in numbers for layer in kinds[number]), key=lambda layer: layer.index)
            # an encoder reads all of its text at once: it keeps nothing for a token to come
            kept_by = [sum(of[n][part.kind] * len(kinds[n]) for n in numbers) if spec.causal else 0 for of in held]
            schemes, window = _schemes(spec, part), _window(tower, numbers[0], part)
            ends = [end for scheme in schemes if (end := tower.schemes[scheme].limit) is not None]
            status, rule, fix = _verdict(subject, spec, part, schemes, window)
            found.append(
                Deployed(
                    layers=f"{name} {where(layers)}".strip(),
                    slot=part.slot,
                    scheme=", ".join(_told(spec, scheme) for scheme in schemes) or "none",
                    train_length=spec.train_length,
                    deploy_length=length,
                    window=window,
                    table=min(ends, default=None),
                    state_bytes=kept_by[0],
                    batch=batch,
                    batch_bytes=kept_by[1],
                    status=status,
                    rule=rule,
                    fix=fix,
                )
            )
    return tuple(found)


def check(subject: Subject) -> Iterator[Finding]:
    """What the lengths ask of a run beside its schemes: that it can read its sources, and write its sample."""
    if (short := _short(subject.model)) is not None:
        yield short
    if subject.trains:
        yield from _sample(subject)


def _short(model: ModelSpec) -> Finding | None:
    """Sources that a model is trained on, and which it refuses afterwards."""
    train, deploy = model.train_length, model.deploy_length
    if not model.crossed or deploy >= train:
        return None
    rule = "it is trained on sources of up to train_length tokens, and reads none of more than deploy_length afterwards"
    return Finding(
        Status.WARN, 3, "model.deploy_length", f"{deploy}, trained at {train}", rule, f"model.deploy_length={train}"
    )


def _sample(subject: Subject) -> Iterator[Finding]:
    """Whether what is to be written at the end of training can be: a run that can't isn't begun."""
    from builder.experiments.verbs import refuse  # which come after a checklist, all but this question

    if subject.tokenizer is None:
        rule = "whether prompt and answer have room is known once the prompt is in tokens, and no tokenizer was read"
        yield Finding(Status.UNKNOWN, 3, "sample", "not read", rule)
        return
    if subject.misfits:
        rule = "what it writes is asked once the model fits what is asked of it in training: mend those FAILs first"
        yield Finding(Status.UNKNOWN, 3, "sample", "not asked", rule)
        return
    asked = subject.spec.sample
    try:
        refuse(subject.model, subject.tokenizer, asked)
    except (ConfigError, GenerationError) as error:
        for problem in error.problems:
            yield Finding(Status.FAIL, 3, problem.path, problem.found, problem.rule, problem.fix).under("sample")
    except Exception as error:  # a tokenizer of another house may raise anything
        rule = str(error) or type(error).__name__
        yield Finding(Status.FAIL, 3, "sample.prompt", repr(asked.prompt), rule, "sample.prompt=<another text>")
    else:
        rule = f"prompt and answer have room within model.deploy_length={subject.model.deploy_length}"
        yield Finding(Status.PASS, 3, "sample", f"prompt {asked.prompt!r}", rule)


def _parts(tower: Tower) -> list[tuple[Part, list[int]]]:
    """The parts of a tower that mix positions or read a source, one for each slot, with the layers that have it."""
    found: dict[str, tuple[Part, list[int]]] = {}
    for kind in ("mixer", "cross"):
        for layer in tower.spec.layers:
            if (part := layer.part(kind)) is not None:
                found.setdefault(part.slot, (part, []))[1].append(layer.index)
    return list(found.values())


def _window(tower: Tower, layer: int, part: Part) -> int | None:
    """How far back a query sees, where it looks along its own sequence."""
    mixer: Any = tower.layers[layer].get_submodule(part.kind)
    return mixer.sees(Mask(causal=tower.spec.causal)).window if part.kind == "mixer" else None


def _schemes(spec: ModelSpec, part: Part) -> list[str]:
    """The position schemes that reach a part: the model's, where it writes into what enters the layers, and the one
    that the part asks, where it asks one."""
    embedded = ["model"] if _embeds(spec.position) else []
    own = part.slot in spec.schemes
    asks = own if part.kind == "cross" else own or _asks(part.config)
    return list(dict.fromkeys([*embedded, *([part.slot if own else "model"] if asks else [])]))


def _asks(config: Config) -> bool:
    """Whether a mixer turns or biases by a scheme: one that knows the order by itself says so with a slot for it."""
    return not config.component.ordered or "position" in type(config).model_fields


def _embeds(config: Config) -> bool:
    return config.component.embed is not Position.embed


def _told(spec: ModelSpec, scheme: str) -> str:
    config = spec.schemes[scheme]
    return config.component.told(config, spec.scheme_site(scheme))


def _verdict(subject: Subject, spec: ModelSpec, part: Part, schemes: Sequence[str], window: int | None) -> _Verdict:
    """The worst of what is said of the schemes and of the window, at the lengths that reach this part."""
    said = [_of_scheme(spec, scheme, window) for scheme in schemes]
    at = f"model.{part.slot}."
    for finding in subject.stated_in(2):
        if finding.path.startswith(at) and finding.path.endswith(".window") and finding.status is not Status.PASS:
            said.append((finding.status, finding.rule, finding.fix))
    if part.kind == "cross" and (short := _short(spec)) is not None:
        said.append((short.status, short.rule, short.fix))
    if not said:
        said = [(Status.PASS, _PLACELESS if part.kind == "cross" else _CARRIED, "")]
    return min(said, key=lambda verdict: _WORST.index(verdict[0]))


def _of_scheme(spec: ModelSpec, scheme: str, window: int | None) -> _Verdict:
    """What a scheme says of the lengths, worst first. One that tells distances meets none beyond the window."""
    config, site = spec.schemes[scheme], spec.scheme_site(scheme)
    plain = _worst(config, site, "model.position" if scheme == "model" else f"model.{scheme}.position")
    seen = site.deploy_length if window is None or not config.component.relative else window
    far = max(site.train_length, seen)
    if far >= site.deploy_length or plain[0] is Status.PASS:
        return plain
    if _worst(config, replace(site, deploy_length=far), "")[0] is not Status.PASS:
        return plain
    return Status.PASS, f"no query looks further back than its window, {window}, and training reached as far", ""


def _worst(config: Config, site: Site, path: str) -> _Verdict:
    found = [finding for finding in config.component.check(config, site) if finding.section == 3]
    silent = Finding(Status.UNKNOWN, 3, "name", config.name, f"{config.name} states no verdict on these lengths")
    worst = min(found, key=lambda finding: _WORST.index(finding.status), default=silent)
    return worst.status, worst.rule, worst.under(path).fix
