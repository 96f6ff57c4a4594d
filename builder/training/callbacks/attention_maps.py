"""Pictures of what the trained model looks at, for the loggers that take pictures."""

from __future__ import annotations

from pathlib import Path

import lightning as L
import torch

from builder.experiments.attention_maps import write
from builder.experiments.tracking.forgiving import warn
from builder.training.module import Training

FOLDER = "attention_maps"
"""The folder of the pictures in the run folder: layer-<number>.png, of a source encoder- and cross-<number>.png."""


class AttentionMaps(L.Callback):
    """Draws at the end of training, where a logger takes pictures, what each layer looks at in the sample prompt and
    what the model greedily makes of it.

    A model that is divided over ranks isn't drawn. What fails here is warned of, and no fault of the run.
    """

    def on_train_end(self, trainer: L.Trainer, module: Training) -> None:
        takers = [take for logger in trainer.loggers if (take := getattr(logger, "log_image", None)) is not None]
        if not takers or not trainer.is_global_zero or module.device_mesh is not None:
            return
        try:
            pictures = self._draw(Path(trainer.default_root_dir), module)
        except Exception as error:
            warn(f"attention maps weren't drawn ({type(error).__name__}: {error})")
            return
        for take in takers:
            for key, picture in pictures.items():
                take(f"attention/{key}", [str(picture)], step=trainer.global_step - 1)

    def _draw(self, folder: Path, module: Training) -> dict[str, Path]:
        model = module.model
        training = model.training
        try:
            with module.averages.deployed(model), torch.no_grad():
                model.eval()
                asked, title = module.spec.sample, f" after step {module.global_step}"
                return write(model, module.corpus.tokenizer, asked.prompt, folder / FOLDER, title, asked.before)
        finally:
            model.train(training)
