"""Objectives, optimizers and parts with one fault each, by which the probes that train are tried."""

from dataclasses import replace

import torch
from torch import nn

from builder import registry
from builder.training.objective import shifted

GLU, RMSNorm = registry.find("ffn", "glu"), registry.find("norm", "rmsnorm")
NextToken, Masked = registry.find("objective", "next_token"), registry.find("objective", "masked")
AdamW = registry.find("optimizer", "adamw")


class CountsEverything(NextToken):
    """Forgets its own mask."""

    def nats(self, logits, targets, counted, smooth=False):
        return super().nats(logits, targets, None, smooth)


class CountsHalf(NextToken):
    """Leaves targets out that its mask counts."""

    def nats(self, logits, targets, counted, smooth=False):
        even = torch.arange(len(targets)) % 2 == 0
        return super().nats(logits, targets, even if counted is None else even & counted, smooth)


class Copies(NextToken):
    """Asks for the token that is read (what is left of the shift when it is done twice the wrong way)."""

    def task(self, batch):
        task = super().task(batch)
        return replace(task, targets=task.inputs)


class TargetsPadding(NextToken):
    """Counts padding."""

    def task(self, batch):
        return replace(super().task(batch), loss_mask=None)


class TargetsPrompts(NextToken):
    """Doesn't ask what the data counts."""

    def task(self, batch):
        return shifted({name: value for name, value in batch.items() if name != "counted"})


class CrossesDocuments(NextToken):
    """Predicts the first token of a document from the last of another."""

    def task(self, batch):
        return shifted(batch, across_documents=True)


class HidesNothing(Masked):
    """Chooses tokens, and leaves them all where they are."""

    def collate(self, batch, draws, tokenizer):
        made = super().collate(batch, draws, tokenizer)
        return made | {"tokens": made["targets"]}


class Falls(NextToken):
    """Has the sign of the loss wrong."""

    def nats(self, logits, targets, counted, smooth=False):
        return -super().nats(logits, targets, counted, smooth)


class Means(NextToken):
    """Divides by the number of targets, which the step does again."""

    def loss(self, logits, task, smooth=False):
        total, count = super().loss(logits, task, smooth)
        return total / count, count


class CountsRows(NextToken):
    """Says that every token of a row is in the mean."""

    def loss(self, logits, task, smooth=False):
        return super().loss(logits, task, smooth)[0], torch.tensor(float(task.targets.numel()))


class AsksTheSame(NextToken):
    """Has one target, whatever is read."""

    def task(self, batch):
        task = super().task(batch)
        return replace(task, targets=torch.ones_like(task.targets))


class Unreached(GLU):
    """Holds a matrix that nothing multiplies."""

    roles = {"spare": "matrix"}

    def __init__(self, config, site):
        super().__init__(config, site)
        self.spare = nn.Parameter(torch.empty(site.d_model, 4))


class NoNumber(GLU):
    """Its gradient is 0 times infinity."""

    def forward(self, x, ctx):
        return super().forward(x, ctx) + 0 * (x - x).sqrt()


class DrawsAnew(GLU):
    """Draws from a generator that no seed sets."""

    def forward(self, x, ctx):
        generator = torch.Generator()
        generator.seed()
        return super().forward(x, ctx) * torch.rand(x.shape, generator=generator, dtype=x.dtype)


class OwnNoise(GLU):
    """Draws from a generator of its own, which goes on from step to step and no run can set."""

    def __init__(self, config, site):
        super().__init__(config, site)
        self.steps = 0

    def forward(self, x, ctx):
        self.steps += 1
        drawn = torch.rand(x.shape, generator=torch.Generator().manual_seed(self.steps), dtype=x.dtype)
        return super().forward(x, ctx) * drawn


class HalfStatistics(RMSNorm):
    """Sums squares in the dtype that comes."""

    def forward(self, x):
        return x * x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt() * self.weight


class HalfSums(RMSNorm):
    """Sums squares by hand in the dtype that comes, and is careful from there on."""

    def forward(self, x):
        wide = torch.promote_types(x.dtype, torch.float32)
        mean = (x * x).sum(-1, keepdim=True).to(wide) / x.shape[-1]
        return x * (mean + 1e-6).rsqrt().to(x.dtype) * self.weight


class HalfRoots(RMSNorm):
    """Takes a root in the dtype that comes, in place."""

    def forward(self, x):
        wide = torch.promote_types(x.dtype, torch.float32)
        return x / x.to(wide).pow(2).mean(-1, keepdim=True).to(x.dtype).add(1e-6).sqrt_() * self.weight


class RoundsLogits(NextToken):
    """Rounds logits to half precision, and computes the loss in float32."""

    def nats(self, logits, targets, counted, smooth=False):
        return super().nats(logits.to(torch.bfloat16), targets, counted, smooth)


class Ascends(AdamW):
    """Steps the wrong way."""

    @staticmethod
    def build(config, model):
        optimizer = AdamW.build(config, model)
        for group in optimizer.param_groups:
            group["maximize"] = True
        return optimizer


class MixesRows(RMSNorm):
    """Subtracts the mean over the rows of a batch."""

    def forward(self, x):
        return super().forward(x - x.mean(0, keepdim=True))
