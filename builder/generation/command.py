"""What the command that writes text is asked: the knobs of a sample, of which run, and how its tokens are computed."""

from __future__ import annotations

from typing import Self

from pydantic import PositiveInt, model_validator

from builder.component import refuse_all
from builder.sections import SampleSpec

from .together import unfit


class GenerateSpec(SampleSpec):
    """The knobs of generation, the folder of the run, and which of its checkpoints: `best` or `last`.

    draft           the folder of a smaller run with the same tokenizer, which proposes tokens; None: nothing does
    draft_tokens    how many it proposes at a time; None: 4
    compile         whether torch compiles the step of a token, which takes many seconds, and then less for each token
    raw             whether the prompt is asked as it stands, of a run that has a chat template
    attention       whether what each head looks at is drawn too, into the run folder
    """

    run: str
    checkpoint: str = "best"
    draft: str | None = None
    draft_tokens: PositiveInt | None = None
    compile: bool = False
    raw: bool = False
    attention: bool = False

    @model_validator(mode="after")
    def _what_is_typed_has_an_effect(self) -> Self:
        problems = [each for each in unfit(dict(self)) if each.path in self.model_fields_set]
        refuse_all((each.path, getattr(self, each.path), each.rule, each.fix) for each in problems)
        return self

    @property
    def sampling(self) -> list[str]:
        """The keys that were typed of those that only a model that writes can read."""
        return sorted(self.model_fields_set & (SampleSpec.model_fields.keys() - {"prompt", "messages"}))
