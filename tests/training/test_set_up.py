"""A callback or a logger that can't be set up is told by its place in the config; those of Lightning's before a run."""

from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
from lightning.pytorch.callbacks import Timer
from rich.console import Console

from builder.errors import ConfigError
from builder.experiments.train import train
from builder.training.fit import _reason, rehearse
from builder.training.set_up import callbacks
from tests.tiny_run import only_run, spec_of, summary, without_probes

THEIRS = "lightning.pytorch.callbacks"


class Broken(L.Callback):
    """Can't be set up."""

    def on_train_start(self, trainer, module):
        raise KeyError("no such thing")


class Unmade(L.Callback):
    """Can't be made."""

    def __init__(self):
        raise OSError("no such file")


def asked(tmp_path, **nodes):
    return spec_of(tmp_path).model_copy(update={"callbacks": nodes})


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"_target_": f"{THEIRS}.ModelCheckpoint"}, "enable_checkpointing=False"),
        ({"_target_": f"{THEIRS}.GradientAccumulationScheduler", "scheduling": {0: 2}}, "manual optimization"),
        ({"_target_": f"{THEIRS}.LearningRateFinder"}, "learning rate finder"),
        ({"_target_": f"{THEIRS}.StochasticWeightAveraging", "swa_lrs": 0.01}, "max_epochs=-1"),
        ({"_target_": f"{THEIRS}.BatchSizeFinder"}, "batch_size"),
        ({"_target_": f"{__name__}.Unmade"}, "OSError: no such file"),
    ],
)
def test_what_no_run_can_take_is_refused_before_one(tmp_path, node, said):
    with pytest.raises(ConfigError) as caught:
        rehearse(asked(tmp_path, x=node))
    (problem,) = caught.value.problems
    assert (problem.path, problem.found, problem.fix) == ("callbacks.x", node["_target_"], "leave callbacks.x out")
    assert said in problem.rule


def test_what_a_run_can_take_is_not_refused(tmp_path):
    nodes = {"stop": {"_target_": f"{THEIRS}.EarlyStopping", "monitor": "val/loss"}}
    nodes |= {"rates": {"_target_": f"{THEIRS}.LearningRateMonitor"}, "mine": {"_target_": f"{__name__}.Broken"}}
    rehearse(asked(tmp_path, **nodes))
    with pytest.raises(ConfigError, match="callbacks: found stop, again\n"):
        rehearse(asked(tmp_path, stop=nodes["stop"], again=nodes["stop"]))


def test_what_fails_in_the_run_is_told_with_its_place(tmp_path, monkeypatch):
    without_probes(monkeypatch)
    with pytest.raises(ConfigError, match=rf"callbacks\.x: found {__name__}\.Broken\n.*KeyError: 'no such thing' \(/"):
        train(asked(tmp_path, x={"_target_": f"{__name__}.Broken"}), Console(quiet=True))
    assert summary(only_run(tmp_path))["status"] == "failed"


@pytest.mark.parametrize(
    ("node", "own", "said"),
    [
        ({}, {"seconds": 0}, "the time of trainer.max_time={'seconds': 0} was over"),
        ({"_target_": f"{THEIRS}.Timer", "duration": {"seconds": 0}}, None, "the time of callbacks.x was over"),
        ({"_target_": f"{THEIRS}.Timer"}, None, "by callbacks.x"),
        ({}, None, "by a callback"),
    ],
)
def test_a_run_that_ends_early_says_who_ended_it(tmp_path, node, own, said):
    spec = asked(tmp_path, **({"x": node} if node else {}))
    spec = spec.model_copy(update={"trainer": spec.trainer | {"max_time": own}})
    theirs = callbacks(spec)
    trainer: Any = SimpleNamespace(global_step=5, callbacks=[*theirs.values(), *([Timer(own)] if own else [])])
    assert _reason(trainer, spec, theirs) == f"stopped early after step 5 of 12: {said}"
