"""The card of a saved folder: read, labelled with what a user says about the weights, and its snippet renamed.

Only what the template of this package wrote is changed (`model_card.py`): the metadata, the section about licence,
language and source, and the calls that load the folder. All else of a card, which its author may have edited, stays.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.repocard import REGEX_YAML_BLOCK

from ..disk.whole_files import new_file
from ..folder.loading import HUB_NAME
from ..folder.saved_json import check_size, naming
from ..text.escapes import string_literal
from .model_card import ADDRESS, FEATURE_EXTRACTION, TAGS, provenance

CARD = "README.md"
MOST_CARD_BYTES = 2**20
# What users may say of weights: what it is called, its form, and the form in words.
LICENCE = ("licence", r"[A-Za-z0-9][A-Za-z0-9.+-]*", "the Hub's name of it, such as mit or apache-2.0")
LANGUAGE = ("language", r"[a-z]{2,3}(-[A-Za-z0-9]+)*", "a code of ISO 639, such as en or eu")
SOURCE = ("source", f"{HUB_NAME.pattern}|{ADDRESS.pattern}", "an address (https://...) or a Hub name (org/name)")
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
        ValueError: if one of them has another form.
    """
    for (what, form, legal), value in ((LICENCE, licence), *((LANGUAGE, each) for each in languages), (SOURCE, source)):
        if value is not None and not re.fullmatch(form, value):
            raise ValueError(f"a {what} is {legal}, found {value!r}.")
    origin = "base_model" if source is not None and HUB_NAME.fullmatch(source) else "source"
    labels = {"license": licence and licence.lower(), "language": [*languages], origin: source}
    return {name: value for name, value in labels.items() if value}


def read_card(path: Path) -> ModelCard:
    """The card of a folder, which may come from anyone.

    Raises:
        ValueError: if it is not a file of at most a megabyte of UTF-8, or its metadata is damaged or has aliases, with
            which a few bytes stand for gigabytes.
    """
    check_size(path, MOST_CARD_BYTES)
    with naming(f"{path} is damaged"):
        text = path.read_text(encoding="utf-8")
        header = REGEX_YAML_BLOCK.search(text)
        if header is None:
            return ModelCard(f"---\n{{}}\n---\n{text}")
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(header[2])):
            raise ValueError("its metadata has aliases")
        return ModelCard(text)


def label_card(path: Path, labels: Mapping[str, Any]) -> None:
    """Writes labels into a card, as `card_labels` gives them, and completes the rest of its metadata.

    Raises:
        ValueError: as `read_card` does.
    """
    card = read_card(path)
    defaults = {"library_name": "transformers", "pipeline_tag": FEATURE_EXTRACTION, "tags": TAGS}
    metadata = defaults | card.data.to_dict() | dict(labels)
    card.data = ModelCardData(**metadata)
    section = f"{TITLE}\n\n{provenance(metadata)}\n\n"
    card.text = "\n" + SECTION.sub(lambda _: section, card.text).lstrip()
    write_card(path, str(card))


def name_card(path: Path, name: str) -> None:
    """Lets the snippet of a card load a Hub repository.

    Args:
        path: the card; one whose snippet is another, or pins a `revision`, stays as it is.
        name: `org/name`.
    """
    card = path.read_text(encoding="utf-8")
    first = LOADING.search(card)
    if first is not None:
        write_card(path, card.replace(f"{first['name']}, trust", f"{string_literal(name)}, trust"))


def write_card(path: Path, card: str) -> None:
    """Writes the text of a card, in place of an older one."""
    with new_file(path) as partial:
        partial.write_text(card, encoding="utf-8")
