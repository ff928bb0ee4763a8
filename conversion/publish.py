"""From published checkpoints to model folders, and on to the Hub.

    download, check  -->  convert, compare with witness and published vectors  -->  push to ORGANISATION/elmo-NAME

A folder and a commit exist complete or not at all, so a run that broke off goes on with what is missing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from elmo_hf.disk.checksums import SUMS
from elmo_hf.folder.saved_json import one_line
from elmo_hf.share.model_card import published_facts
from elmo_hf.share.push import push_folder
from elmo_hf.share.saved_card import card_labels

from .contract import Given
from .convert import convert_source
from .published import PUBLISHED, download
from .refusals import DAMAGE

COLUMNS = ("name", "converted", "difference", "pushed", "error")


def convert_published(
    name: str,
    destination: Path,
    given: Given | None = None,
    labels: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    **writing: Any,
) -> float | None:
    """Converts a published checkpoint as `convert_source`; its card has the published facts.

    Args:
        name: its name.
        destination: the new folder.
        given: the user's files and settings, which replace the published ones.
        labels: the user's labels for the card, which replace the published ones.
        source: arguments of `download`.
        **writing: arguments of `convert_source`.
    """
    found, own = download(name, **source or {})
    row, facts = PUBLISHED[name], published_facts(name)
    known = None if row.licence in ("no-restrictions", "unknown") else row.licence
    about = {"language": [row.language]} if facts is not None else card_labels(known, [row.language], row.source)
    mine: dict[str, Any] = {field: value for field, value in vars(given or Given()).items() if value is not None}
    writing |= {"source_name": f"the published {name} model", "facts": facts, "labels": {**about, **(labels or {})}}
    return convert_source(found, destination, Given(**own | mine), **writing)


def publish(name: str, organisation: str, folder: Path, private: bool = False, **options: Any) -> dict[str, str]:
    """Takes a published model through the steps that are missing.

    Args:
        name: the model.
        organisation: the namespace of its repository, `elmo-NAME`.
        folder: the folder for its folder, `elmo-NAME`.
        private: makes a new repository private.
        **options: as in `convert_published`.

    Returns:
        a value for each of `COLUMNS`: "before" for a step that was done before, "-" for one that was not done; the
        difference from the witness; the commit; and the reason if a step failed.
    """
    outcome = dict.fromkeys(COLUMNS, "-") | {"name": name}
    destination, repository = folder / f"elmo-{name}", f"{organisation}/elmo-{name}"
    try:
        if HfApi().file_exists(repository, SUMS):  # part of every push, which is one commit
            return outcome | {"pushed": "before"}
        if destination.exists():
            outcome["converted"] = "before"
        else:
            difference = convert_published(name, destination, check=True, **options)
            outcome |= {"converted": "now", "difference": f"{difference:.1e}"}
        outcome["pushed"] = push_folder(destination, repository, private=private)[0].oid
    except DAMAGE as error:
        outcome["error"] = one_line(error) or type(error).__name__
    return outcome
