"""No position scheme: order is known only as far as the mask tells it."""

from __future__ import annotations

from collections.abc import Iterable

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.position import Position, reach
from builder.finding import Finding, Status
from builder.registry import register


@register("position", "none")
class NoPosition(Position):
    """All hooks are no-ops; a causal mask still breaks the symmetry of positions (Kazemnejad et al. 2023)."""

    class Config(BaseConfig):
        """No knobs."""

        name: str = "none"

    @classmethod
    def check(cls, config: NoPosition.Config, site: Site) -> Iterable[Finding]:
        if site.causal and site.prefix:
            rule = "a prompt is seen in both directions, so that one order of its tokens can't be told from another"
            yield Finding(
                Status.WARN, 3, "name", "none, with a prefix", rule, "model/position=rope, or model.prefix=false"
            )
        elif site.causal:
            rule = "order comes from the causal mask alone; nothing to run out of"
            yield Finding(Status.PASS, 3, "name", f"none, {reach(site)}", rule)
        else:
            rule = (
                "without a mask or positions, attention can't tell one order of the tokens from another (chapter 3.6)"
            )
            yield Finding(Status.FAIL, 3, "name", "none, bidirectional", rule, "name=rope, or another scheme")
