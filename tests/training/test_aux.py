"""What layers report beside their output: losses join the training loss, statistics are logged."""

import torch

from builder.components.ffn.glu import GLU
from tests.tiny_run import rows, same, trained

FORWARD = GLU.forward


def report(monkeypatch, **losses):
    """Lets every ffn report these losses, and how often it ran as a statistic."""

    def reporting(self, x, ctx):
        ctx.aux.losses.update({name: weight * x.square().mean() for name, weight in losses.items()})
        ctx.aux.stats["ffn/size"] = x.detach().abs().mean()
        return FORWARD(self, x, ctx)

    monkeypatch.setattr(GLU, "forward", reporting)


def test_losses_act_and_statistics_are_logged(tmp_path, monkeypatch):
    plain = trained(tmp_path, "output.name=plain")
    report(monkeypatch, balance=0.0)
    without = trained(tmp_path, "output.name=without")
    report(monkeypatch, balance=10.0)
    pulled = trained(tmp_path, "output.name=with")
    weights = [torch.load(run.checkpoint("last"), weights_only=True)["state_dict"] for run in (plain, without, pulled)]
    assert same(weights[0], weights[1]), "a loss of weight 0 changes nothing"
    assert not same(weights[0], weights[2]), "one of weight 10 does"
    assert all("ffn/0/size" in row for row in rows(without.path) if "train/loss" in row), "under the layer's number"
    assert not any("ffn/0/size" in row for row in rows(plain.path))
