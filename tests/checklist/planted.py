"""Components with one fault each, by which the probes are tried; and a few without any."""

from dataclasses import replace

import torch
from torch import nn

from builder import registry
from builder.model.positions import Positions

GQA = registry.find("attention", "gqa")
GLU = registry.find("ffn", "glu")
RoPE = registry.find("position", "rope")
Sinusoidal = registry.find("position", "sinusoidal")


class Right(GQA):
    """No fault at all."""


class Window(GQA):
    """No fault: it sees two tokens, and says so."""

    def sees(self, mask):
        return mask.within(2)


class Unmasked(GQA):
    """Ignores the causal mask."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=replace(ctx.mask, causal=False)))


class LeaksByState(GQA):
    """Ignores the causal mask only behind a state, where no pass in training ever is."""

    def forward(self, x, ctx):
        return super().forward(x, ctx if ctx.state is None else replace(ctx, mask=replace(ctx.mask, causal=False)))


class Forgets(GQA):
    """Reads its state, but never what came before this pass."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, state=None, mask=replace(ctx.mask, past=0, real=None)))


class Alone(GQA):
    """Sees itself only, and doesn't say so."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=ctx.mask.within(1)))


class Hides(GQA):
    """Sees two tokens, and doesn't say so."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=ctx.mask.within(2)))


class Wider(GQA):
    """Says that it sees two tokens, and sees three."""

    def sees(self, mask):
        return mask.within(2)

    def look(self, q, k, v, ctx, span=None):
        self.sees = lambda mask: mask.within(3)
        seen = super().look(q, k, v, ctx, span)
        del self.sees
        return seen


class ShortRing(GQA):
    """Keeps one slot less than its window reads."""

    def new_state(self, batch, max_length, **like):
        window, self.window = self.window, 2
        state = super().new_state(batch, max_length, **like)
        self.window = window
        return state

    def sees(self, mask):
        return mask.within(3)


class SeesPads(GQA):
    """Ignores the padding mask."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=replace(ctx.mask, real=None)))


class SeesOtherDocuments(GQA):
    """Ignores the documents of a packed row."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=replace(ctx.mask, segments=None)))


class SeesNothing(GQA):
    """Has no key for any query but the first."""

    def sees(self, mask):
        return mask.within(0)


class LeaksInTraining(GQA):
    """Looks ahead where it is trained, and nowhere else."""

    def forward(self, x, ctx):
        return super().forward(x + 0.1 * x.roll(-1, 1) if self.training else x, ctx)


class FirstRowsMask(GQA):
    """Takes the padding of the first row for that of all."""

    def sees(self, mask):
        return mask if mask.real is None else replace(mask, real=mask.real[:1].expand_as(mask.real))


class PadsTakeRoom(GQA):
    """Has a window in which padding takes places."""

    def sees(self, mask):
        return replace(mask, counted=None).within(4)


class LosesToPads(GQA):
    """Has a window whose state lets tokens go for padding."""

    def sees(self, mask):
        return super().sees(mask).within(4)

    def new_state(self, *given, **like):
        self.window = 4
        state = super().new_state(*given, **like)
        state.widen = lambda gap: None
        return state


class PicksOneRow(GQA):
    """Has a state whose new rows are all the first one."""

    def new_state(self, *given, **like):
        state = super().new_state(*given, **like)
        picked = state.picked
        state.picked = lambda index: picked(torch.zeros_like(index))
        return state


class TakesNothingBack(GQA):
    """Has a state that stays where it is when tokens are taken back."""

    def new_state(self, *given, **like):
        state = super().new_state(*given, **like)
        state.rewind = lambda mark, kept: setattr(state, "used", mark.used - 1)
        return state


