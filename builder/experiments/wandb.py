"""The run in Weights & Biases: online when logged in, else offline in the run folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from builder.spec import RunSpec

from .metrics import Axes, read_metrics
from .tracking.forgiving import Forgiving, warn
from .tracking.identity import Identity, group_of, name_of
from .tracking.parts import Part, of_its_own_second, parts, recorded, starts
from .tracking.tables import CHECKLIST, SAMPLES, artifact, checklist, deployed, findings, samples, verdict

PATIENCE = 300
"""Seconds that the end of a run waits for its last rows to be sent, unless WANDB_FINISH_TIMEOUT says otherwise; what
isn't sent by then lies in the run folder."""

START_PATIENCE = 45
"""Seconds that its beginning waits for the server, unless WANDB_INIT_TIMEOUT says otherwise."""

OFFLINE = "offline, and `python -m recipes.sync` sends it later"

Mode = Literal["auto", "online", "offline"]

_under_way: list[_Tracked | _Missing] = []
"""What the run of this process has in W&B: at most one."""


def logger(
    project: str,
    folder: Path,
    spec: RunSpec,
    axes: Axes,
    summary: Mapping[str, int],
    mode: Literal["auto", "online", "offline"] = "auto",
    entity: str | None = None,
    artifacts: list[Literal["config", "checkpoints"]] | None = None,
) -> Any:
    """Lightning's logger to a W&B run of this run; None if W&B can't start, which is said now and at the end.

    `auto` is online when an API key is there, else offline; WANDB_MODE overrides it. A run that is resumed
    goes on in the W&B run that it began. Where the server can't be reached, it is offline instead; a server that can't
    be reached later on holds nothing up. `artifacts` are what is kept in W&B beside the rows.
    """
    from .tracking.run_logger import RunLogger

    os.environ.setdefault("WANDB_SILENT", "true")
    _under_way.clear()
    kept, before = Identity.of(folder), parts(folder)
    identity = Identity.new(project, entity) if kept is None else Identity(kept.id, kept.project, kept.entity)
    before = [part for part in before if part.id == identity.id]
    of_its_own_second(starts(folder))
    modes = _order(mode, before, folder)
    run = _started(modes, identity, folder, spec)
    if run is None:
        _under_way.extend([_Missing(folder)] if modes else [])
        return None
    forgiving = Forgiving(folder)
    with forgiving:
        identity = Identity(run.id, run.project, run.entity or None)  # an agent's run may have others
        identity.keep(folder)
    known = run.starting_step - 1 if run.resumed else recorded(before, otherwise=_last(folder))
    made = RunLogger(run, axes, max(known, 0), forgiving)
    tracked = _Tracked(made, folder, spec, tuple(artifacts or ()))
    _under_way.append(tracked)
    with forgiving:
        tracked.introduce(summary, first=not before and not run.resumed)
    return made


def close(status: str) -> None:
    """Ends the W&B run under way, if any, as completed or failed: the next run of the process gets its own."""
    wandb = sys.modules.get("wandb")
    tracked = _under_way.pop() if _under_way else None
    if tracked is not None:
        tracked.conclude(status)
    if wandb is not None and wandb.run is not None:
        run, forgiving = wandb.run, Forgiving()
        with forgiving:
            wandb.finish(exit_code=0 if status == "completed" else 1)
        if forgiving.faulty and not run.offline:
            place = Path(run.dir).parent
            warn(f"not all of it may be in W&B; `wandb sync --include-online {place}` sends what {place} holds")


class _Missing:
    """A run without W&B, of which its end reminds, since what was said at its beginning is far up by then."""

    def __init__(self, folder: Path):
        self.folder = folder

    def conclude(self, status: str) -> None:
        """Says it again."""
        warn(f"this run is not in W&B, which did not start; {self.folder / 'metrics.jsonl'} has every metric")


