"""First values: every parameter has a role, and an init draws by role, never by a parameter's name.

Roles: `matrix` (a linear map), `residual` (one that writes to the residual stream), `embedding` (a table of vectors),
`scale` (a norm's factor), `offset` (such a factor less 1), `bias`, and `own` (the module draws it itself, in
`reset(generator)`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from builder.component import Component

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
    """Built as `Init(config, residual_writes)`: how many parts add to the stream, 2 L in a Transformer of L layers."""

    def __init__(self, config: Any, residual_writes: int):
        self.config, self.residual_writes = config, residual_writes

    def draw(self, role: str, parameter: Tensor, generator: torch.Generator | None) -> None:
        """Fills one parameter of that role in place."""
        raise NotImplementedError

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
