"""Pushes a folder to the Hub in one commit, or not at all.

The folder is checked before anything is sent. Without its code or tokenizer a repository opens only where this package
is installed; without some of its weights it opens with random numbers. `huggingface_hub` does the sending: large files
go first, by their SHA-256; failed requests are tried again; a second push sends only what the Hub does not have.
"""

from pathlib import Path

from huggingface_hub import CommitInfo, HfApi, constants

from ..folder.loading import load_complete, load_tokenizer
from ..folder.saved_json import naming
from ..hub_code import generated_files
from .saved_card import CARD, name_card, read_card

# The Trainer's checkpoints, private files, hidden files.
IGNORED = ["checkpoint-*", "_*", ".*"]
ADVICE = (
    "It has the whole commit or nothing of it. Run the same command again, as a user who may write there (`hf auth "
    "login`); large files that arrived are not sent twice. The reason"
)


def push_folder(folder: Path, name: str, *, private: bool = False) -> CommitInfo:
    """Makes the content of a folder a commit of a Hub repository, which is created if needed.

    The snippet of the folder's card then names the repository.

    Args:
        folder: a complete model folder, as `elmo-hf convert` writes.
        name: `org/name`, or `name` in the namespace of the user.
        private: makes a new repository private; otherwise the organisation's default applies.

    Raises:
        ValueError: if the folder is incomplete or the name is no name of a repository; nothing is sent then. If the Hub
            refuses the token, is out of reach, or an upload broke off.
    """
    check_folder(folder)
    api = HfApi()
    with naming(f"pushing to {name} at {constants.ENDPOINT} failed. {ADVICE}"):
        repository = api.create_repo(name, private=private or None, exist_ok=True).repo_id
        name_card(folder / CARD, repository)
        return api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="Upload ELMo model", ignore_patterns=IGNORED
        )


def check_folder(folder: Path) -> None:
    """Checks that a folder has everything that loading it elsewhere needs.

    Raises:
        ValueError: naming the missing files and what writes them, the missing weights, or a damaged file.
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
