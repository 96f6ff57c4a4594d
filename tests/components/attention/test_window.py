"""A sliding window in an attention: its full pass against the loop over the keys that each query may see."""

import pytest
import torch

from builder import registry
from builder.model.mask import Mask
from tests.components.kernel.loop import by_loop

D, H, K, E, T = 32, 4, 2, 8, 9


@pytest.fixture
def gqa(config, site, wide):
    def make(**knobs):
        attention = config("attention", "gqa", **{"n_heads": H, "n_kv_heads": K, "d_head": E} | knobs)
        return wide(attention.component(attention, site()))

    return make


def by_hand(attention, x, mask, sinks=None):
    """q, k and v from the attention's own maps, then the loop."""
    heads = {name: attention.get_submodule(name)(x).unflatten(-1, (-1, E)) for name in "qkv"}
    return attention.o(by_loop(heads["q"], heads["k"], heads["v"], mask, E**-0.5, sinks=sinks).flatten(-2))


@pytest.mark.parametrize("kernel", registry.names("kernel"))
@pytest.mark.parametrize("window", [1, 2, 3, 5, 100])
@torch.no_grad()
def test_a_query_sees_itself_and_the_keys_just_before_it(gqa, context, window, kernel):
    attention, x = gqa(window=window, kernel=kernel), torch.randn(2, T, D, dtype=torch.float64)
    found = attention(x, context(T))
    assert (found - by_hand(attention, x, Mask(window=window))).abs().max() <= 1e-12
    if window < T:
        assert (found - by_hand(attention, x, Mask(window=window + 1))).abs().max() > 1e-2


@torch.no_grad()
def test_the_window_and_the_pass_are_seen_through_together(gqa, context):
    attention, x = gqa(window=3), torch.randn(2, T, D, dtype=torch.float64)
    real = torch.arange(T).expand(2, T) >= torch.tensor([[0], [4]])
    segments = torch.arange(T).expand(2, T) // 5
    for fields in ({"real": real}, {"segments": segments}, {"real": real, "segments": segments}, {"causal": False}):
        found = attention(x, context(T, mask=Mask(**fields)))
        assert (found - by_hand(attention, x, Mask(window=3, **fields))).abs().max() <= 1e-12
        assert (found - by_hand(attention, x, Mask(window=3))).abs().max() > 1e-2


@torch.no_grad()
def test_a_window_of_one_reads_its_own_value_alone(gqa, context):
    attention, x = gqa(window=1), torch.randn(1, T, D, dtype=torch.float64)
    values = attention.v(x).unflatten(-1, (K, E)).repeat_interleave(H // K, dim=2)
    assert (attention(x, context(T)) - attention.o(values.flatten(-2))).abs().max() <= 1e-12


@torch.no_grad()
def test_sinks_take_weight_and_give_nothing(gqa, context):
    attention, x = gqa(window=1, sinks=True), torch.randn(1, T, D, dtype=torch.float64)
    found = attention(x, context(T))
    assert (found - by_hand(attention, x, Mask(window=1), attention.sinks)).abs().max() <= 1e-12
    attention.sinks.fill_(-torch.inf)
    assert (attention(x, context(T)) - by_hand(attention, x, Mask(window=1))).abs().max() <= 1e-12
    attention.sinks.fill_(100.0)
    assert attention(x, context(T)).abs().max() < 1e-12 < found.abs().max()
