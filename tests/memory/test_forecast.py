"""What is forecast of a training step against what torch's memory profiler counts while the bench takes two."""

from __future__ import annotations

import pytest
import torch

from builder import compose, load
from builder.bench.contender import Ours
from builder.bench.memory import allocated, held
from builder.bench.settings import BenchSpec, Workload, workload
from builder.bench.work import TrainingStep
from builder.memory import PARTS, forecast, told
from builder.spec import RunSpec

SIZES = ["trainer=cpu", "model.d_model=64", "model.n_layers=2", "model.train_length=64", "model.deploy_length=64"]
SIZES += ["model.vocab_size=200", "model.attention.n_heads=4", "batch.sequences=16"]
EXPERTS = ["model/ffn=moe", "model.ffn.n_experts=4", "model.ffn.top_k=2", "model.ffn.expert.d_ff=64"]
MLA = ["model/attention=mla", "model.attention.kv_rank=32", "model.attention.d_head=16", "model.attention.d_rope=8"]
GPT2 = ["model/position=learned", "model/norm=layernorm", "model/attention=mha", "model.attention.bias=true"]
GPT2 += ["model/ffn=mlp", "model.ffn.activation=gelu_tanh"]
LOCAL = ["model/attention@model.local=gqa", "model.local.n_heads=4", "model.local.window=16"]
MIXED = ["trainer.precision=bf16-mixed", "batch.sequences=2", "model.train_length=32", "model.deploy_length=32"]
WIDE = [
    "model.d_model=256",
    "model.ffn.d_ff=688",
    "batch.sequences=1",
    "model.train_length=8",
]  # the update is the peak
FIRST_DENSE = ["model/ffn@model.moe=moe", "model.moe.n_experts=4", "model.moe.expert.d_ff=64", "model.n_layers=11"]
FIRST_DENSE += ["model.pattern=['3 * attention+ffn','8 * attention+moe']"]
CASES = {
    "gqa": ["model.attention.n_kv_heads=2"],
    "untied": ["model.tie_embeddings=false"],
    "gpt2": GPT2,
    "window": ["model.attention.window=16"],
    "softcap": ["model.attention.softcap=30"],
    "sinks": ["model.attention.sinks=true"],
    "alibi": ["model/position=alibi"],
    "t5": ["model/position=t5"],
    "mla": MLA,
    "dropout": ["model.block.dropout=0.1", "model.attention.dropout=0.1"],
    "gru": ["model/recurrent=gru", "model.pattern=[recurrent+ffn]", "model.train_length=24"],
    "lstm": ["model/recurrent=lstm", "model.pattern=[recurrent+ffn]"],
    "lstm, wide": ["model/recurrent=lstm", "model.pattern=[recurrent]", "model.recurrent.d_hidden=192"],
    "experts": EXPERTS,
    "capacity": [*EXPERTS, "model.ffn.capacity_factor=1.25"],
    "experts apart": [*EXPERTS, "model.ffn.expert.name=tests.memory.apart:Scaled"],
    "large vocabulary": ["model.vocab_size=8000"],
    "large vocabulary, fused": ["model.vocab_size=8000", "fused_loss=true"],
    "micro-batches": ["batch.micro_batch=4"],
    "uneven micro-batches": ["batch.micro_batch=6"],
    "experts in micro-batches": [*EXPERTS, "batch.micro_batch=4"],
    "recomputed": ["activation_checkpointing=true", "model.n_layers=4"],
    "recomputed ffn": ["activation_checkpointing=[ffn]", "model.n_layers=4"],
    "bf16-mixed": MIXED,
    "bf16-mixed in micro-batches": [*MIXED, "batch.micro_batch=1"],
    "muon": ["optimizer=muon", *WIDE],
    "lion": ["optimizer=lion", *WIDE],
    "adamw": WIDE,
    "deep": ["model.n_layers=9"],
    "deep and narrow": ["model.n_layers=9", "batch.sequences=1"],
    "hybrid": [*LOCAL, "model.n_layers=15", "model.pattern=[local+ffn,local+ffn,attention+ffn]"],
    "first dense": FIRST_DENSE,
    "deep, lion": ["model.n_layers=20", "optimizer=lion", *WIDE],
}


def spec_of(*overrides: str) -> RunSpec:
    return load(compose([*SIZES, *overrides]))


def work_of(spec: RunSpec) -> Workload:
    mixed = "mixed" in spec.trainer["precision"]
    return workload(spec, BenchSpec(device="cpu", dtype="bfloat16" if mixed else "float32"))


def measured(spec: RunSpec) -> int:
    work = work_of(spec)
    ours = Ours(spec, work.place)
    training = TrainingStep(ours, spec, work)
    return held(ours.module) + allocated(training.twice)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("overrides", CASES.values(), ids=CASES)
def test_it_is_what_the_profiler_counts(overrides: list[str]):
    """Within a fiftieth, where a tenth is promised: in bfloat16 the kernels of some processors want a little room of
    their own. And no part of it is there for show."""
    spec = spec_of(*overrides)
    expected, counted = forecast(spec).peak, measured(spec)
    assert expected.total == pytest.approx(counted, rel=0.02), (told(expected.total), told(counted), expected)
    for part in PARTS:
        size = getattr(expected, part)
        if size > 0.1 * counted:  # the negative control: without it the forecast is wrong
            assert expected.total - size != pytest.approx(counted, rel=0.1)
    assert expected.activations + expected.logits + expected.gradients > 0.1 * counted
