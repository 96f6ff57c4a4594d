"""A component that looks at its numbers on the host while it computes."""

from torch import Tensor

from builder.components.ffn.glu import GLU


class Curious(GLU):
    """GLU(x), and zero where its sum is."""

    class Config(GLU.Config):
        """The knobs of a GLU."""

        name: str = "tests.checklist.curious:Curious"

    def forward(self, x: Tensor, ctx) -> Tensor:
        y = super().forward(x, ctx)
        return y if not y.numel() or y.detach().sum().item() else y * 0
