"""What a user says about weights for their card: licence, language, source; checked without torch."""

import re
from collections.abc import Sequence
from typing import Any

from ..folder.model_names import HUB_NAME

LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
ADDRESS = re.compile(r"https?://[^\s<>\"|]+")


def card_labels(licence: str | None, languages: Sequence[str], source: str | None) -> dict[str, Any]:
    """The metadata of a card, by the Hub's names for them; what is not given is left out.

    Args:
        licence: the Hub's name of it, such as `mit`; capital letters are made small.
        languages: ISO 639 codes, such as `en`.
        source: where the weights come from, an address or a Hub name.

    Raises:
        ValueError: if one of them is none.
    """
    labels: dict[str, Any] = {}
    if licence is not None:
        if not LICENCE.fullmatch(licence.lower()):
            raise ValueError(f"a licence is the Hub's name of it, such as mit or apache-2.0, found {licence!r}.")
        labels["license"] = licence.lower()
    wrong = [language for language in languages if not LANGUAGE.fullmatch(language)]
    if wrong:
        raise ValueError(f"a language is a code of ISO 639, such as en or eu, found {wrong[0]!r}.")
    if languages:
        labels["language"] = list(languages)
    if source is not None:
        if not HUB_NAME.fullmatch(source) and not ADDRESS.fullmatch(source):
            raise ValueError(f"a source is an address (https://...) or a Hub name (org/name), found {source!r}.")
        labels["base_model" if HUB_NAME.fullmatch(source) else "source"] = source
    return labels
