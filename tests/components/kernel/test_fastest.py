"""Which kernel is taken: the fastest that can compute a pass, on a CPU and on a GPU; and what a misfit says."""

import pytest
import torch

from builder import registry
from builder.components.kernel import Case, KernelMisfit, Scoring, attend, fastest, kernels
from builder.model.mask import Mask
from tests.components.kernel.loop import problem

EVERY = kernels(None)
READ = ({"flag": False}, {"bias": True}, {"sinks": True})  # what sdpa needs a tensor for


def taken(**facts):
    return fastest(EVERY, Case(**facts)).__name__


def test_all_kernels_are_asked():
    assert {kernel.__name__ for kernel in EVERY} == {"Eager", "SDPA", "Flex"} and len(registry.names("kernel")) == 3


@pytest.mark.parametrize("grad", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("facts", [{}, {"dropout": True}, *READ], ids=str)
def test_on_a_cpu_it_is_sdpa_for_all_but_the_soft_cap(facts, grad):
    assert taken(device="cpu", grad=grad, **facts) == "SDPA"
    assert taken(device="cpu", grad=grad, softcap=True, **facts) == "Eager"


@pytest.mark.parametrize("grad", [False, True], ids=["evaluation", "training"])
def test_on_a_gpu_a_flag_goes_to_sdpa_and_all_else_to_flex(grad):
    assert taken(device="cuda", grad=grad) == "SDPA"
    for facts in ({"softcap": True}, *READ, {"softcap": True, "sinks": True, "bias": True, "flag": False}):
        assert taken(device="cuda", grad=grad, **facts) == "Flex"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("facts", [{}, {"softcap": True}, *READ], ids=str)
def test_dropout_is_never_dropped(device, facts):
    assert taken(device=device, dropout=True, grad=True, **facts) == ("Eager" if "softcap" in facts else "SDPA")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_query_is_never_compiled_for(device):
    for facts in ({}, *READ):
        assert taken(device=device, single=True, **facts) == "SDPA"
    assert taken(device=device, single=True, softcap=True) == "Eager"


@pytest.mark.parametrize(
    ("name", "facts", "words"),
    [
        ("sdpa", {"softcap": True}, "sdpa has no soft-cap"),
        ("flex", {"dropout": True}, "flex has no dropout"),
        ("flex", {"grad": True}, "flex has no backward on a CPU"),
    ],
)
def test_a_pinned_kernel_that_cannot_says_so_and_what_to_write(name, facts, words):
    with pytest.raises(KernelMisfit, match=f"kernel: {words}.*kernel=null"):
        fastest(kernels(name), Case("cpu", **facts))
    assert fastest(kernels(name), Case("cpu")) is registry.find("kernel", name)


def test_what_a_pass_needs_is_read_off_it():
    """flex alone: refused exactly where gradients are wanted, so that `attend` must have asked."""
    given = problem("causal", "tensor", sinks=True)
    with pytest.raises(KernelMisfit, match="no backward"):
        attend(kernels("flex"), given.q, given.k, given.v, given.scoring)
    plain = [x.detach() for x in (given.q, given.k, given.v)]
    with torch.no_grad():
        assert torch.allclose(attend(kernels("flex"), *plain, given.scoring), given.loop(), atol=1e-12)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_gradient_of_queries_keys_or_values_is_wanted(which):
    q, k, v = (torch.randn(1, 3, 2, 8, requires_grad=which == i) for i in range(3))
    with pytest.raises(KernelMisfit, match="no backward"):
        attend(kernels("flex"), q, k, v, Scoring(Mask(), 1.0))
    assert attend(EVERY, q, k, v, Scoring(Mask(), 1.0)).requires_grad


@pytest.mark.parametrize("knob", [{"softcap": 5.0}])
def test_a_pass_that_a_pinned_kernel_cannot_compute_is_refused(knob):
    q = torch.randn(1, 3, 2, 8)
    with pytest.raises(KernelMisfit, match="soft-cap"):
        attend(kernels("sdpa"), q, q, q, Scoring(Mask(), 1.0, **knob))
    assert attend(EVERY, q, q, q, Scoring(Mask(), 1.0, **knob)).isfinite().all()
