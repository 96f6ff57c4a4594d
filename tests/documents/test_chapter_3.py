"""What chapter 3 says of attention, section by section: 3.2.1, 3.2.2, 3.3 and 3.4.

Elsewhere: 3.2.2's softmax itself in components/kernel/test_masked_softmax.py; 3.4's parameter formula and its map of
heads in components/attention/test_gqa.py; 3.5 in components/norm, ffn and block; 3.6 in components/position; the table
of 3.7 in ledger/test_shapes.py.
"""

import math

import pytest
import torch

from builder.components.kernel import Scoring
from builder.components.kernel.eager import masked_softmax, weigh
from builder.model.mask import Mask


@pytest.mark.parametrize("width", [4, 16, 64, 256])
def test_3_2_1_the_scale_keeps_the_variance_of_a_score_at_one(attention, width):
    scale = attention(32, n_heads=2, d_head=width).scale
    q, k = torch.randn(2, 20_000, width, dtype=torch.float64)
    scores = (q * k).sum(-1)
    assert math.isclose((scores * scale).var().item(), 1.0, abs_tol=0.1)
    assert math.isclose(scores.var().item(), width, rel_tol=0.1), "unscaled, it is d_h"


def test_3_2_1_scaled_scores_saturate_no_softmax():
    """Var(q . k) = d_h: at d_h 1024 an unscaled row has nearly all its weight on one key, a scaled one has not."""
    q, k = torch.randn(1, 200, 1, 1024).double(), torch.randn(1, 16, 1, 1024).double()
    largest = {
        scale: weigh(q, k, Scoring(Mask(causal=False), scale)).amax(-1).mean().item() for scale in (1.0, 1024**-0.5)
    }
    assert largest[1.0] > 0.9 and largest[1024**-0.5] < 0.4


def rows(scale=3.0, count=40, keys=7):
    scores = torch.randn(count, keys, dtype=torch.float64) * scale
    visible = torch.rand(count, keys) < 0.5
    visible[:, 0] = True  # each row sees something
    return scores, visible


def test_3_2_2_the_stable_form_equals_the_formula_where_that_overflows():
    scores, visible = rows()
    plain = torch.where(visible, scores.exp(), 0.0)
    assert torch.allclose(masked_softmax(scores, visible), plain / plain.sum(-1, keepdim=True), atol=1e-14)
    far = scores + 1000  # exp overflows; a_ij depends on differences alone
    assert torch.allclose(masked_softmax(far, visible), masked_softmax(scores, visible), atol=1e-10)
    assert far.exp().isinf().all()


def test_3_2_2_the_largest_score_is_that_of_the_visible_ones():
    """m_i over all keys would make every visible weight 0 where a hidden score is far larger."""
    scores, visible = torch.tensor([[0.0, 1.0, 2000.0]], dtype=torch.float64), torch.tensor([[True, True, False]])
    assert torch.allclose(masked_softmax(scores, visible)[0, :2], torch.tensor([1, math.e]).double() / (1 + math.e))
    assert (scores - scores.max()).exp()[0, :2].sum() == 0


def test_3_2_each_output_lies_in_the_convex_hull_of_the_visible_values():
    scores, visible = rows()
    values = torch.randn(7, 5, dtype=torch.float64)
    out = masked_softmax(scores, visible) @ values
    unnormalised = scores.masked_fill(~visible, -torch.inf).exp() @ values
    directions = torch.randn(20, 5, dtype=torch.float64)

    def inside(points):  # in every direction, no further out than the furthest visible value
        for point, sees in zip(points, visible, strict=True):
            reach = values[sees] @ directions.T
            along = directions @ point
            yield bool(((along <= reach.amax(0) + 1e-12) & (along >= reach.amin(0) - 1e-12)).all())

    assert all(inside(out)) and not all(inside(unnormalised))


