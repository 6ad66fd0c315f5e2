"""The one kind of file that PEAR keeps state in: JSON and arrays in a zip under one checksum, and nothing that runs.

Checkpoints, weights of experiments and model files are such files. No part of one is used before the checksum of the
whole file has been verified. Arrays are raw bytes, stored as they are: nothing gets larger by being read.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import DataError, ProblemError
from pear.problem.matrix import is_sparse, to_csr

DOCUMENT = "document.json"
_HEAD = ("format", "version")
_DATE = (1980, 1, 1, 0, 0, 0)  # the same contents make the same file
_MARK, _DIGITS, _CHUNK = b"pear sha256 ", 64, 1 << 20  # the zip's comment: the mark, then the digest of all before it
_MAX_DOCUMENT = 1 << 28  # bytes of JSON that are read at most; 10^6 checks of a history are a third of it
_DTYPES = {
    *("bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
}
MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError)
"""What reading something else than what was written ends in."""


def write(path: Path, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """Pack the content, and replace the file as a whole."""
    replace_file(path, packed(kind, version, content))


def packed(kind: str, version: int, content: Mapping[str, Any]) -> bytes:
    """Everything that is in a file of this content.

    Args:
        kind: what it calls itself; version: of what ``content`` means.
        content: by name: None, truth values, numbers, texts, tensors, arrays, sparse matrices, and lists, tuples and
            dicts of these. All come back as they are, floats to the bit; tensors come back on the CPU.

    Raises:
        ProblemError: something in it is of another type.
    """
    arrays: list[bytes] = []
    document = {name: _encode(value, name, arrays) for name, value in content.items()}
    text = json.dumps({"format": kind, "version": version, **document}, indent=1, allow_nan=False).encode()
    room = io.BytesIO()
    with zipfile.ZipFile(room, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(DOCUMENT, _DATE), text)
        for at, raw in enumerate(arrays):
            archive.writestr(zipfile.ZipInfo(_member(at), _DATE), raw)
        archive.comment = _MARK + b"0" * _DIGITS
    digest = _digest(room, room.seek(0, os.SEEK_END) - _DIGITS)
    room.seek(-_DIGITS, os.SEEK_END)
    room.write(digest)
    return room.getvalue()


def unpacked(data: bytes) -> dict[str, Any]:
    """The content that ``packed`` was given, from memory: nobody can have altered it on the way.

    Example:
        >>> unpacked(packed("example", 1, {"weights": torch.ones(2), "epoch": 3}))
        {'weights': tensor([1., 1.]), 'epoch': 3}
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        document = json.loads(archive.read(DOCUMENT))
        return {name: _decode(value, archive) for name, value in document.items() if name not in _HEAD}


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that one of that name is always whole: the last one until the new one is on the disk."""
    half = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with half.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # or the new name could come to the disk before what it names
        os.replace(half, path)
    finally:
        half.unlink(missing_ok=True)


def read(
    path: Path, kind: str, version: int, remedy: str, check: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """The contents of a file that is as it was written.

    Args:
        path: of the file.
        kind: what it must call itself; version: the one that is understood.
        remedy: what to do where it is refused.
        check: gets what the file says under "identity" before any array is read, and raises where that is wrong.

    Raises:
        DataError: the file is not there, is something else, is cut off or was altered.
    """
    try:
        with path.open("rb") as file:
            _verify(file, path, kind, remedy)
            with zipfile.ZipFile(file) as archive:
                document = _document(archive, path, kind, version, remedy)
                if check is not None:
                    check(_decode(document["identity"], archive))
                return {name: _decode(value, archive) for name, value in document.items()}
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; {remedy}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error
    except DataError:
        raise
    except (zipfile.BadZipFile, NotImplementedError, *MALFORMED) as error:
        raise DataError(f"{path} is no {kind} that PEAR has written ({error!r}); {remedy}") from error


def _verify(file: BinaryIO, path: Path, kind: str, remedy: str) -> None:
    """The whole file against the checksum at its end."""
    size = file.seek(0, os.SEEK_END)
    end = size - _DIGITS
    file.seek(max(0, end - len(_MARK)))
    found = file.read()
    if not found.startswith(_MARK) or len(found) != len(_MARK) + _DIGITS:
        file.seek(0)
        head = file.read(1024)
        if head.startswith(b"\x80") or b"data.pkl" in head:
            raise DataError(
                f"{path} holds a pickle, as torch.save and earlier versions of PEAR write it, and not a {kind} of "
                f"today; reading a pickle may run code that is in it, so it is not read; {remedy}"
            )
        raise DataError(
            f"{path} is no {kind}, or is cut off or damaged: it does not end with PEAR's checksum; {remedy}"
        )
    if _digest(file, end) != found[len(_MARK) :]:
        raise DataError(f"{path} was altered or damaged: its checksum does not fit what it holds; {remedy}")


def _document(archive: zipfile.ZipFile, path: Path, kind: str, version: int, remedy: str) -> dict[str, Any]:
    members = archive.infolist()
    room = sum(member.file_size for member in members)
    if any(member.compress_type != zipfile.ZIP_STORED for member in members) or room > path.stat().st_size:
        raise DataError(f"{path} says that it unpacks to {room:,} bytes, and a {kind} is not packed; {remedy}")
    if archive.getinfo(DOCUMENT).file_size > _MAX_DOCUMENT:
        raise DataError(f"{path} holds more than {_MAX_DOCUMENT:,} bytes of JSON, and a {kind} holds less; {remedy}")
    document: dict[str, Any] = json.loads(archive.read(DOCUMENT))
    said = document.pop("format"), document.pop("version")
    if said != (kind, version):
        raise DataError(
            f"{path} is a {said[0]!r} of version {said[1]}, and a {kind!r} of version {version} was expected; {remedy}"
        )
    return document


def _encode(value: Any, where: str, arrays: list[bytes]) -> Any:
    """What JSON can say, with a reference in the place of each array."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return _encode(value.item(), where, arrays)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, list):
        return [_encode(one, f"{where}[{at}]", arrays) for at, one in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": _encode(list(value), where, arrays)}
    if isinstance(value, Mapping):
        said = {key: _encode(one, f"{where}[{key!r}]", arrays) for key, one in value.items()}
        if all(isinstance(key, str) and not key.startswith("$") for key in said):
            return said
        return {"$dict": [[_encode(key, where, arrays), one] for key, one in said.items()]}
    if is_sparse(value) and not isinstance(value, Tensor):
        rows = to_csr(value)
        parts = [_encode(part, where, arrays) for part in (rows.data, rows.indices, rows.indptr)]
        return {"$sparse": parts, "shape": list(rows.shape)}
    return _encode_array(value, where, arrays)


def _encode_array(value: Any, where: str, arrays: list[bytes]) -> dict[str, Any]:
    if isinstance(value, Tensor) and value.layout is torch.strided:
        tag, name = "$tensor", str(value.dtype).removeprefix("torch.")
    elif isinstance(value, np.ndarray):
        tag, name = "$array", value.dtype.name
    else:
        tag, name = "", ""
    if name not in _DTYPES:
        raise ProblemError(
            f"{where} is a {type(value).__name__} {name}, and a file of PEAR holds None, numbers, texts, "
            "dense tensors and arrays of numbers, sparse matrices, and lists, tuples and dicts of these; convert it"
        )
    if isinstance(value, Tensor):  # as bytes: numpy has no bfloat16
        arrays.append(value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    else:
        arrays.append(value.astype(value.dtype.newbyteorder("<")).tobytes())
    return {tag: name, "shape": list(value.shape), "at": len(arrays) - 1}


def _decode(said: Any, archive: zipfile.ZipFile) -> Any:
    """What ``_encode`` was given."""
    if isinstance(said, list):
        return [_decode(one, archive) for one in said]
    if not isinstance(said, dict):
        return said
    if "$float" in said:
        return float(said["$float"])
    if "$tuple" in said:
        return tuple(_decode(said["$tuple"], archive))
    if "$dict" in said:
        return {_decode(key, archive): _decode(one, archive) for key, one in said["$dict"]}
    if "$sparse" in said:
        rows = sparse.csr_array(tuple(_decode(said["$sparse"], archive)), shape=tuple(said["shape"]))
        rows.check_format(full_check=True)  # indices that lead out of an array would be followed without a question
        return rows
    if "$tensor" in said or "$array" in said:
        return _decode_array(said, archive)
    return {key: _decode(one, archive) for key, one in said.items()}


def _decode_array(said: dict[str, Any], archive: zipfile.ZipFile) -> Any:
    name = said.get("$tensor") or said["$array"]
    if name not in _DTYPES:
        raise ValueError(f"no dtype {name!r}")
    shape, raw = tuple(int(size) for size in said["shape"]), bytearray(archive.read(_member(int(said["at"]))))
    if "$array" in said:
        return np.frombuffer(raw, np.dtype(name).newbyteorder("<")).reshape(shape).astype(np.dtype(name), copy=False)
    dtype: torch.dtype = getattr(torch, name)
    return (torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)).reshape(shape)


def _member(at: int) -> str:
    return f"{at}.bin"


def _digest(file: BinaryIO, size: int) -> bytes:
    """SHA-256 of the first ``size`` bytes."""
    found, left = hashlib.sha256(), size
    file.seek(0)
    while left > 0 and (chunk := file.read(min(left, _CHUNK))):
        found.update(chunk)
        left -= len(chunk)
    return found.hexdigest().encode()
