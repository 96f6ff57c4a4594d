"""The fused kernels behind the same layers: when they are taken, and that they are handed what they ask for."""

import sys
from types import ModuleType

import pytest
import torch

from builder.components.ssm import _fused
from builder.components.ssm._fused import why_not
from builder.model.mask import Mask

LOW = {"dtype": torch.float32}


def channels(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False):
    """selective_scan_fn as mamba-ssm declares it: u and delta (B, D, T), A (D, N), B and C (B, N, T)."""
    h, ys = torch.zeros(*u.shape[:2], A.shape[1]), []
    for t in range(u.shape[2]):
        h = (delta[:, :, t, None] * A).exp() * h + (delta[:, :, t] * u[:, :, t])[..., None] * B[:, None, :, t]
        ys.append((h * C[:, None, :, t]).sum(-1))
    return torch.stack(ys, 2), h


def heads(x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None, **told):
    """mamba_chunk_scan_combined as mamba-ssm has it: x (B, T, H, P), dt (B, T, H), A (H,), B and C (B, T, G, N)."""
    assert told == {"return_final_states": True}
    B, C = (v.repeat_interleave(x.shape[2] // v.shape[2], dim=2) for v in (B, C))
    h = torch.zeros(*x[:, 0].shape, B.shape[-1]) if initial_states is None else initial_states
    ys = []
    for t in range(x.shape[1]):
        if seq_idx is not None and t:
            h = h * (seq_idx[:, t] == seq_idx[:, t - 1])[:, None, None, None]
        h = (dt[:, t] * A).exp()[..., None, None] * h + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
        ys.append((h * C[:, t, :, None]).sum(-1))
    return torch.stack(ys, 1), h


@pytest.fixture
def installed(monkeypatch):
    """A mamba-ssm whose kernels run here; the names of those that were called."""
    called = []

    def noting(function):
        def call(*args, **kwargs):
            called.append(function.__name__)
            return function(*args, **kwargs)

        return call

    for name, offered in {
        "": {},
        ".ops": {},
        ".ops.triton": {},
        ".ops.selective_scan_interface": {"selective_scan_fn": noting(channels)},
        ".ops.triton.ssd_combined": {"mamba_chunk_scan_combined": noting(heads)},
    }.items():
        module = ModuleType(_fused.LIBRARY + name)
        vars(module).update(offered)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(_fused, "find_spec", lambda name: object())
    monkeypatch.setattr(_fused, "_DEVICES", ("cpu", "cuda"))
    return called


def test_the_reason_is_told(monkeypatch):
    assert "cpu" in why_not("cpu", 16, **LOW)
    monkeypatch.setattr(_fused, "find_spec", lambda name: None)
    assert why_not("cuda", 16, **LOW) == "mamba-ssm is not installed"
    monkeypatch.setattr(_fused, "find_spec", lambda name: object())
    assert why_not("cuda", 16, **LOW) is None
    assert "float32" in why_not("cuda", 16, dtype=torch.float64)
    assert "257" in why_not("cuda", 257, **LOW)
    assert "is 48" in why_not("cuda", 16, chunk=48, **LOW)
    assert "is 8" in why_not("cuda", 16, chunk=8, **LOW)
    assert "documents" in why_not("cuda", 16, packed=True, **LOW)
    assert "starts" in why_not("cuda", 16, initial=True, **LOW)


def test_the_run_sheet_says_what_computes_it(layer, site, monkeypatch):
    kind = type(layer("mamba2"))
    monkeypatch.setattr(_fused, "find_spec", lambda name: None)
    assert "not installed" in kind.computed_by(kind.Config(), site())
    monkeypatch.setattr(_fused, "find_spec", lambda name: object())
    assert kind.computed_by(kind.Config(), site()) == "a scan in torch on a CPU, mamba-ssm on a GPU"
    assert "is 8" in kind.computed_by(kind.Config(chunk=8), site())


def drawn(layer, name, **knobs):
    made, generator = layer(name, **knobs), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
    return made


MASKS = {
    "plain": Mask(),
    "padded": Mask(real=torch.arange(9) >= torch.tensor([[0], [4]])),
    "packed": Mask(segments=torch.arange(9).expand(2, 9) // 4),
}


@pytest.mark.parametrize(("name", "kernel"), [("mamba", "channels"), ("mamba2", "heads")])
@pytest.mark.parametrize("mask", MASKS)
@torch.no_grad()
def test_a_layer_gives_the_same_by_them(request, layer, context, name, kernel, mask):
    made, x = drawn(layer, name), torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(1))
    right = made(x, context(9, mask=MASKS[mask]))
    called = request.getfixturevalue("installed")
    found = made(x, context(9, mask=MASKS[mask]))
    assert called == ([] if (name, mask) == ("mamba", "packed") else [kernel])
    assert (found - right).abs().max() <= 1e-6


@pytest.mark.parametrize(("name", "kernel"), [("mamba", []), ("mamba2", ["heads", "heads"])])
@torch.no_grad()
def test_prefill_and_decode_give_the_same(request, layer, context, name, kernel):
    made, x = drawn(layer, name), torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(1))
    right, called = made(x, context(9)), request.getfixturevalue("installed")
    state = made.new_state(2, 9, device=x.device, dtype=x.dtype)
    parts = [made(x[:, :6], context(6, state=state)), made(x[:, 6:], context(3, state=state, mask=Mask(past=6)))]
    assert called == kernel
    assert (torch.cat(parts, 1) - right).abs().max() <= 1e-6