class HidesWithTheLeast(GQA):
    """No fault: hides with the least number of its dtype and casts that, as transformers' eager attention does."""

    def look(self, q, k, v, ctx, span=None):
        if not len(q):
            return q.new_zeros(q.shape)
        mask = self.sees(ctx.mask) if span is None else self.sees(ctx.mask).over(span)
        q, k, v = (x.repeat_interleave(self.heads // x.shape[2], 2).transpose(1, 2) for x in (q, k, v))
        scores = q @ k.transpose(2, 3) * self.scale  # (B, H, T, S)
        hidden = ~mask.dense(q.shape[2], k.shape[2], q.device)
        scores = scores + torch.zeros(hidden.shape, dtype=q.dtype).masked_fill(hidden, torch.finfo(q.dtype).min)
        return (self.weigh(scores).to(q.dtype) @ v).transpose(1, 2)

    @staticmethod
    def weigh(scores):
        return torch.softmax(scores, -1, dtype=torch.float32)


class HalfSoftmax(HidesWithTheLeast):
    """Has its softmax in the dtype that comes."""

    @staticmethod
    def weigh(scores):
        return torch.softmax(scores, -1)


class LeastAndPads(HidesWithTheLeast):
    """The same, and ignores the padding mask."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=replace(ctx.mask, real=None)))


class Shifts(GLU):
    """Reads the token before, too."""

    def forward(self, x, ctx):
        return super().forward(x + x.roll(1, 1), ctx)


class StaysInPlace(GQA):
    """Keeps its rows where they are when those of the state change places."""

    def new_state(self, *given, **like):
        state = super().new_state(*given, **like)
        state.reorder = lambda index: None
        return state


class Modest(GQA):
    """Has a state that says it takes half of what it does."""

    def new_state(self, *given, **like):
        state = super().new_state(*given, **like)
        state.bytes = lambda: state.keys.nbytes
        return state


class PlacedRoPE(RoPE):
    """Writes its place into a query, beside turning it."""

    def rotate(self, x, positions):
        return super().rotate(x, positions) + 0.1 * positions.ids[..., None, None].to(x.dtype)


class SilentSines(Sinusoidal):
    """Writes nothing into the tokens."""

    def embed(self, x, positions):
        return x


class HalfAngles(RoPE):
    """Turns by angles that were made in the dtype of the model (C09)."""

    def rotate(self, x, positions):
        angles = positions.ids[..., None, None].to(x.dtype) * torch.ones(x.shape[-1], dtype=x.dtype)
        return x * angles.cos() + x.flip(-1) * angles.sin()


class RoundedAngles(RoPE):
    """Multiplies positions and speeds in the dtype of the model, and is careful from there on."""

    def rotate(self, x, positions):
        pairs = x.shape[-1] // 2
        speeds = self._frequencies(x.shape[-1], positions).to(x.dtype)
        angles = (positions.ids[..., None, None].to(x.dtype) * speeds).to(torch.promote_types(x.dtype, torch.float32))
        a, b = x[..., :pairs], x[..., pairs:]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class LateRoPE(RoPE):
    """One position late in decode."""

    def rotate(self, x, positions):
        return super().rotate(x, Positions(positions.ids + 1) if x.shape[1] == 1 else positions)


class LateSines(Sinusoidal):
    """One position late in decode."""

    def embed(self, x, positions):
        return super().embed(x, Positions(positions.ids + 1) if x.shape[1] == 1 else positions)


class CountsPads(Sinusoidal):
    """Counts the pads in front, which the positions it is given don't."""

    def embed(self, x, positions):
        pads = (positions.ids == 0).sum(-1, keepdim=True) - 1
        return super().embed(x, Positions(positions.ids + pads.clamp_min(0)))


class Liar(GLU):
    """Says that it costs half of what it does."""

    def flops(self, tokens):
        return super().flops(tokens) // 2


class HiddenProduct(GLU):
    """Multiplies what it doesn't state."""

    def forward(self, x, ctx):
        return super().forward(x, ctx) + 0 * (x @ x.transpose(1, 2) @ x)


class NoRole(GLU):
    """Holds a parameter that nobody described."""

    def __init__(self, config, site):
        super().__init__(config, site)
        self.temperature = nn.Parameter(torch.ones(site.d_model))

    def forward(self, x, ctx):
        return super().forward(x, ctx) * self.temperature
