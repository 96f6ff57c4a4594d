"""The data room: text from a source, split, tokenized, and served in an order that seed and step alone decide."""

from .cache import cache_folder
from .corpus import Corpus, prepare
from .loader import TrainBatches, ValBatches, train_loader, val_loader

__all__ = ["Corpus", "TrainBatches", "ValBatches", "cache_folder", "prepare", "train_loader", "val_loader"]
