"""Generation: prefill once, then one token a step through the model's state, chosen greedily or by sampling."""

from .generate import GenerateResult, generate

__all__ = ["GenerateResult", "generate"]
