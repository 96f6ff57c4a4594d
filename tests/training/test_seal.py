"""A checkpoint that isn't as it was written is named, whatever was altered in it, and no code runs on loading."""

import hashlib
import struct
import zipfile
import zlib

import pytest
import torch

from builder.errors import ArchlabError
from builder.training.checkpoint import AtomicIO, Damaged, read


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return bytes(byte ^ 0x5A for byte in data)


@pytest.mark.parametrize("damage", [cut, flipped, lambda data: b"", lambda data: b"text"])
def test_a_damaged_checkpoint_is_named(tmp_path, damage):
    place = tmp_path / "last.ckpt"
    AtomicIO().save_checkpoint({"weight": torch.randn(50)}, place)
    place.write_bytes(damage(place.read_bytes()))
    with pytest.raises(ArchlabError, match=r"last\.ckpt: the checkpoint is damaged"):
        read(place)


def test_no_code_runs_on_loading(tmp_path):
    class Payload:
        def __reduce__(self):
            return print, ("code ran",)

    place = tmp_path / "last.ckpt"
    torch.save({"state_dict": Payload()}, place)
    with pytest.raises(ArchlabError, match="damaged"):
        read(place)


def test_a_missing_checkpoint_lists_those_there(tmp_path):
    for name in ("best", "last"):
        (tmp_path / f"{name}.ckpt").touch()
    (tmp_path / "gone.ckpt").symlink_to("nowhere.ckpt")
    with pytest.raises(ArchlabError, match=r"nope\.ckpt: no such checkpoint; there are: best, last"):
        read(tmp_path / "nope.ckpt")
    with pytest.raises(ArchlabError, match="there are: none"):
        read(tmp_path / "empty" / "last.ckpt")


def altered(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_any_altered_byte_is_damage(tmp_path):
    place = tmp_path / "last.ckpt"
    AtomicIO().save_checkpoint({"weight": torch.randn(5), "step": 3}, place)
    data = place.read_bytes()
    assert read(place)["step"] == 3
    for at in [*range(0, len(data), 7), *range(len(data) - 100, len(data))]:
        place.write_bytes(altered(data, at))
        with pytest.raises(Damaged):
            read(place)
    for cut in (1, 2, 71, 93):
        place.write_bytes(data[:-cut])
        with pytest.raises(Damaged):
            read(place)
    place.write_bytes(data + b"!")
    with pytest.raises(Damaged):
        read(place)


def test_a_weight_altered_with_its_checksum_is_damage(tmp_path):
    """What torch.load and the zip's own checksums let pass."""
    place = tmp_path / "last.ckpt"
    AtomicIO().save_checkpoint({"weight": torch.arange(3000.0)}, place)
    data = bytearray(place.read_bytes())
    with zipfile.ZipFile(place) as zipped:
        part = next(part for part in zipped.infolist() if part.filename.endswith("data/0"))
    name, extra = struct.unpack_from("<HH", data, part.header_offset + 26)
    start = part.header_offset + 30 + name + extra
    struct.pack_into("<f", data, start, 7.0)
    crc = struct.pack("<I", zlib.crc32(data[start : start + part.file_size]))
    assert data.count(struct.pack("<I", part.CRC)) == 2, "beside the data and in the directory"
    place.write_bytes(bytes(data).replace(struct.pack("<I", part.CRC), crc))
    assert zipfile.ZipFile(place).testzip() is None
    assert torch.load(place, weights_only=True)["weight"][0] == 7
    with pytest.raises(Damaged, match="sha256"):
        read(place)


def test_the_hash_stands_in_the_file_where_zip_tools_find_it(tmp_path):
    place = tmp_path / "last.ckpt"
    AtomicIO().save_checkpoint({"weight": torch.randn(1000)}, place)
    comment = zipfile.ZipFile(place).comment
    assert comment == b"sha256 " + hashlib.sha256(place.read_bytes()[: -len(comment)]).hexdigest().encode()
    assert torch.load(place, weights_only=True, mmap=True)["weight"].shape == (1000,)


def test_a_checkpoint_without_a_hash_is_read_by_its_checksums(tmp_path):
    place = tmp_path / "last.ckpt"
    torch.save({"weight": torch.arange(50)}, place)  # as earlier versions wrote it
    assert read(place)["weight"][49] == 49
    data = place.read_bytes()
    place.write_bytes(altered(data, data.index(torch.arange(50).numpy().tobytes())))
    with pytest.raises(Damaged, match="checksum"):
        read(place)
