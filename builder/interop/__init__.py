"""Models of Hugging Face transformers brought in, and ours sent out, with equal logits: `family.py` says how."""

from .bring import import_hf
from .send import Exported, export_hf

__all__ = ["Exported", "export_hf", "import_hf"]
