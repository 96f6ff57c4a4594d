"""A metric that a callback watches and nobody logs ends the run where it validates first, and nothing is lost."""

from __future__ import annotations

import lightning as L

from builder.errors import ArchlabError, nearest
from builder.training.figures import watched
from builder.training.module import Training

from .checkpoint import save_now


class Unlogged(ArchlabError):
    """A metric that is watched and that nobody logs."""


class Watched(L.Callback):
    """Raises Unlogged after a validation by which a metric that is watched was not logged, the checkpoint of its step
    written; stands before all that watch. What can be known of that before the run, the checklist knows.
    """

    def on_validation_end(self, trainer: L.Trainer, module: Training) -> None:
        logged = sorted(trainer.callback_metrics)
        missing = {f"{watch.path}.monitor": watch.monitor for watch in watched(module.spec)}
        missing = {key: monitor for key, monitor in missing.items() if monitor not in logged}
        if missing:
            save_now(trainer)
            found = ", ".join(f"{key}: found {monitor}" for key, monitor in missing.items())
            fix = ", ".join(f"{key}={nearest(monitor, logged) or 'val/loss'}" for key, monitor in missing.items())
            raise Unlogged(
                f"{found}, which no validation logs; logged are {', '.join(logged)}; write {fix} "
                f"(the checkpoint of step {trainer.global_step} is kept)"
            )
