"""ELMo (Peters et al. 2018) as a first-class transformers model.

The first use of a public name loads `public.py`, which defines them all and registers ELMo with the Auto classes of
transformers; so `import elmo_hf` and the command line start fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name == "__all__" or not name.startswith("_"):
        public = import_module(f"{__name__}.public")
        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__")]
