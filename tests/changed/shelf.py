"""A store whose files stand on this disk, where a case can change them: `shelf://work/out`.

It stands for `memory://` and for stores like S3: to the package only `file://` is a disk.
"""

from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

PROTOCOL = "shelf"


class Shelf(LocalFileSystem):
    """Files on a disk by addresses with another protocol."""

    protocol = PROTOCOL

    def __init__(self, **options: Any) -> None:
        """Makes folders when they are needed, because a store has none."""
        super().__init__(**options | {"auto_mkdir": True})

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix(f"{PROTOCOL}://"))


def register() -> None:
    """Makes the store known to fsspec in this process."""
    fsspec.register_implementation(PROTOCOL, Shelf, clobber=True)
