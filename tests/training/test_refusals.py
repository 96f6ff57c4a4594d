"""What doesn't go together is refused before anything is written, with what to write instead."""

import pytest

from builder.errors import ConfigError
from builder.training.fit import rehearse
from tests.tiny_run import MOE, spec_of

SHARDED = "_target_: builder.training.parallel.Sharded"


def refused(tmp_path, *more):
    with pytest.raises(ConfigError) as caught:
        rehearse(spec_of(tmp_path, *more))
    return {problem.path: problem for problem in caught.value.problems}


@pytest.mark.parametrize("precision", ["16-mixed", "16-true"])
def test_float16_on_a_cpu(tmp_path, precision):
    problem = refused(tmp_path, f"trainer.precision={precision}")["trainer.precision"]
    assert problem.fix == "trainer.precision=bf16-mixed"


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_what_a_cpu_can_do_is_not_refused(tmp_path, precision):
    rehearse(spec_of(tmp_path, f"trainer.precision={precision}"))


def test_rows_that_ranks_cannot_share(tmp_path):
    problem = refused(tmp_path, "trainer.devices=2", "batch.sequences=5")["batch.sequences"]
    assert problem.fix == "batch.sequences=4"


@pytest.mark.parametrize(("more", "found"), [((), "no experts"), ((*MOE, "model.moe.n_experts=5"), "with 5 experts")])
def test_experts_that_ranks_cannot_share(tmp_path, more, found):
    how = f"trainer.strategy={{{SHARDED}, expert_parallel: true}}"
    problem = refused(tmp_path, *more, how, "trainer.devices=2")["trainer.strategy.expert_parallel"]
    assert found in problem.found


def test_a_model_that_no_tensor_parallelism_divides(tmp_path):
    how = f"trainer.strategy={{{SHARDED}, tensor_parallel_size: 2}}"
    odd = ["model.attention.n_heads=1", "model.attention.n_kv_heads=1", "model.ffn.d_ff=33", "trainer.devices=2"]
    assert "trainer.strategy.tensor_parallel_size" in refused(tmp_path, how, *odd)


def test_a_wrong_callback(tmp_path):
    with pytest.raises(ConfigError, match="every_n_steps"):
        rehearse(spec_of(tmp_path, "callbacks.last.every_n_steps=0"))


def test_weights_that_several_layers_share_are_not_divided(tmp_path):
    fsdp = [f"trainer.strategy={{{SHARDED}}}", "trainer.devices=2", "model.n_layers=2"]
    problem = refused(tmp_path, *fsdp, "model.shared=[attention+ffn]")["trainer.strategy"]
    assert "some serve several layers" in problem.found and problem.fix == "trainer=ddp"
    rehearse(spec_of(tmp_path, "model.n_layers=2", "model.shared=[attention+ffn]"))  # on one rank nothing is divided