def test_3_3_causal_and_padding_masks_add_up(attention):
    """M = M_causal + M_pad: whatever either forbids stays hidden, and a padded key reaches no real query."""
    real = torch.tensor([[False, True, True, False, True]])
    causal = torch.zeros(5, 5).masked_fill(torch.arange(5) > torch.arange(5)[:, None], -torch.inf)
    pad = torch.zeros(1, 5).masked_fill(~real, -torch.inf)
    added = causal + pad
    assert torch.equal(Mask(real=real).dense(5, 5, real.device)[0, 0], added == 0)
    assert not torch.equal(Mask().dense(5, 5, real.device)[0, 0], added == 0)
    q, k = torch.randn(1, 5, 2, 8).double(), torch.randn(1, 5, 2, 8).double()
    weights = weigh(q, k, Scoring(Mask(real=real), 8**-0.5))
    scores = torch.einsum("bthe,bshe->bhts", q, k) * 8**-0.5 + added
    assert torch.allclose(weights[:, :, 1:], scores.softmax(-1)[:, :, 1:], atol=1e-14)
    assert (weights[:, :, 0] == 0).all() and scores.softmax(-1)[:, :, 0].isnan().all(), "row 0 sees nothing"


def test_3_3_all_positions_are_computed_at_once_and_none_sees_the_future(attention, passes):
    mixer = attention(8, n_heads=2)
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    changed = x.clone()
    changed[:, 4] += 1
    one, other = (passes(mixer).forward(each) for each in (x, changed))
    assert torch.equal(one[:, :4], other[:, :4])
    assert ((one - other)[:, 4:].abs().amax(-1) > 1e-3).all()
    both_ways = [passes(mixer).forward(each, causal=False) for each in (x, changed)]
    assert (both_ways[0] - both_ways[1])[:, :4].abs().max() > 1e-3, "an encoder sees it"


@pytest.mark.parametrize(("kv_heads", "share"), [(8, 1), (2, 4), (1, 8)])
def test_3_4_fewer_kv_heads_shrink_the_projections_and_the_cache_in_proportion(attention, kv_heads, share):
    d, heads, width = 64, 8, 8
    mha, gqa = attention(d, n_heads=heads), attention(d, n_heads=heads, n_kv_heads=kv_heads)
    count = {part: sum(p.numel() for p in m.parameters()) for part, m in (("mha", mha), ("gqa", gqa))}
    assert count["mha"] == 4 * d**2, "with H_kv = H_q and H_q d_h = d"
    assert count["gqa"] == 2 * d**2 + 2 * d * kv_heads * width
    kept = [m.new_state(1, 10, device=torch.device("cpu"), dtype=torch.float32).bytes() for m in (mha, gqa)]
    assert kept[0] == share * kept[1]
    assert gqa.q.weight.shape == gqa.o.weight.shape == (d, d), "queries and output keep their width"


def test_3_4_query_head_r_reads_kv_head_g_of_r(attention, passes):
    """Z_r = Attn(Q_r, K_g(r), V_g(r)) by torch's own softmax, g in blocks; tiled heads give something else."""
    mixer, x = attention(16, n_heads=4, n_kv_heads=2, d_head=4), torch.randn(1, 5, 16, dtype=torch.float64)
    q, k, v = (x @ mixer.get_submodule(part).weight.T for part in "qkv")
    hidden = torch.arange(5) > torch.arange(5)[:, None]

    def by(g):
        heads = []
        for r in range(4):
            own, shared = slice(4 * r, 4 * r + 4), slice(4 * g[r], 4 * g[r] + 4)
            scores = q[..., own] @ k[..., shared].mT / 2
            heads.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v[..., shared])
        return torch.cat(heads, -1) @ mixer.o.weight.T

    out = passes(mixer).forward(x)
    assert torch.allclose(out, by([0, 0, 1, 1]), atol=1e-12)
    assert (out - by([0, 1, 0, 1])).abs().max() > 1e-2
