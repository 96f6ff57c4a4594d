"""A text to train tokenizers on, and a tokenizer.json as others make it."""

import json

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "the cat sat on the mat, the cat sat still\n" * 3,
    "def cat(the): return the.cat\n" * 3,
    "Grüße, 你好世界! " * 4,
]


def make_file(path, specials=("</s>", "[PAD]"), fallback=False):
    """A tokenizer.json as others make it: byte-level BPE, or pieces with byte fallback as Llama has."""
    backend = tokenizers.Tokenizer(models.BPE(byte_fallback=fallback, unk_token=None))
    if fallback:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        backend.decoder = decoders.Sequence(steps)
        alphabet = []
    else:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
    special = [*specials, *bytes_]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(CORPUS[:2] if fallback else CORPUS, trainer)
    data = json.loads(backend.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in specials]
    path.write_text(json.dumps(data))
    return path
