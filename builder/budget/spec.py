"""What a budget may say: which cost meets which target, and by which key of the model."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveInt, field_validator

from builder.component import refuse
from builder.section import Section

if TYPE_CHECKING:
    from builder.ledger import Ledger

COSTS = {
    "params": ("params", "parameters"),
    "active_params": ("active_params", "active parameters"),
    "flops": ("flops_per_token", "forward FLOPs per token"),
    "state_bytes": ("state_bytes", "state bytes"),
}
"""Cost -> what the ledger calls it, and what people do."""

UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}
_AMOUNT = re.compile(r"(?P<number>\d[\d_]*(\.\d+)?(e\+?\d+)?) ?(?P<unit>[a-z]*)", re.IGNORECASE)


class BudgetSpec(Section):
    """One cost of the model that is to meet a target, by the choice of a whole number in the model, or of several.

    name        params, active_params, flops (of a forward pass, per token, at train_length), or state_bytes (of one
                sequence of deploy_length tokens, in float32)
    target      a number, or text such as 10M, 1.5B or 64MiB
    solve       the path of the key that is chosen, such as model.ffn.d_ff: one whose growth costs more. Or a list, from
                coarse to fine: each comes as near as it can, and the last one makes up for what is left
    solved      what was chosen, for each key of `solve`; a config that has it is left as it is
    tolerance   how far from the target the cost may be, as a share of it
    """

    name: Literal["params", "active_params", "flops", "state_bytes"]
    target: PositiveInt
    solve: str | Annotated[tuple[str, ...], Field(strict=False)]
    solved: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(strict=False)] | None = None
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.01

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are chosen, from coarse to fine."""
        return (self.solve,) if isinstance(self.solve, str) else self.solve

    @property
    def chosen(self) -> str:
        """What was chosen, as it would be typed."""
        numbers = self.solved if isinstance(self.solved, tuple) else (self.solved,)
        return " ".join(f"{key}={number}" for key, number in zip(self.keys, numbers, strict=False))

    @property
    def unit(self) -> str:
        """What is counted, in words."""
        return COSTS[self.name][1]

    def cost(self, costs: Ledger) -> int:
        """What this budget counts of a model."""
        return getattr(costs, COSTS[self.name][0])

    def off(self, cost: int) -> float:
        """How far a cost is from the target, as a share of it; negative below."""
        return cost / self.target - 1

    def met(self, cost: int) -> bool:
        """Whether a cost is near enough."""
        return abs(cost - self.target) <= self.tolerance * self.target

    @field_validator("target", mode="before", json_schema_input_type=PositiveInt | str)
    @classmethod
    def _text_is_an_amount(cls, value: Any) -> Any:
        amount = _amount(value)
        if amount is None:
            refuse("", value, "a whole number from 1 on, or text such as 500k, 10M, 1.5B, 2e9 or 64MiB", "target=10M")
        return amount

    @field_validator("solve", mode="before")
    @classmethod
    def _keys_are_of_the_model(cls, value: Any) -> Any:
        keys = value if isinstance(value, list | tuple) else [value]
        paths = [key for key in keys if isinstance(key, str) and re.fullmatch(r"model(\.\w+)+", key)]
        if not keys or len(set(paths)) < len(keys):
            rule = "the path of a whole number in the model, or a list of different ones"
            refuse("", value, rule, "solve=model.ffn.d_ff, or solve=[model.n_layers,model.ffn.d_ff]")
        return value


def _amount(value: Any) -> int | None:
    """A target as a number; None where it is none."""
    match = _AMOUNT.fullmatch(str(value).strip())
    factor = match and UNITS.get(match["unit"].lower())
    if not match or not factor or isinstance(value, bool):
        return None
    amount = Decimal(match["number"].replace("_", "")) * factor
    return int(amount) if amount == int(amount) and amount >= 1 else None
