"""The sweeps that ship: each is planned with the experiment of its name, and none of its points is refused."""

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from builder import ledger
from builder.compose import CONF, prepare
from builder.load import read
from builder.sweeps import plan
from builder.sweeps.axes import points
from builder.sweeps.composer import Composer
from builder.sweeps.spec import SweepSpec

NAMES = sorted(file.stem for file in (CONF / "sweep").glob("*.yaml"))


def planned(name):
    prepare()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composer = Composer(GlobalHydra.instance().config_loader(), "train")
        spec = read(SweepSpec, OmegaConf.to_container(OmegaConf.load(CONF / "sweep" / f"{name}.yaml")))
        made = points([f"experiment={name}"], spec, composer.holds)
        return plan.make(name, made, composer.compose, lambda: None)


@pytest.mark.parametrize("name", NAMES)
def test_every_point_can_be_launched(name):
    made = planned(name)
    assert [point.reason for point in made.points if point.status != "planned"] == []
    assert len(made.points) > 2


@pytest.mark.parametrize(("name", "cost"), [("kv_heads", "params"), ("moe_vs_dense", "active_params")])
def test_what_is_compared_at_equal_cost_costs_as_much(name, cost):
    made = planned(name)
    costs = [getattr(ledger(made.specs[point.asks].model), cost) for point in made.points]
    assert max(costs) / min(costs) < 1.01
    models = {made.specs[point.asks].model for point in made.points}
    assert len(models) > 1


def test_every_experiment_has_its_sweep_and_every_sweep_its_experiment():
    alone = {"nanogpt_cpu", "shakespeare_cpu", "reverse", "gettext"}
    assert set(NAMES) == {file.stem for file in (CONF / "experiment").glob("*.yaml")} - alone and NAMES
