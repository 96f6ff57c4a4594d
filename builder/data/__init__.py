"""The data room: what a source gives, tokenized, in rows, and served in an order that seed and step alone decide."""

from builder.cache import cache_folder

from .corpus import Corpus, prepare
from .loader import TrainBatches, ValBatches, train_loader, val_loader
from .samples import Samples, Shape

__all__ = [
    "Corpus",
    "Samples",
    "Shape",
    "TrainBatches",
    "ValBatches",
    "cache_folder",
    "prepare",
    "train_loader",
    "val_loader",
]
