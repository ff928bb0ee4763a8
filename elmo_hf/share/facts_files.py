"""The files of published facts about weights, `model_cards/NAME.md`; `model_card.py` puts them into cards."""

from importlib import resources
from importlib.resources.abc import Traversable

TEMPLATES = resources.files("elmo_hf.model_cards")


def facts_file(name: str) -> Traversable | None:
    """The file of a published model, without the `-lm` of its name; None if there is none.

    The names `KIND-...` may share `KIND.md`.
    """
    for stem in (name.removesuffix("-lm"), name.partition("-")[0]):
        path = TEMPLATES / f"{stem}.md"
        if path.is_file():
            return path
    return None
