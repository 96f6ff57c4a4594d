"""One attention of any size by itself, in float64, without positions: what the worked examples compute."""

from types import SimpleNamespace

import pytest
import torch

from builder import registry
from builder.component import Site
from builder.model.context import Aux, Context
from builder.model.mask import Mask
from builder.model.placement import place
from builder.model.state import State

CPU = torch.device("cpu")


def config(room, name, **knobs):
    return registry.find(room, name).Config.model_validate({"name": name} | knobs)


@pytest.fixture
def attention():
    """attention(d_model, **knobs): a GQA whose weights are drawn from N(0, 1 / d_model)."""

    def make(d_model, **knobs):
        slots = {"norm": config("norm", "rmsnorm"), "position": config("position", "none")}
        site = Site(d_model, 0, 1, 2, causal=True, train_length=16, deploy_length=16, **slots)
        chosen = config("attention", "gqa", **knobs)
        mixer = chosen.component(chosen, site).double().eval()
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter.normal_(0.0, d_model**-0.5)
        return mixer

    return make


@pytest.fixture
def passes():
    """passes(mixer, length): forward(x, **mask), the same over one state with remember=True, and the shapes told."""

    def make(mixer, length=16):
        scheme = config("position", "none").component(config("position", "none"), None)
        layer = mixer.new_state(1, length, device=CPU, dtype=torch.float64)
        state, aux = State([layer], 1, length, CPU), Aux(shapes=[])

        @torch.no_grad()
        def forward(x, remember=False, **mask):
            kept = state if remember else None
            given = {
                "real": None,
                "positions": None,
                "segments": None,
                "prefix": None,
                "schemes": {"model": scheme},
                "aux": aux,
            }
            ctx = place(x[..., 0].long(), state=kept, causal=True, **given)
            ctx = Context(ctx.positions, ctx.key_positions, Mask(**mask) if mask else ctx.mask, scheme, aux)
            if remember:
                ctx = Context(ctx.positions, ctx.key_positions, ctx.mask, scheme, aux, layer)
            out = mixer(x, ctx)
            state.length += x.shape[1] if remember else 0
            return out

        def told(tensor):
            return next(line.sizes for line in reversed(aux.shapes) if line.tensor == tensor)

        return SimpleNamespace(forward=forward, told=told, layer=layer)

    return make
