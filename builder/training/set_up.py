"""The callbacks of a run: made, and set up before there is one; where that fails, their place in the config is told."""

from __future__ import annotations

import io
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.loggers.logger import DummyLogger
from torch.utils.data import DataLoader

from builder import targets
from builder.errors import ArchlabError, ConfigError, Problem
from builder.spec import RunSpec

WITHOUT = {
    "max_epochs": -1,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
    "num_sanity_val_steps": 0,
}
"""What the trainer of every run is told: an epoch has no end, and what Lightning would do by itself the run does."""

_SET_UP = ("setup", "on_fit_start", "on_train_start")
"""The hooks of a callback before the first step."""

Callbacks = Mapping[str, Any]
"""The callbacks of a run by their names in the config."""


@contextmanager
def made_of(section: str, name: str, node: Mapping[str, Any]) -> Iterator[None]:
    """Raises ConfigError, with the place of the node that something is made of, for what its class raises."""
    try:
        yield
    except ArchlabError:
        raise
    except Exception as error:  # each class raises what it likes
        raise _told(section, name, node, error) from error


def callbacks(spec: RunSpec) -> Callbacks:
    """The callbacks that a config describes."""
    found = {}
    for name, node in spec.callbacks.items():
        with made_of("callbacks", name, node):
            found[name] = targets.instantiate(node)
    return found


@contextmanager
def naming(spec: RunSpec, those: Callbacks) -> Iterator[None]:
    """Raises ConfigError, with its place in the config, for what a callback raises while it is set up."""
    try:
        yield
    except ArchlabError:
        raise
    except Exception as error:
        name = _at_fault(error.__traceback__, those)
        if name is None:
            raise
        raise _told("callbacks", name, spec.callbacks[name], error) from error


def try_out(spec: RunSpec) -> None:
    """Sets the callbacks up as a run would, without one; raises ConfigError with what they say.

    All are given to a trainer; those of Lightning's, which do nothing but what the trainer sees, are set up as well.
    """
    those = callbacks(spec)
    try:
        _trainer(those)
    except Exception as error:
        for name in those:
            with made_of("callbacks", name, spec.callbacks[name]):
                _trainer({name: those[name]})
        rule = f"callbacks that go together; {_saying(error)}"
        raise ConfigError([Problem("callbacks", ", ".join(those), rule, "leave one of them out")]) from error
    theirs = {name: each for name, each in those.items() if type(each).__module__.startswith("lightning.")}
    if theirs:
        quiet = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
        with naming(spec, theirs), quiet[0], quiet[1], TemporaryDirectory() as place:
            how = {"max_steps": 1, "limit_val_batches": 0, "log_every_n_steps": 1, "default_root_dir": place}
            _trainer(theirs, **how).fit(_Nothing())


def _trainer(those: Callbacks, **more: Any) -> L.Trainer:
    alone = {"accelerator": "cpu", "devices": 1, "plugins": [LightningEnvironment()], "logger": DummyLogger()}
    return L.Trainer(**alone, callbacks=[*those.values()], **WITHOUT, **more)


def _at_fault(at: TracebackType | None, those: Callbacks) -> str | None:
    """The name of the callback in whose set-up an error was raised."""
    names = {id(callback): name for name, callback in those.items()}
    for frame, _ in traceback.walk_tb(at):
        if frame.f_code.co_name in _SET_UP and id(frame.f_locals.get("self")) in names:
            return names[id(frame.f_locals["self"])]
    return None


def _told(section: str, name: str, node: Mapping[str, Any], error: Exception) -> ConfigError:
    rule = f"what a run can be trained with; {_saying(error)}"
    return ConfigError([Problem(f"{section}.{name}", node["_target_"], rule, f"leave {section}.{name} out")])


def _saying(error: Exception) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({at.filename}:{at.lineno})"


class _Nothing(L.LightningModule):
    """Trains as a run does, by its own hand, and ends before the first step."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.layer = torch.nn.Linear(1, 1)

    def on_train_start(self) -> None:
        self.trainer.should_stop = True

    def training_step(self, batch: Any, index: int) -> None:
        """Nothing."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def train_dataloader(self) -> Any:
        return DataLoader([0])  # type: ignore[arg-type]
