"""What an offline W&B run has written, read without W&B's own reader: its records, and its end."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2


def records(folder: Path) -> Iterator[Any]:
    """The records of the one offline run below `folder`: a log in 32 KiB blocks, a record in one or more pieces.

    The service that writes it may be about to write more: a piece whose end isn't there yet ends what is read.
    """
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        room = 32768 - place % 32768
        if room < 7:
            place += room
            continue
        _, size, kind = struct.unpack("<IHB", data[place : place + 7])
        if place + 7 + size > len(data):
            return
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # the only piece, or the last one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def items(parts: Iterable[Any]) -> dict[str, Any]:
    """The entries of a row, a summary or a config, a nested one under its path."""
    return {"/".join(part.nested_key) or part.key: json.loads(part.value_json) for part in parts}


def exit_code(folder: Path) -> int | None:
    """The exit code of the run; the service that writes the file may lag behind a moment."""
    for _ in range(100):
        if ends := of_kind(folder, "exit"):
            return ends[0].exit_code
        time.sleep(0.05)
    return None


def of_kind(folder: Path, kind: str) -> list[Any]:
    """The records of a kind: run, config, history, summary, metric, exit."""
    return [getattr(record, kind) for record in records(folder) if record.WhichOneof("record_type") == kind]
