"""The known failures: statuses of samples that failed in earlier calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from pear.optimality.status import Status


class KnownFailures:
    """The statuses of failed samples. Each is found by a question, a sample key and a fingerprint of the sample's data.

    The question names the data that the failure depends on, such as "constraints". Failures are rare, and fingerprints
    are computed only if some sample of a batch has failed before.
    """

    def __init__(self) -> None:
        self._kept: dict[str, dict[Hashable, tuple[int, bytes]]] = {}

    def status(self, question: str, keys: list[Hashable], mark: Callable[[], Tensor]) -> Tensor | None:
        """Return the known statuses of these samples.

        Args:
            question: names the data that the failure depends on, such as "constraints".
            keys: B sample keys.
            mark: returns the (B, f) fingerprints of this data, f numbers per sample.

        Returns:
            (B,) int8 codes of ``Status``, with SOLVED for a sample without a known failure; None if no sample has a
            known failure.
        """
        kept = self._kept.get(question)
        hits = [i for i, key in enumerate(keys) if key in kept] if kept else []
        if not kept or not hits:
            return None
        status = [int(Status.SOLVED)] * len(keys)
        for i, row in zip(hits, _failure_bytes(mark()[hits]), strict=True):
            failure, data = kept[keys[i]]
            if row == data:
                status[i] = failure
        return torch.tensor(status, dtype=torch.int8) if any(s != Status.SOLVED for s in status) else None

    def put(self, question: str, keys: list[Hashable], status: Tensor, mark: Callable[[], Tensor]) -> None:
        """Keep the statuses (B,) other than SOLVED, and forget the failures of samples that are now SOLVED.

        Args:
            question: names the data that a failure depends on.
            keys: B sample keys.
            status: (B,) int8 codes of ``Status``.
            mark: returns the (B, f) fingerprints of this data, f numbers per sample.
        """
        kept = self._kept.setdefault(question, {})
        codes = status.tolist()
        bad = [i for i, code in enumerate(codes) if code != Status.SOLVED]
        if kept:
            for key in keys:
                kept.pop(key, None)
        for i, row in zip(bad, _failure_bytes(mark()[bad]) if bad else (), strict=True):
            kept[keys[i]] = codes[i], row

    def state(self) -> dict[str, Any]:
        """Return all failures in a form that JSON can hold, with fingerprints as strings of hexadecimal digits."""
        return {
            question: [[key, int(code), row.hex()] for key, (code, row) in kept.items()]
            for question, kept in self._kept.items()
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> KnownFailures:
        """Rebuild the failures from the result of ``state``."""
        found = cls()
        for question, rows in state.items():
            found._kept[question] = {key: (int(Status(status)), bytes.fromhex(row)) for key, status, row in rows}
        return found


def _failure_bytes(rows: Tensor) -> list[bytes]:
    """Return the bytes of each row. Bytes can be compared even if a number is NaN, which does not equal itself."""
    return [row.tobytes() for row in rows.cpu().numpy()]
