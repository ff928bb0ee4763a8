"""Changes cards that exist: what a user says about the weights, and the model that the snippet loads.

Both change only what the template of this package wrote (`model_card.py`): the metadata, the section about licence,
language and source, and the calls that load the folder. All else of a card, which its author may have edited, stays.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from ..disk.whole_files import new_file
from ..folder.loading import HUB_NAME
from .foreign_text import string_literal
from .model_card import ADDRESS, FEATURE_EXTRACTION, TAGS, provenance

CARD = "README.md"
LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
HEADER = re.compile(r"\A\s*---\r?\n(.*?\r?\n)??---[ \t]*\r?\n", re.DOTALL)
TITLE = "## Licence, language, source"
SECTION = re.compile(rf"^{TITLE}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
LOADING = re.compile(
    r'(?P<call>from_pretrained\(|pipeline\("[a-z-]+", model=)(?P<name>"(?:[^"\\\n]|\\.)*")'
    r"(?=, trust_remote_code=True\))"
)


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


def card_metadata(card: str, where: str) -> dict[str, Any]:
    """The metadata of a card; empty if it has none.

    Args:
        card: its text.
        where: its path, for the error.

    Raises:
        ValueError: if the metadata is damaged.
    """
    header = HEADER.match(card)
    try:
        metadata = yaml.safe_load(header[1] or "") if header else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2021-13-45
        raise ValueError(f"{where}: the metadata between the lines --- is not YAML: {error}") from error
    if not isinstance(metadata, dict | None):
        raise ValueError(f"{where}: the metadata between the lines --- must be names with values.")
    return metadata or {}


def read_card(path: Path) -> str:
    """The text of a card.

    Raises:
        ValueError: if it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); save it as UTF-8, or delete it.") from error


def label_card(path: Path, labels: Mapping[str, Any]) -> None:
    """Writes labels into a card, and completes the rest of its metadata.

    Args:
        path: the card.
        labels: as `card_labels` gives them.

    Raises:
        ValueError: if the card is not UTF-8, or its metadata is damaged.
    """
    card = read_card(path)
    defaults = {"library_name": "transformers", "pipeline_tag": FEATURE_EXTRACTION, "tags": TAGS}
    metadata = defaults | card_metadata(card, str(path)) | dict(labels)
    body = SECTION.sub(lambda _: f"{TITLE}\n\n{provenance(metadata)}\n\n", HEADER.sub("", card))
    header = yaml.safe_dump(metadata, allow_unicode=True)
    _write(path, f"---\n{header}---\n\n{body.lstrip()}")


def name_card(path: Path, name: str) -> None:
    """Lets the card's snippet load a Hub repository.

    Args:
        path: the card; one whose snippet is another, or pins a `revision`, stays as it is.
        name: `org/name`.

    Raises:
        ValueError: if the card is not UTF-8.
    """
    card = read_card(path)
    first = LOADING.search(card)
    if first is not None:
        _write(path, card.replace(f"{first['name']}, trust", f"{string_literal(name)}, trust"))


def _write(path: Path, card: str) -> None:
    with new_file(path) as partial:
        partial.write_text(card, encoding="utf-8")
