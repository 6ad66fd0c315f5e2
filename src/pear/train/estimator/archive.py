"""An archive of JSON and arrays that is checked when it is read, and holds nothing that runs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from pear.errors import DataError, ProblemError
from pear.problem.sparse import SparseMatrix

DOCUMENT, CHECKSUM = "model.json", "model.json.sha256"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same contents make the same file


@dataclass
class Archive:
    """What a file holds.

    Attributes:
        document: what JSON can say.
        arrays: by name.
    """

    document: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def put(self, name: str, value: Any) -> Any:
        """Keep a tensor, an array or a sparse matrix; returns what the document says in its place. None stays None."""
        if value is None:
            return None
        value = value.csr if isinstance(value, SparseMatrix) else value
        if sparse.issparse(value):
            self.arrays |= {f"{name}.{part}": getattr(value, part) for part in ("data", "indices", "indptr")}
            return {"sparse": name, "shape": list(value.shape)}
        try:
            self.arrays[name] = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        except TypeError as error:  # numpy has no bfloat16
            raise ProblemError(f"{name} cannot be written: {error}; convert it to float32 first") from error
        return {"array": name}

    def get(self, said: Any) -> Any:
        """What ``put`` kept: an array, a sparse matrix or None."""
        if said is None:
            return None
        if "array" in said:
            return self.arrays[said["array"]]
        parts = [self.arrays[f"{said['sparse']}.{part}"] for part in ("data", "indices", "indptr")]
        return sparse.csr_array(tuple(parts), shape=tuple(said["shape"]))

    def write(self, path: Path) -> None:
        """Replace the file as a whole, so that a break while writing leaves the last one."""
        files = {name: _as_bytes(array) for name, array in self.arrays.items()}
        listed = {name: {"file": f"{i}.npy", "sha256": _digest(files[name])} for i, name in enumerate(files)}
        text = json.dumps({**self.document, "arrays": listed}, indent=1).encode()
        half = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            with zipfile.ZipFile(half, "w") as archive:
                members = {DOCUMENT: text, CHECKSUM: _digest(text).encode()}
                members |= {listed[name]["file"]: content for name, content in files.items()}
                for member, content in members.items():
                    archive.writestr(zipfile.ZipInfo(member, _DATE), content, zipfile.ZIP_DEFLATED)
            os.replace(half, path)
        finally:
            half.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path, kind: str, version: int) -> Archive:
        """The contents of a file, every part of which is as it was written.

        Args:
            path: of the file.
            kind: what the document must call itself under "format".
            version: the newest one that is understood.

        Raises:
            DataError: the file is not there, is something else, is cut off or was altered.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                text = archive.read(DOCUMENT)
                if _digest(text) != archive.read(CHECKSUM).decode("ascii", "replace"):
                    raise DataError(
                        f"{path} was altered or damaged: {DOCUMENT} is not what was written; write it again"
                    )
                document = json.loads(text)
                arrays = {name: _array(archive, path, row) for name, row in document.pop("arrays").items()}
        except FileNotFoundError as error:
            raise DataError(f"there is no file {path}; DecisionRegressor.save and `pear train` write one") from error
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DataError(f"{path} is no model file of PEAR, or is cut off or damaged ({error})") from error
        except KeyError as error:
            raise DataError(f"{path} is an archive, but no model file of PEAR ({error.args[0]})") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error}") from error
        if document.get("format") != kind or document.get("version", version + 1) > version:
            raise DataError(
                f"{path} is a {document.get('format')!r} of version {document.get('version')}, and a {kind!r} of "
                f"version {version} at most was expected; a newer pear reads newer files"
            )
        return cls(document, arrays)


def _array(archive: zipfile.ZipFile, path: Path, row: dict[str, str]) -> np.ndarray[Any, Any]:
    content = archive.read(row["file"])
    if _digest(content) != row["sha256"]:
        raise DataError(f"{path} was altered or damaged: {row['file']} is not what was written; write it again")
    found: np.ndarray[Any, Any] = np.load(io.BytesIO(content), allow_pickle=False)
    return found


def _as_bytes(array: np.ndarray[Any, Any]) -> bytes:
    room = io.BytesIO()
    np.save(room, np.ascontiguousarray(array) if array.ndim else array, allow_pickle=False)
    return room.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
