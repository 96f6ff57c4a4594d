"""Generation: prefill once, then one token a step through the model's state, chosen greedily or by sampling."""

from .beams import MOST_BEAMS
from .generate import GenerateResult, generate

__all__ = ["MOST_BEAMS", "GenerateResult", "generate"]
