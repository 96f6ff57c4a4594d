"""The build sheet of a run: its layers, what they cost, the shape ledger, and below them the checklist, as Markdown."""

from __future__ import annotations

from builder.checklist import Report
from builder.checklist.markdown import markdown
from builder.ledger import EXPERT_RANKS, Ledger
from builder.markdown import plain, table
from builder.spec import RunSpec


def sheet(spec: RunSpec, ledger: Ledger, report: Report) -> str:
    """Layers, parameters, FLOPs, state bytes, bytes sent, kernels and shapes of the model that a run trains, and what
    the checklist says of it."""
    model = spec.model
    sizes = {
        "d_model": model.d_model,
        "layers": model.n_layers,
        "vocabulary": model.vocab_size,
        "train_length": model.train_length,
        "deploy_length": model.deploy_length,
    }
    costs = {
        **ledger.components,
        "all parameters": ledger.params,
        "active per token": ledger.active_params,
        "forward FLOPs per token": ledger.flops_per_token,
        "state bytes per token": ledger.state_bytes_per_token,
        **{f"constant, a layer of {slot}": size for slot, size in ledger.constant_state_bytes.items()},
    }
    if ledger.dispatched_per_token:  # there and back in a forward pass, in float32
        costs |= {f"bytes sent per token, {ranks} ranks": ledger.communication(ranks) for ranks in EXPERT_RANKS}
    layers = [
        (f"{name} {layer.index}".strip(), " + ".join(f"{p.slot} ({p.config.name})" for p in layer.parts))
        for name, tower in model.towers.items()
        for layer in tower.layers
    ]
    readers = {
        slot: config for tower in model.towers.values() for slot, config in (tower.mixers | tower.crossed).items()
    }
    kernels = {slot: config.component.computed_by(config, model.site(0)) for slot, config in readers.items()}
    shapes = [(line.where, line.tensor, line.axes, str(list(line.sizes))) for line in ledger.shapes]
    return "\n\n".join(
        (
            f"# Build sheet\n\nConfig {spec.hash}.",
            _table(("size", ""), [(name, f"{value:,}") for name, value in sizes.items() if value is not None]),
            _table(("cost", ""), [(name, f"{value:,}") for name, value in costs.items()]),
            _table(("layer", f"parts, wired by {model.block.name}"), layers),
            _table(("slot", "computed by, in training"), [(slot, by) for slot, by in kernels.items() if by]),
            _table(("where", "tensor", "axes", "sizes"), shapes),
            markdown(report),
        )
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return table(head, (tuple(map(plain, row)) for row in rows))
