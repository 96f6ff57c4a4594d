"""What is measured and how long: the `bench` section of a config, and the workload that follows from it and a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt

from builder.errors import ConfigError, Problem, shown
from builder.load import read
from builder.memory import largest_micro_batch
from builder.section import Section
from builder.spec import RunSpec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What the `dtype` knob stands for."""


class BenchSpec(Section):
    """The knobs of a measurement.

    batch_sizes     rows that are prefilled and decoded at once, one measurement each
    prompt_length   tokens that are prefilled; None: half the deploy length
    new_tokens      tokens that are written, 2 or more: a token is timed from one to another; None: 32, or what the
                    deploy length leaves
    rounds          measurements of each kind, and of each contender; 6 or more can tell two apart
    warmup          rounds before those, which don't count
    seconds         what one measurement repeats for, at least once; the number of repeats is the same in every round
    device          auto: the GPU where torch finds one
    dtype           bfloat16: training in mixed precision, generation with weights in bfloat16
    """

    batch_sizes: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)] = (1, 4, 16)
    prompt_length: PositiveInt | None = None
    new_tokens: Annotated[int, Field(ge=2)] | None = None
    rounds: PositiveInt = 7
    warmup: PositiveInt = 1
    seconds: PositiveFloat = 0.3
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "bfloat16"] = "float32"


class _Sections(Section):
    """What a bench config says beside its run."""

    bench: BenchSpec = BenchSpec()
    peers: bool = False


@dataclass(frozen=True)
class Workload:
    """What a measurement computes: one training batch, so many rows at once, and for each of `batch_sizes` a prompt
    and its continuation."""

    sequences: int
    micro_batch: int
    length: int
    batch_sizes: tuple[int, ...]
    prompt_length: int
    new_tokens: int
    rounds: int
    warmup: int
    seconds: float
    device: str
    dtype: str
    threads: int

    @property
    def place(self) -> torch.device:
        """The device, as torch has it."""
        return torch.device(self.device)

    @property
    def precision(self) -> str:
        """What Lightning calls the arithmetic of training."""
        return "32-true" if self.torch_dtype == torch.float32 else "bf16-mixed"

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype, as torch has it."""
        return DTYPES[self.dtype]


def read_sections(config: Mapping[str, Any]) -> tuple[BenchSpec, bool]:
    """(the `bench` section, `peers`) of a config that holds nothing else; raises ConfigError with every problem."""
    sections = read(_Sections, config)
    return sections.bench, sections.peers


def workload(spec: RunSpec, bench: BenchSpec) -> Workload:
    """What `bench` asks of the model of `spec`, on this machine; raises ConfigError for what can't be served."""
    limit = spec.model.deploy_length
    prompt = bench.prompt_length or max(limit // 2, 1)
    new = bench.new_tokens or max(min(32, limit - prompt), 2)
    problems = []
    if prompt + new > limit:
        path = "bench.new_tokens" if bench.new_tokens else "bench.prompt_length"
        rule = f"prompt and new tokens within model.deploy_length={limit}"
        fix = f"less, or model.deploy_length={prompt + new}"
        problems.append(Problem(path, f"{prompt} prompt tokens and {new} new ones", rule, fix))
    gpu = torch.cuda.is_available()
    device = ("cuda" if gpu else "cpu") if bench.device == "auto" else bench.device
    if device == "cuda" and not gpu:
        problems.append(Problem("bench.device", shown(bench.device), "a GPU that torch can use", "bench.device=cpu"))
    if problems:
        raise ConfigError(problems)
    return Workload(
        spec.rows, _at_once(spec), spec.model.train_length, bench.batch_sizes, prompt, new, bench.rounds, bench.warmup,
        bench.seconds, device, bench.dtype, torch.get_num_threads(),
    )  # fmt: skip


def _at_once(spec: RunSpec) -> int:
    asked = spec.batch.micro_batch
    return min(spec.rows, largest_micro_batch(spec) if asked == "auto" else asked or spec.rows)
