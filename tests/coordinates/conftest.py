"""A model whose copies train in a moment, and the corpus that they read."""

import pytest
import torch

from builder.data import prepare
from tests.tiny_run import spec_of

SIZES = ["model.d_model=32", "model.attention.n_heads=4", "model.attention.n_kv_heads=2", "model.ffn.d_ff=64"]
MUP = ["model/init=mup", "model.init.base_d_model=16"]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def tiny(tmp_path):
    """tiny(*overrides): (the RunSpec of a small run, its corpus)."""

    def make(*more):
        spec = spec_of(tmp_path, *SIZES, *more)
        return spec, prepare(spec, cache=tmp_path / "cache")

    return make
