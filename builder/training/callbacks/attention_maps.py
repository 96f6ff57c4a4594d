"""Pictures of what the trained model looks at, for the loggers that take pictures."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch

from builder.experiments.attention_maps import draw, labels, maps, shown_layers, text
from builder.experiments.tracking.forgiving import warn
from builder.training.module import Training
from builder.whole import whole

FOLDER = "attention_maps"
"""The folder of the pictures in the run folder: layer-<number>.png."""


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

    def _draw(self, folder: Path, module: Training) -> dict[str, Any]:
        model, tokenizer = module.model, module.corpus.tokenizer
        training = model.training
        try:
            with module.averages.deployed(model), torch.no_grad():
                model.eval()
                ids = text(model, tokenizer, module.spec.sample.prompt)
                weights = maps(model, torch.tensor([ids], device=module.device))
        finally:
            model.train(training)
        pictures = {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # a font that lacks a sign draws a box
            for layer in shown_layers(list(weights)):
                pictures[f"layer-{layer}"] = place = folder / FOLDER / f"layer-{layer}.png"
                title = f"Attention of layer {layer} after step {module.global_step}"
                with whole(place, "wb") as file:
                    draw(weights[layer], labels(tokenizer, ids), title, file)
        return pictures
