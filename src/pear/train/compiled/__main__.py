"""The command ``python -m pear.train.compiled``, which compiles all compiled code.

It does what ``pear compile`` does, and does not need the packages of the extra ``cli``.
"""

from __future__ import annotations

import logging

from pear.train.compiled.compile_all import compile_all

logger = logging.getLogger("pear.compile")


def main() -> None:
    """Compile all parts of the compiled code, and log how long each part took."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logger.setLevel(logging.INFO)
    for part, seconds, was_cached in compile_all():
        logger.info("%s: %s", part, "in the cache already" if was_cached else f"compiled and cached; {seconds:.1f} s")


if __name__ == "__main__":
    main()
