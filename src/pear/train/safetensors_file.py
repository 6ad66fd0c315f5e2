"""The file format of PEAR's checkpoints, weights and model files: safetensors with a JSON document and a checksum.

Arrays are tensors of the safetensors file. All other values are in a JSON document, which is stored as one more tensor,
of bytes, with the name ``document``, and which refers to arrays by their names. The safetensors header holds a SHA-256
checksum of the rest of the file. A file is used only after its checksum is verified. Nothing in a file can run code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from scipy import sparse
from torch import Tensor

from pear.errors import DataError, ProblemError, name_output_in_errors
from pear.problem.matrix import is_sparse_matrix, to_csr_matrix

DOCUMENT = "document"
_HEADER = b'{"__metadata__":{"sha256":"'  # the begin of every file, after eight bytes with the length of the header
_DIGITS = 64
_CHECKSUM = slice(8 + len(_HEADER), 8 + len(_HEADER) + _DIGITS)
_EARLIER_ZIP = b"pear sha256 "  # near the end of files that development versions before safetensors wrote
_DTYPES = {
    *("bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64"),
}
MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError, SafetensorError)
"""The errors that reading a file with unexpected content may raise."""


def write_safetensors(path: Path, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """Write content to a file, replacing an earlier file of that name. The arguments are as in ``pack_safetensors``."""
    replace_safetensors_file(path, pack_safetensors(kind, version, content))


def pack_safetensors(kind: str, version: int, content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file with this content. Equal content gives equal bytes.

    Args:
        kind: the kind of file, which ``read_safetensors`` checks.
        version: the version of the layout of the content, which ``read_safetensors`` checks.
        content: values by name. A value is None, a bool, a number, a text, a tensor, an array, a sparse matrix, or a
            list, tuple or dict of these. ``read_safetensors`` returns them with the same types and bits, and with all
            tensors on the CPU.

    Raises:
        ProblemError: a value has another type.
    """
    tensors: dict[str, Tensor] = {}
    document = {name: _encode_safetensors_value(value, name, tensors) for name, value in content.items()}
    text = json.dumps({"format": kind, "version": version, **document}, indent=1, allow_nan=False).encode()
    tensors[DOCUMENT] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return add_safetensors_checksum(safetensors.torch.save(tensors, {"sha256": "0" * _DIGITS}))


def unpack_safetensors(data: bytes) -> dict[str, Any]:
    """Return the content of bytes made by ``pack_safetensors``.

    The checksum is not verified; use ``read_safetensors`` for files.

    Example:
        >>> unpack_safetensors(pack_safetensors("example", 1, {"weights": torch.ones(2), "epoch": 3}))
        {'weights': tensor([1., 1.]), 'epoch': 3}
    """
    tensors = safetensors.torch.load(data)
    document = json.loads(tensors.pop(DOCUMENT).numpy().tobytes())
    return {
        name: _decode_safetensors_value(value, tensors)
        for name, value in document.items()
        if name not in ("format", "version")
    }


def add_safetensors_checksum(data: bytes) -> bytes:
    """Return the bytes of a file after the checksum in its header is set to the right one."""
    return data[: _CHECKSUM.start] + _safetensors_checksum(data) + data[_CHECKSUM.stop :]


def replace_safetensors_file(path: Path, data: bytes) -> None:
    """Write bytes to a file by way of a temporary file, so that the file is complete at any time.

    Raises:
        OutputError: the folder is missing, the disk is full, or writing is not allowed.
    """
    half = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with name_output_in_errors(path), half.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # otherwise the new name could reach the disk before the data
        with name_output_in_errors(path):
            os.replace(half, path)
    finally:
        half.unlink(missing_ok=True)


