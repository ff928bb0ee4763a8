"""ELMo (Peters et al. 2018) as a first-class transformers model.

The first use of a public name loads `public.py`, which defines them all and registers ELMo with the Auto classes of
transformers; so `import elmo_hf` and the command line start fast.

Importing the package tells the room `folder`, which opens models by their names, where the published models are: the
code that downloads and converts them stands above that room, and is loaded at the first use of such a name.

In a source tree the folders `conversion` and `model_cards` are beside this one; in an installed package they are inside
it. They are imported as `elmo_hf.conversion` and `elmo_hf.model_cards`, so Python must search both places.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not Path(__file__).with_name("conversion").is_dir():
    __path__.append(str(Path(__file__).parents[1]))

from .folder.model_names import PublishedModels, set_published_models

if TYPE_CHECKING:
    from .public import *  # noqa: F403


def _published_models() -> PublishedModels:
    from .conversion.kept_models import KeptModels

    return KeptModels()


set_published_models(_published_models)


def __getattr__(name: str) -> Any:
    if name == "__all__" or not name.startswith("_"):
        public = import_module(f"{__name__}.public")
        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__")]