class _Tracked:
    """A W&B run from its first word to its last."""

    def __init__(self, logger: Any, folder: Path, spec: RunSpec, artifacts: tuple[str, ...]):
        self.logger, self.run = logger, logger.experiment
        self.folder, self.spec, self.artifacts = folder, spec, artifacts

    def introduce(self, summary: Mapping[str, int], first: bool) -> None:
        """Declares the axes, says what is known before the first step, and logs the rows that W&B lacks."""
        import wandb

        for axis in ("step", "tokens", "flops"):
            self.run.define_metric(axis)
        self.run.define_metric("*", step_metric="step")
        report = checklist(self.folder)
        self.run.summary.update(dict(summary) | verdict(report) | {"hash": self.spec.hash})
        if first and report:
            with self.logger.forgiving:  # each thing by itself
                columns, rows = deployed(report)
                told: dict[str, Any] = {"checklist": wandb.Table(columns=list(CHECKLIST), data=[*findings(report)])}
                told |= {"checklist/deploy": wandb.Table(columns=columns, data=[*rows])} if rows else {}
                self.run.log(told | self.logger.axes.at(0), step=0)
        metrics = self.folder / "metrics.jsonl"
        for row in read_metrics(metrics) if metrics.exists() else ():  # a kill may have taken the last of them
            self.logger.log_row({key: value for key, value in row.items() if value is not None}, row["step"])
        if "config" in self.artifacts:
            self._hand_over("config")

    def conclude(self, status: str) -> None:
        """Says how the run ended, with what it has written by then."""
        with self.logger.forgiving:
            said = _summary(self.folder)
            best = {f"best/{name}": value for name, value in said.get("best", {}).items()}
            told = {"status": status, "reason": said.get("reason"), "corpus": said.get("corpus")} | best
            self.run.summary.update({key: value for key, value in told.items() if value is not None})
        with self.logger.forgiving:
            self._show_samples(said.get("step"))
        if "checkpoints" in self.artifacts:
            self._hand_over("checkpoints")

    def _show_samples(self, step: int | None) -> None:
        import wandb

        rows: list[Any] = [*samples(self.folder, self.spec)]
        if rows and step is not None:
            table = wandb.Table(columns=list(SAMPLES), data=rows)
            place = max(step, self.logger.known + 1)  # W&B takes no row before the last it has
            self.run.log({"samples": table} | self.logger.axes.at(step), step=place)

    def _hand_over(self, kind: str) -> None:
        with self.logger.forgiving:
            made = artifact(kind, self.run.id, self.folder)
            if made is not None:
                self.run.log_artifact(made)


def _order(mode: Mode, before: list[Part], folder: Path) -> list[str]:
    """The modes to try, one after the other; none where WANDB_MODE says so."""
    import wandb

    if any(part.offline and not part.sent for part in before):
        return ["offline"]  # what comes later must be sent later, or W&B drops what came before
    asked = os.environ.get("WANDB_MODE") if mode == "auto" else mode
    online = asked == "online"
    if asked == "disabled":
        return []
    if asked is None:
        try:
            online = wandb.login(prompt=False)
        except Exception as error:  # a key that the server does not take, or no server to ask
            _warn_of_start("online", error, OFFLINE, folder)
            wandb.teardown()
    return ["online", "offline"] if online else ["offline"]


def _warn_of_start(mode: str, error: Exception, instead: str, folder: Path) -> None:
    reason = str(error).partition("\n")[0]
    warn(
        f"W&B did not start {mode} ({type(error).__name__}: {reason}); the run goes on {instead}, "
        f"and {folder / 'metrics.jsonl'} has every metric; logger=none or logger=wandb_offline avoids this"
    )


def _started(modes: list[str], identity: Identity, folder: Path, spec: RunSpec) -> Any:
    """A W&B run in the first of the modes in which it starts; what doesn't is said. None: none of them."""
    import wandb

    asked: dict[str, Any] = {"finish_timeout": PATIENCE, "init_timeout": START_PATIENCE}
    settings = {key: value for key, value in asked.items() if f"WANDB_{key.upper()}" not in os.environ}
    for mode in modes:
        try:
            return wandb.init(
                project=identity.project,
                entity=identity.entity,
                id=identity.id,
                name=name_of(spec, folder),
                group=group_of(spec),
                tags=list(spec.output.tags),
                config=spec.to_dict(),
                dir=str(folder),
                mode=mode,  # pyright: ignore[reportArgumentType]
                resume="allow",
                reinit="finish_previous",  # a run never logs into that of another
                settings=wandb.Settings(**settings),
            )
        except Exception as error:  # whatever it is, it is not the run's fault
            _warn_of_start(mode, error, "without it" if mode == modes[-1] else OFFLINE, folder)
            wandb.teardown()  # the service takes the id for one in use
    return None


def _summary(folder: Path) -> dict[str, Any]:
    from .folder import RunFolder

    return RunFolder(folder).summary()


def _last(folder: Path) -> int:
    """The last step that metrics.jsonl has a row of."""
    path = folder / "metrics.jsonl"
    return max((row["step"] for row in read_metrics(path)), default=0) if path.exists() else 0
