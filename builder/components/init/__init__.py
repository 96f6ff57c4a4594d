"""First values: every parameter has a role, and an init draws by role, never by a parameter's name.

Roles: `matrix` (a linear map), `residual` (one that writes to the residual stream), `readout` (one to so many numbers
as there are, however wide the model: the head's own, a router's), `embedding` (a table of vectors), `scale` (a norm's
factor), `offset` (such a factor less 1), `bias`, and `own` (the module draws it itself, in `reset(generator)`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from builder.component import Component, Site
from builder.finding import Finding

if TYPE_CHECKING:
    from builder.spec import ModelSpec

# What torch's own modules use their parameters for, so that a component may be made of them directly.
_TORCH_ROLES: dict[type[nn.Module], dict[str, str]] = {
    nn.Linear: {"weight": "matrix", "bias": "bias"},
    nn.Embedding: {"weight": "embedding"},
    nn.LayerNorm: {"weight": "scale", "bias": "bias"},
    nn.RMSNorm: {"weight": "scale"},
}


def roles(model: nn.Module) -> Iterator[tuple[str, nn.Module, Tensor, str | None]]:
    """(name, owner, parameter, role) of every parameter, a tied one once; role None: nobody stated it."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        stated = getattr(module, "roles", None) or _TORCH_ROLES.get(type(module), {})
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{path}.{name}" if path else name, module, parameter, stated.get(name)


class Init(Component):
    """Built as `Init(config, site)`: the width of the model, and how many parts add to the stream, `site.writes`."""

    def __init__(self, config: Any, site: Site):
        self.config, self.site = config, site

    def draw(self, role: str, parameter: Tensor, generator: torch.Generator | None) -> None:
        """Fills one parameter of that role in place."""
        raise NotImplementedError

    def rate(self, role: str, shape: Sequence[int]) -> float:
        """The factor of the learning rate of a parameter, shape (..., out, in): for a step that moves every number by
        about the rate, as Adam's does. What it is for a step of another kind, the optimizer knows."""
        return 1.0

    @classmethod
    def multipliers(cls, config: Any, model: ModelSpec) -> Mapping[str, float]:
        """The factors in the pass that belong to this init, by their key in `model`, such as head.scale: `load` writes
        them where the config leaves them open."""
        return {}

    @classmethod
    def judge(cls, config: Any, model: ModelSpec) -> Iterable[Finding]:
        """What the checklist should say of this init in this model; paths are whole."""
        return ()

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator | None = None) -> None:
        """Draws every parameter of the model; raises ValueError at one without a role."""
        own: dict[nn.Module, None] = {}
        for name, module, parameter, role in roles(model):
            if role is None:
                raise ValueError(f"{name} has no role: its module {type(module).__name__} must list it in `roles`")
            if role == "own":
                own[module] = None
            else:
                self.draw(role, parameter, generator)
        for module in own:
            module.reset(generator)  # type: ignore[operator]


def completed(model: ModelSpec) -> ModelSpec:
    """`model` with the multipliers of its init where it leaves them open."""
    wanted = _wanted(model)
    return _with(model, {key: factor for key, factor in wanted.items() if _at(model, key) is None})


def alike(wide: ModelSpec, model: ModelSpec) -> ModelSpec:
    """`wide`, a copy of `model` at another width, with multipliers as far from what the init wants as in `model`."""
    here, there = _wanted(model), _wanted(wide)
    factors = {}
    for key in {**here, **there}:
        now = _at(model, key)
        forgotten = now is None and key in here  # there it is forgotten too
        if here.get(key) != there.get(key) and not forgotten:
            factors[key] = (now or 1.0) / here.get(key, 1.0) * there.get(key, 1.0)
    return _with(wide, factors)


def _wanted(model: ModelSpec) -> Mapping[str, float]:
    kind: Any = model.init.component
    return kind.multipliers(model.init, model)


def _at(model: ModelSpec, key: str) -> float | None:
    return attrgetter(key)(model)


def _with(model: ModelSpec, factors: Mapping[str, float]) -> ModelSpec:
    for key, factor in factors.items():
        model = _replaced(model, key, factor)
    return model


def _replaced(node: Any, path: str, factor: float) -> Any:
    """A copy of a section with the factor at a dotted path."""
    key, _, rest = path.partition(".")
    return node.model_copy(update={key: _replaced(getattr(node, key), rest, factor) if rest else factor})


def chosen(model: ModelSpec) -> Init:
    """The init of a model, made for its width and depth."""
    kind: Any = model.init.component
    return kind(model.init, model.site(0))
