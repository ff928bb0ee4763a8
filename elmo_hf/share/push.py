"""Pushes a folder to the Hub in one commit, or not at all.

The folder is checked before anything is sent. Without its code or tokenizer a repository opens only where this package
is installed; without some of its weights it opens with random numbers. `huggingface_hub` does the sending: large files
go first, by their SHA-256; failed requests are tried again; a second push sends only what the Hub does not have.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi, constants
from huggingface_hub.errors import HTTPError

from ..folder.loading import HUB_NAME, load_complete, load_tokenizer
from ..folder.saved_json import one_line, read_json
from ..hub_code import generated_files
from ..model.configuration_elmo import AUTO_MAP
from .saved_card import CARD, name_card, read_card

# The classes that each config may name.
CLASSES = {
    "config.json": {reference.split(".")[-1] for reference in AUTO_MAP.values()}
    | {"ElmoFeatureExtractionPipeline", "ElmoTextClassificationPipeline", "ElmoTokenClassificationPipeline"},
    "tokenizer_config.json": {"ElmoTokenizer"},
}
# The Trainer's checkpoints, private files, hidden files.
IGNORED = ["checkpoint-*", "_*", ".*"]


def push_folder(folder: Path, name: str, *, private: bool = False) -> CommitInfo:
    """Makes the content of a folder a commit of a Hub repository, which is created if needed.

    The snippet of the folder's card then names the repository.

    Args:
        folder: a complete model folder, as `elmo-hf convert` writes.
        name: `org/name`.
        private: makes a new repository private; otherwise the organisation's default applies.

    Raises:
        ValueError: if the folder is incomplete or the name is invalid; nothing is sent then.
        ConnectionError: if the Hub refuses the token, is out of reach, or an upload broke off.
    """
    if not HUB_NAME.fullmatch(name):
        raise ValueError(f"a Hub repository is called org/name, found {name!r}.")
    check_folder(folder)
    api = HfApi()
    try:
        api.create_repo(name, private=private or None, exist_ok=True)
        name_card(folder / CARD, name)
        return api.upload_folder(
            repo_id=name, folder_path=folder, commit_message="Upload ELMo model", ignore_patterns=IGNORED
        )
    except (HTTPError, OSError) as error:
        raise ConnectionError(
            f"pushing to {name} at {constants.ENDPOINT} failed: {one_line(error).rstrip('.')}. It has the whole commit "
            "or nothing of it. Run the same command again, as a user who may write there (`hf auth login`); large "
            "files that arrived are not sent twice."
        ) from error


def check_folder(folder: Path) -> None:
    """Checks that a folder has everything that loading it elsewhere needs.

    Raises:
        ValueError: naming the missing files and what writes them, the missing weights, a damaged file, or code in
            `auto_map` that is not this package's.
    """
    if folder.is_dir():
        load_complete(folder)
    needed = ("tokenizer_config.json", CARD, *generated_files())
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"there is no folder {folder} with {', '.join(missing)}. `model.save_pretrained` writes weights and code, "
            f"`tokenizer.save_pretrained` the tokenizer, `elmo-hf card {folder} --license NAME --language CODE` the "
            f"model card {CARD}."
        )
    load_tokenizer(folder)
    read_card(folder / CARD)
    for path in (folder / name for name in CLASSES):
        config = read_json(path)
        pipelines = [each.get("impl", "") for each in (config.get("custom_pipelines") or {}).values()]
        for reference in _leaves([config.get("auto_map"), pipelines]):
            module, _, found = str(reference).partition(".")
            if f"{module}.py" not in generated_files() or found not in CLASSES[path.name]:
                raise ValueError(
                    f"{path} may name only code that `save_pretrained` writes, such as {AUTO_MAP['AutoModel']}, found "
                    f"{reference!r:.200}."
                )


def _leaves(value: Any) -> Iterator[Any]:
    """The values in nested objects and lists, without nulls."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    elif value is not None:
        yield value
