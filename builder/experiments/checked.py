"""A folder checked as it is, or as it would be with other values of some keys; nothing is written to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from builder.checklist import Report, check
from builder.data.tokenizer import Tokenizer
from builder.finding import Finding, Status
from builder.load import load
from builder.model.assemble import build
from builder.overlay import lay
from builder.spec import ModelSpec, RunSpec

from .folder import RunFolder

_TOLD = {"path", "rule", "status", "found"}
"""What each finding of a report that was saved says."""

Checked = tuple[RunSpec, Report]
"""What was checked, and what was found."""


def check_run(path: str | Path, overrides: Sequence[str] = (), probes: bool = True) -> Checked:
    """The checklist of the run in a folder, as it is deployed: its frozen config, its tokenizer and labels, and what
    of the report differs from the one that was saved with it. Its data aren't read.

    Raises ArchlabError when the folder is no run, or its config was changed after it was made.
    """
    folder = RunFolder.open(path)
    frozen = folder.spec()
    tokenizer_class: Any = frozen.tokenizer.component
    tokenizer: Tokenizer = tokenizer_class.load(frozen.tokenizer, folder.path)
    beside = [Finding(Status.PASS, 4, "run", f"hash {frozen.hash}", "the frozen config is the one it was made with")]
    beside += _labels(frozen, folder.summary())
    return judge(frozen, tokenizer, overrides, f"run={path}", probes, beside, folder.read_json("checklist.json"))


def judge(
    frozen: RunSpec,
    tokenizer: Tokenizer,
    overrides: Sequence[str],
    folder: str,
    probes: bool,
    beside: Iterable[Finding],
    saved: Mapping[str, Any] | None = None,
) -> Checked:
    """The checklist of a config that stands in `folder`, with overrides laid over it.

    beside   what is found there besides
    saved    the report that was saved there, in plain Python; None: none was
    """
    spec = load(lay(overrides, frozen.to_dict(), folder)) if overrides else frozen
    known = tokenizer if spec.tokenizer == frozen.tokenizer else None
    report = check(spec, probes, tokenizer=known, trains=False)
    found = [*beside, *(_refitted(frozen.model, spec.model) if report.ok and spec.model != frozen.model else ())]
    found += [] if saved is None else _differences(saved, report, bool(overrides))
    every = sorted((*report.findings, *found), key=lambda finding: finding.section)
    return spec, Report(tuple(every), report.deploy)


def _refitted(before: ModelSpec, after: ModelSpec) -> Iterator[Finding]:
    """Whether the weights of a model are those of another."""
    had, wanted = (
        {name: tuple(value.shape) for name, value in build(model, device="meta").state_dict().items()}
        for model in (before, after)
    )
    other = [name for name in had | wanted if had.get(name) != wanted.get(name)]
    rule = "what is changed must leave the weights of the folder as they are"
    if other:
        named = ", ".join(other[:3]) + (f" and {len(other) - 3} more" if len(other) > 3 else "")
        found = f"weights of another name or shape: {named}"
        yield Finding(Status.FAIL, 4, "model", found, rule, "leave that override out, or train such a model anew")
    else:
        yield Finding(Status.PASS, 4, "model", f"{len(had):,} tensors fit as before", rule)


def _labels(spec: RunSpec, summary: Mapping[str, Any]) -> Iterator[Finding]:
    """The names of classes that the folder keeps, against the classes of the head."""
    knob, names = getattr(spec.model.head.component, "width_of", None), summary.get("labels", ())
    if knob is None or not names:
        return
    classes = getattr(spec.model.head, knob)
    status = Status.PASS if classes == len(names) else Status.FAIL
    found = f"{classes} classes, labels {', '.join(map(str, names[:5]))}{', ...' if len(names) > 5 else ''}"
    fix = "" if status is Status.PASS else "restore summary.json"
    yield Finding(status, 6, f"model.head.{knob}", found, "the folder names each class", fix)


def _differences(saved: Mapping[str, Any], report: Report, changed: bool) -> Iterator[Finding]:
    """What the report says otherwise than the one that was saved. What isn't asked of a folder alone is left out, and
    of one that is `changed` what was found and is as good as before."""
    rule = f"the report that was saved there, {'of the folder as it was made' if changed else 'when it was made'}"
    then = [each for each in saved.get("findings", ()) if isinstance(each, Mapping) and each.keys() >= _TOLD]
    other = []
    for now in report.findings:
        there = [each for each in then if each["path"] == now.path]
        same = [each for each in there if each["rule"] == now.rule]
        had = same or (there if len(there) == 1 else [])  # a rule may say its numbers
        if now.status is Status.UNKNOWN or not there or any(_is_said(now, each, changed) for each in same):
            continue
        if had and (same or had[0]["status"] != now.status):
            other.append(f"{now.path}: {now.status}, {now.found}; then {had[0]['status']}, {had[0]['found']}")
        elif not had and now.status is not Status.PASS:
            other.append(f"{now.path}: {now.status}, {now.found}; not said then")
    for found in other or ["nothing is told otherwise"]:
        status = Status.WARN if other and not changed else Status.PASS
        yield Finding(status, 4, "checklist.json", found, rule)


def _is_said(now: Finding, then: Mapping[str, Any], changed: bool) -> bool:
    """Whether a finding says what one of the same rule said; what was measured differs from machine to machine."""
    alike = changed or now.rule.startswith("proven") or now.found == then["found"]
    return alike and str(now.status) == then["status"]
