"""The room of budgets: one size of a model is chosen so that what the model costs meets a target.

    budget=params budget.target=10M budget.solve=model.ffn.d_ff

`meet` runs before a config is judged, so that everything behind it sees a plain number where the budget stood.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from .spec import BudgetSpec

__all__ = ["BudgetSpec", "meet"]


def meet(config: dict[str, Any]) -> dict[str, Any]:
    """`config` with the keys that its budget solves set, and the numbers in `budget.solved`; the argument stays as is.

    A config without a budget is returned as it is, and so is one that was solved before, or whose budget is misspelt:
    `load` tells that with its other problems. Raises ConfigError when no whole number meets the target, with the
    nearest that can be reached and what to solve instead.
    """
    if config.get("budget") is None:
        return config
    try:
        budget = BudgetSpec.model_validate(config["budget"])
    except ValidationError:
        return config
    if budget.solved is not None:
        return config
    from .solve import solved  # imports load, which imports this room

    return solved(config, budget)
