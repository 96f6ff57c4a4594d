"""What callbacks watch must be logged, and its best end be the right one."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from builder import check, compose, load
from builder.checklist.monitors import unwatchable
from builder.registry import find, names
from builder.sections import GuardSpec
from builder.training.objective import Objective
from tests.tiny_run import TINY

OURS = "builder.training.callbacks"
DEEP = {"deep": {"_target_": f"{OURS}.deploy_length.DeployLength"}}
OTHER = {"mine": {"_target_": "lightning.pytorch.callbacks.LearningRateMonitor"}}


def best(monitor="val/loss", mode="min"):
    return {"best": {"_target_": f"{OURS}.checkpoint.Best", "monitor": monitor, "mode": mode}}


def stopping(monitor):
    return {"stop": {"_target_": "lightning.pytorch.callbacks.EarlyStopping", "monitor": monitor}}


WRONG = [  # callbacks, other overrides, and what is told: status, key below callbacks, the start of a fix
    (best("val/los"), {}, "FAIL", "best.monitor", "val/loss"),
    (best("val_accuracy"), {}, "FAIL", "best.monitor", "val/accuracy, callbacks.best.mode=max"),
    (best("val/los", "max"), {}, "FAIL", "best.monitor", "val/loss, callbacks.best.mode=min"),
    (best() | stopping("val/los"), {}, "FAIL", "stop.monitor", "val/loss"),
    (best("val/wbe/loss"), {"data": "mixed"}, "FAIL", "best.monitor", "val/web/loss"),
    (best("val/web/loss"), {}, "FAIL", "best.monitor", "val/loss"),
    (best("val/f1"), {}, "FAIL", "best.monitor", "val/"),
    (best("optim/skipped"), {}, "FAIL", "best.monitor", ""),
    (best("val/loss_at_deploy_length"), {}, "FAIL", "best.monitor", "val/loss"),
    (best("val/accuracy", "max"), {"fused_loss": True}, "FAIL", "best.monitor", "val/"),
    (best("val/accuracy"), {}, "FAIL", "best.mode", "max"),
    (best(mode="max"), {}, "FAIL", "best.mode", "min"),
    (best("val/web/loss", "max"), {"data": "mixed"}, "FAIL", "best.mode", "min"),
    (best("val/los") | OTHER, {}, "UNKNOWN", "best.monitor", "val/loss"),
    (best("moe/3/z_loss"), {}, "UNKNOWN", "best.monitor", ""),
]
RIGHT = [
    ({}, {}),
    (best() | stopping("val/loss"), {}),
    (best("val/accuracy", "max"), {}),
    (best("optim/lr", "max"), {}),
    (best("optim/skipped"), {"guard": GuardSpec()}),
    (best("val/loss_at_deploy_length") | DEEP, {}),
    (best("val/web/loss"), {"data": "mixed"}),
]


@pytest.fixture(scope="module")
def spec():
    plain = load(compose([*TINY, "data.path=x"]))
    mixture = find("data", "mixture").Config(name="mixture", sources={"web": {"name": "text", "path": "x"}})

    def made(callbacks, other):
        return plain.model_copy(
            update={"callbacks": callbacks, **other} | ({"data": mixture} if "data" in other else {})
        )

    return made


@pytest.mark.parametrize(("callbacks", "other", "status", "key", "fix"), WRONG)
def test_what_is_not_logged_or_turned_round_is_told(spec, callbacks, other, status, key, fix):
    (told,) = unwatchable(spec(callbacks, other))
    name, what = key.split(".")
    assert (told.status, told.path, told.found) == (status, f"callbacks.{key}", callbacks[name][what])
    assert told.fix.startswith(f"callbacks.{key}={fix}") and (what == "mode" or "val/loss, " in told.rule)


@pytest.mark.parametrize(("callbacks", "other"), RIGHT)
def test_what_is_logged_passes(spec, callbacks, other):
    assert list(unwatchable(spec(callbacks, other))) == []


def test_what_validates_nothing_finds_no_best(spec):
    never = {"trainer": {**spec({}, {}).trainer, "limit_val_batches": 0}}
    assert [told.path for told in unwatchable(spec(best(), never))] == ["trainer.limit_val_batches"]
    assert not list(unwatchable(spec({}, never)))


@pytest.mark.parametrize(
    ("path", "value", "status"),
    [
        ("trainer.limit_train_batches", 10, "FAIL"),
        ("trainer.limit_train_batches", 1.0, ""),
        ("trainer.check_val_every_n_epoch", 2, "FAIL"),
        ("trainer.check_val_every_n_epoch", 1, ""),
        ("trainer.min_epochs", 2, "FAIL"),
        ("trainer.limit_val_batches", 0.001, "FAIL"),
        ("trainer.limit_val_batches", 0.5, ""),
        ("trainer.deterministic", "foo", "FAIL"),
        ("trainer.profiler", 1, "FAIL"),
        ("callbacks.stop.check_on_train_epoch_end", True, "FAIL"),
        ("callbacks.stop.check_on_train_epoch_end", False, ""),
        ("callbacks.mine.every_n_epochs", 1, "WARN"),
        ("callbacks.rates.logging_interval", "epoch", "FAIL"),
    ],
)
def test_what_counts_epochs_is_in_vain(spec, path, value, status):
    section, *place, key = path.split(".")
    nodes = {"stop": stopping("val/loss")["stop"], "mine": {"_target_": "mine.Mine"}, "rates": OTHER["mine"]}
    other = {"trainer": spec({}, {}).trainer | {key: value}} if section == "trainer" else {}
    callbacks = {name: nodes[name] | {key: value} for name in place}
    samples = SimpleNamespace(every=lambda: torch.arange(12), part_of=torch.zeros_like)
    corpus: Any = SimpleNamespace(val_bytes_per_token=1.0, val=samples)
    told = unwatchable(spec(callbacks, other), corpus)
    assert [(finding.status, finding.path) for finding in told] == [(status, path)] * bool(status)


def test_where_each_step_validates_a_callback_of_lightnings_waits_for_an_epoch_by_itself(spec):
    each = {"trainer": spec({}, {}).trainer | {"val_check_interval": 1}}
    (told,) = unwatchable(spec(stopping("val/loss"), each))
    assert told.fix == "callbacks.stop.check_on_train_epoch_end=false"
    mended = {"stop": stopping("val/loss")["stop"] | {"check_on_train_epoch_end": False}}
    assert not list(unwatchable(spec(mended, each)))


def test_data_that_is_no_text_has_no_bits(spec):
    asked = partial(unwatchable, spec(best("val/bits_per_byte"), {}))
    assert list(asked()) == [], "before the data is read, it may"
    assert [told.path for told in asked(SimpleNamespace(val_bytes_per_token=None))] == ["callbacks.best.monitor"]


def test_the_checklist_says_so_of_a_run_that_is_to_be_trained(spec):
    wrong = spec(best("val/los"), {})
    assert [finding.path for finding in check(wrong, probes=False).failures] == ["callbacks.best.monitor"]
    assert check(wrong, probes=False, trains=False).ok, "a run that was trained can be used"


def test_an_objective_states_its_figures():
    assert all("accuracy" in find("objective", name).figures for name in names("objective"))
    with pytest.raises(TypeError, match="figures"):
        type("Silent", (Objective,), {"metrics": lambda self, sums, targets: {"own": 1.0}})
