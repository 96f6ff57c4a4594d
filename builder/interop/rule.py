"""The table of tensors: which of theirs is which of ours, for every layer, weight and bias."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import Size, Tensor

from .form import Form, Rows

_ROWS = Rows()
_ENDS = ("", ".weight", ".bias")


@dataclass(frozen=True)
class Rule:
    """The module or parameter `theirs` holds the modules or parameters `ours`, in the given form.

    `{n}` in both stands for the number of a layer. What is below a module follows from our model: where our module has
    a bias, theirs has one; a layer of ours without the module has none. So one table serves every variant of a family.
    """

    theirs: str
    ours: str | tuple[str, ...]
    form: Form = _ROWS


@dataclass(frozen=True)
class Match:
    """One tensor of theirs and the tensors of ours in it, by full name."""

    theirs: str
    ours: tuple[str, ...]
    form: Form

    def join(self, state: Mapping[str, Tensor]) -> Tensor:
        """Theirs, made of our state dict."""
        return self.form.to_theirs([state[name] for name in self.ours])

    def split(self, theirs: Tensor, shapes: Mapping[str, Size]) -> dict[str, Tensor]:
        """Ours, by name."""
        parts = self.form.to_ours(theirs, [shapes[name] for name in self.ours])
        return dict(zip(self.ours, parts, strict=True))


def matches(rules: Iterable[Rule], names: Iterable[str], n_layers: int, family: str) -> list[Match]:
    """The rules written out for a model whose state dict holds `names`.

    Raises ValueError when the table leaves one of them out or claims one twice: a fault of the family's file.
    """
    names = list(names)
    found = [match for rule in rules for match in _expanded(rule, set(names), n_layers)]
    claimed = [name for match in found for name in match.ours]
    left = sorted(set(names) - set(claimed))
    twice = sorted({name for name in claimed if claimed.count(name) > 1}) if len(claimed) > len(set(claimed)) else []
    if left or twice:
        raise ValueError(f"family {family}: no rule for {left or 'nothing'}, two for {twice or 'nothing'}")
    return found


def _expanded(rule: Rule, names: set[str], n_layers: int) -> Iterator[Match]:
    ours = (rule.ours,) if isinstance(rule.ours, str) else rule.ours
    for layer in range(n_layers) if "{n}" in rule.theirs else (0,):
        for end in _ENDS:
            wanted = tuple(f"{name}{end}".replace("{n}", str(layer)) for name in ours)
            if all(name in names for name in wanted):
                yield Match(f"{rule.theirs}{end}".replace("{n}", str(layer)), wanted, rule.form)