def read_safetensors(
    path: Path, kind: str, version: int, remedy: str, check: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Return the content of a file, after its checksum is verified.

    Args:
        path: the path of the file.
        kind: the kind that the file must have.
        version: the version that the file must have.
        remedy: the advice to the user at the end of an error message.
        check: a function that raises an error if the file does not belong to the caller's training. It is called with
            the entry "identity" of the content before other entries are decoded. None for a file without this entry.

    Raises:
        DataError: the file is missing, has another kind or version, is cut off, or was altered.
    """
    try:
        data = path.read_bytes()
        _verify_safetensors_checksum(data, path, kind, remedy)
        tensors = safetensors.torch.load(data)
        text = tensors.pop(DOCUMENT).numpy().tobytes()
        document: dict[str, Any] = json.loads(text, object_pairs_hook=_refuse_repeated_names)
        found = document.pop("format"), document.pop("version")
        if found != (kind, version):
            earlier = found[0] == kind and isinstance(found[1], int) and found[1] < version
            whose = ", as an earlier version of PEAR wrote it," if earlier else ","
            raise DataError(
                f"{path} is a {found[0]!r} of version {found[1]}{whose} and a {kind!r} of version {version} was "
                f"expected; {remedy}"
            )
        content = {}
        if check is not None:
            content["identity"] = _decode_safetensors_value(document.pop("identity"), tensors)
            check(content["identity"])
        return content | {name: _decode_safetensors_value(value, tensors) for name, value in document.items()}
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; {remedy}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error
    except DataError:
        raise
    except MALFORMED as error:
        raise DataError(f"{path} is no {kind} that PEAR has written ({error!r}); {remedy}") from error


def _verify_safetensors_checksum(data: bytes, path: Path, kind: str, remedy: str) -> None:
    """Raise DataError if the bytes are not those of a PEAR file, or if the checksum is wrong."""
    if data[8:].startswith(_HEADER):
        if _safetensors_checksum(data) != data[_CHECKSUM]:
            raise DataError(f"{path} is cut off, altered or damaged: its checksum is wrong; {remedy}")
        return
    if data.startswith(b"\x80") or b"data.pkl" in data[:1024]:
        raise DataError(
            f"{path} holds a pickle, as torch.save and earlier versions of PEAR write it, and not a {kind} of today; "
            f"reading a pickle may run code that is in it, so it is not read; {remedy}"
        )
    if _EARLIER_ZIP in data[-200:]:
        raise DataError(
            f"{path} is a zip, as development versions of PEAR before safetensors wrote it; train again to make "
            f"a {kind} of today"
        )
    raise DataError(f"{path} is no {kind}, or is cut off or damaged: it has no checksum of PEAR's; {remedy}")


def _safetensors_checksum(data: bytes) -> bytes:
    """Return the SHA-256 digest of all bytes of a file except the checksum, in hexadecimal digits."""
    found = hashlib.sha256(memoryview(data)[: _CHECKSUM.start])
    found.update(memoryview(data)[_CHECKSUM.stop :])
    return found.hexdigest().encode()


def _encode_safetensors_value(value: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    """Return a value as JSON, in which each array is replaced by a name.

    The arrays of the value are added to ``tensors`` under these names. ``where`` is the place of the value in the
    content, for error messages.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return _encode_safetensors_value(value.item(), where, tensors)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, list):
        return [_encode_safetensors_value(one, f"{where}[{at}]", tensors) for at, one in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": _encode_safetensors_value(list(value), where, tensors)}
    if isinstance(value, Mapping):
        pairs = {key: _encode_safetensors_value(one, f"{where}[{key!r}]", tensors) for key, one in value.items()}
        if all(isinstance(key, str) and not key.startswith("$") for key in pairs):
            return pairs
        return {"$dict": [[_encode_safetensors_value(key, where, tensors), one] for key, one in pairs.items()]}
    if is_sparse_matrix(value) and not isinstance(value, Tensor):
        rows = to_csr_matrix(value)
        parts = [_encode_safetensors_value(part, where, tensors) for part in (rows.data, rows.indices, rows.indptr)]
        return {"$sparse": parts, "shape": list(rows.shape)}
    return _encode_safetensors_array(value, where, tensors)


def _encode_safetensors_array(value: Any, where: str, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Add a tensor or an array to ``tensors`` under a new name, and return JSON with this name."""
    if isinstance(value, Tensor) and value.layout is torch.strided:
        tag, dtype = "$tensor", str(value.dtype).removeprefix("torch.")
    elif isinstance(value, np.ndarray):
        tag, dtype = "$array", value.dtype.name
    else:
        tag, dtype = "", ""
    if dtype not in _DTYPES:
        raise ProblemError(
            f"{where} is a {type(value).__name__} {dtype}, and a file of PEAR holds None, numbers, texts, "
            "dense tensors and arrays of numbers, sparse matrices, and lists, tuples and dicts of these; convert it"
        )
    name = f"{len(tensors):06}"  # names in the order in which the file holds the tensors
    own = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(value.astype(value.dtype.name))
    tensors[name] = own.clone(memory_format=torch.contiguous_format)  # safetensors takes no tensors that share memory
    return {tag: name}


def _decode_safetensors_value(said: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value that ``_encode_safetensors_value`` has converted to the JSON ``said``.

    Values that JSON cannot hold are objects with a tag, a name that begins with "$", such as ``{"$tuple": [1, 2]}``.
    Each array is removed from ``tensors`` when it is used, so that a file can use it only once. Otherwise a small file
    that uses one array a thousand times could fill the memory.

    Raises:
        KeyError: an array is missing, or is used twice.
        ValueError: a tag is unknown, or an object with a tag has further entries.
    """
    if isinstance(said, list):
        return [_decode_safetensors_value(one, tensors) for one in said]
    if not isinstance(said, dict):
        return said
    tag = next((key for key in said if key.startswith("$")), None)
    if tag is None:
        return {key: _decode_safetensors_value(one, tensors) for key, one in said.items()}
    if set(said) != {tag, *(("shape",) if tag == "$sparse" else ())}:
        raise ValueError(f"unknown entries beside {tag}")
    return _decode_safetensors_tag(tag, said, tensors)


def _decode_safetensors_tag(tag: str, said: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """Return the value that a JSON object with a tag, such as ``{"$tuple": [1, 2]}``, stands for."""
    value = said[tag]
    if tag == "$float":
        return float(value)
    if tag == "$tuple":
        return tuple(_decode_safetensors_value(value, tensors))
    if tag == "$dict":
        return {_decode_safetensors_value(key, tensors): _decode_safetensors_value(one, tensors) for key, one in value}
    if tag == "$sparse":
        rows = sparse.csr_array(tuple(_decode_safetensors_value(value, tensors)), shape=tuple(said["shape"]))
        rows.check_format(full_check=True)  # scipy's compiled code would follow an index beyond the end of an array
        return rows
    if tag == "$tensor":
        return tensors.pop(value)
    if tag == "$array":
        return tensors.pop(value).numpy()
    raise ValueError(f"unknown tag {tag}")


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict; raise ValueError if a name occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found
