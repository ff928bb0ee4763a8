"""From published checkpoints to model folders, and on to the Hub.

    download, check  -->  convert, compare with witness and published vectors  -->  push to ORGANISATION/elmo-NAME

A folder and a commit exist complete or not at all, so a run that broke off goes on with what is missing.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from huggingface_hub import HfApi

from elmo_hf.disk.checksums import SUMS
from elmo_hf.disk.whole_files import refuse_existing, remove_leftovers
from elmo_hf.folder.listed_files import compare_with_list
from elmo_hf.folder.saved_json import one_line
from elmo_hf.share.model_card import published_facts
from elmo_hf.share.push import push_folder
from elmo_hf.share.saved_card import card_labels

from .contract import NamedFiles, Report, drop_message
from .convert import DEFAULTS, FolderSettings, check_is_published, convert_source, refuse_missing
from .formats import recognise
from .options import read_options
from .published import (
    NO_RESTRICTIONS,
    UNKNOWN,
    DownloadOptions,
    Files,
    Published,
    download,
    find_download,
    other_origin,
)
from .refusals import DAMAGE, AnotherModelError, ConversionError
from .sources import open_source

NO_FILES = NamedFiles()
FROM_THE_TABLE = DownloadOptions()
COLUMNS = ("name", "converted", "difference", "pushed", "error")


def convert_published(
    name: str,
    destination: Path,
    files: NamedFiles = NO_FILES,
    settings: FolderSettings = DEFAULTS,
    download_options: DownloadOptions = FROM_THE_TABLE,
    report: Report = drop_message,
) -> float | None:
    """Converts a published checkpoint as `convert_source`; its card has the published facts.

    Args:
        name: its name.
        destination: the new folder.
        files: the user's files, which replace the published ones.
        settings: as in `convert_source`; its labels replace the published ones, and its name, facts, size and
            digests are not used.
        download_options: where the files come from, and where they are kept.
        report: as in `convert_source`.

    Raises:
        ConversionError: also if the checkpoint has other sizes or files than the table says; errors of `download`.
        FileExistsError: if the destination exists.
    """
    # These faults are found before anything is downloaded.
    refuse_existing(destination)
    refuse_missing(files, settings)
    if files.options is not None:
        read_options(files.options)
    weights, published_files = download(name, partial(read_checkpoint, files.options), download_options)
    row = download_options.published[name]
    facts = published_facts(name)
    if facts is not None:
        labels = {"language": [row.language]}
    else:
        licence = None if row.licence in (NO_RESTRICTIONS, UNKNOWN) else row.licence
        labels = card_labels(licence, [row.language], row.source)
    named_files = {field: path for field, path in vars(files).items() if path is not None}
    settings = replace(
        settings,
        source_name=f"the published {name} model",
        facts=facts,
        labels=labels | dict(settings.labels or {}),
        size=row.size,
        origin=other_origin(name, download_options),
        md5=[digest for field, digest in row.digests.items() if field not in named_files],
    )
    try:
        return convert_source(weights, destination, NamedFiles(**published_files | named_files), settings, report)
    except AnotherModelError as error:
        original = find_download(name, download_options)
        has_own_files = len(named_files) > 0 or download_options.is_local or not original.is_complete
        if has_own_files:
            raise
        original.remove()
        raise ConversionError(
            f"{error.fact} What {original.sources} sent was removed. {original.advice_on_answers}"
        ) from error


def read_checkpoint(options: Path | None, row: Published, files: Files) -> None:
    """Reads downloaded files, as the conversion will.

    Args:
        options: an options file of the user, which is read only if the download is a file of weights without options.
        row: what the table says of the checkpoint.
        files: the downloaded files.

    Raises:
        ConversionError: if they are not a checkpoint, or another one than the published.
    """
    weights, others = files
    with open_source(weights) as source:
        if options is not None and source.is_file and "options" not in others:
            others = others | {"options": options}
        checkpoint = recognise(source).read(source, NamedFiles(**others), None)
        check_is_published(checkpoint, row.size, list(row.digests.values()), weights)


def publish_model(
    name: str,
    organisation: str,
    folder: Path,
    private: bool = False,
    download_options: DownloadOptions = FROM_THE_TABLE,
    report: Report = drop_message,
) -> dict[str, str]:
    """Takes a published model through the steps that are missing.

    Args:
        name: the model.
        organisation: the namespace of its repository, `elmo-NAME`.
        folder: the folder for its folder, `elmo-NAME`.
        private: makes a new repository private.
        download_options: as in `convert_published`.
        report: as in `convert_published`.

    Returns:
        a value for each of `COLUMNS`: "before" for a step that was done before, "-" for one that was not done; the
        difference from the witness; the commit; and the reason if a step failed.
    """
    outcome = dict.fromkeys(COLUMNS, "-") | {"name": name}
    destination = folder / f"elmo-{name}"
    repository = f"{organisation}/elmo-{name}"
    try:
        if HfApi().file_exists(repository, SUMS):  # part of every push, which is one commit
            return outcome | {"pushed": "before"}
        if destination.exists():
            remove_leftovers(destination)
            _check_is_unchanged(destination)
            outcome["converted"] = "before"
        else:
            checked = FolderSettings(check=True)
            difference = convert_published(name, destination, NO_FILES, checked, download_options, report)
            outcome |= {"converted": "now", "difference": f"{difference:.1e}"}
        commit, *_ = push_folder(destination, repository, private=private)
        outcome["pushed"] = commit.oid
    except DAMAGE as error:
        # A model that fails does not stop the others; the user sees the reason in the table at the end.
        outcome["error"] = one_line(error)
    return outcome


def _check_is_unchanged(folder: Path) -> None:
    """Raises ConversionError unless a folder is as a conversion wrote it, so what was checked is sent.

    The card may be edited.
    """
    has_list = (folder / SUMS).is_file()
    faults = compare_with_list(folder).faults if has_list else [f"{SUMS} is missing"]
    if faults:
        raise ConversionError(
            f"{folder} is not as it was converted: {faults[0]}. Delete the folder to convert the model again, or push "
            "it yourself as another model."
        )
