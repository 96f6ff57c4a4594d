"""A feed-forward part whose width grows from layer to layer (Mehta et al. 2024, "OpenELM")."""

from dataclasses import replace

from builder.components.ffn.mlp import MLP


class Growing(MLP):
    """An MLP of width d_ff (1 + layer / n_layers)."""

    class Config(MLP.Config):
        """The knobs of an MLP."""

        name: str = "tests.ledger.growing:Growing"

    def __init__(self, config, site):
        width = config.d_ff + config.d_ff * site.layer // site.n_layers
        super().__init__(config.model_copy(update={"d_ff": width}), replace(site))
