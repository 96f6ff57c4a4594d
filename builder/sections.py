"""The sections of a run beside its model: what a step reads, what guards it, what is averaged, sampled and written."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator, model_validator

from .component import refuse
from .section import Section

Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
"""What begins random numbers: NumPy's take no larger one."""

SEQUENCES = 32
"""What a step reads where a config doesn't say."""


class BatchSpec(Section):
    """What one optimizer step consumes, over all ranks and micro-batches: sequences of model.train_length tokens.

    sequences       how many; or in `tokens`, a multiple of model.train_length
    micro_batch     how many of them a rank computes at once, which its memory decides and no result depends on; None:
                    all of its own; auto: as many as the memory forecast lets
    """

    sequences: PositiveInt | None = None
    tokens: PositiveInt | None = None
    micro_batch: PositiveInt | Literal["auto"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _some_number_is_given(cls, given: Any) -> Any:
        said = isinstance(given, dict) and (given.get("sequences") is not None or given.get("tokens") is not None)
        return given if said or not isinstance(given, dict) else given | {"sequences": SEQUENCES}

    @model_validator(mode="after")
    def _the_size_is_given_once(self) -> Self:
        if self.sequences is not None and self.tokens is not None:
            rule = f"the size of a step is given once, and batch.sequences={self.sequences} gives it too"
            refuse("tokens", self.tokens, rule, f"batch.sequences=null batch.tokens={self.tokens}")
        return self


class GuardSpec(Section):
    """When a step is taken for a spike: its gradient's norm or its loss is no number, or far above what is usual.

    grad_norm, loss     how many times the median of the last `window` accepted steps either may be, once there are 16
                        of them, or `window`; None: any number
    action              skip: no weight moves in that step, and the run goes on, but ends when a whole window of steps
                        was refused in a row; stop: the run ends before it
    """

    grad_norm: Annotated[float, Field(gt=1)] | None = 10.0
    loss: Annotated[float, Field(gt=1)] | None = None
    window: PositiveInt = 64
    action: Literal["skip", "stop"] = "skip"


class EmaSpec(Section):
    """The average of the weights over steps, which is validated, sampled and deployed in their place.

    average <- decay average + (1 - decay) weights after each step, from the weights of the first on.
    """

    decay: Annotated[float, Field(gt=0, lt=1)] = 0.999


class Message(Section):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class SampleSpec(Section):
    """How text is generated: to the deploy length if `max_new_tokens` is None, greedily at `temperature` 0, without the
    filters that are None, from a new seed if `seed` is None; by beam search with more than one of `num_beams`.

    messages   what was said before the prompt, which is a message of the user itself: of a run that was trained on
               conversations, where both are written as its chat template does
    """

    prompt: str
    messages: Annotated[tuple[Message, ...], Field(strict=False)] = ()
    max_new_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0)] = 0.8
    top_k: PositiveInt | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: PositiveFloat | None = None
    num_beams: PositiveInt = 1
    length_penalty: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    seed: Seed | None = None

    @property
    def before(self) -> list[dict[str, str]]:
        """`messages` as chat templates read them."""
        return [{"role": message.role, "content": message.content} for message in self.messages]


class OutputSpec(Section):
    """Where a run is written: <root>/<experiment>/<name>; `name` None: the time of its start."""

    root: str
    experiment: str
    name: str | None = None
    tags: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @field_validator("experiment", "name")
    @classmethod
    def _stays_below_its_root(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and (not value or value.startswith("/") or ".." in value.split("/")):
            name = next((part for part in reversed(value.split("/")) if part.strip(".")), "main")
            rule = "the name of a folder below output.root, which may be another place"
            refuse("", value, rule, f"{info.field_name}={name}")
        return value
