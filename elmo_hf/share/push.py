"""Pushes a folder to the Hub in one commit, or not at all.

The folder is checked before anything is sent: without code or tokenizer a repository opens only where this package is
installed, and missing weights would be random numbers. Only files that the folder itself names are sent: weights that
its index lists, pictures that its card shows, and files of fixed names. Others are sent only on request, because a
pattern such as `*.png` would also send what lies in the folder by chance.
`huggingface_hub` sends large files first, by their SHA-256, repeats failed requests, and does not send files again that
the Hub has.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, constants
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ..disk.checksums import SUMS, recorded_sums, sha256_of_file, sum_lines
from ..folder.listed_files import MODEL_FILES, WEIGHTS, is_of_model
from ..folder.loading import load_complete
from ..folder.saved_json import naming
from ..folder.weight_files import has_index, weight_names
from ..model.configuration_elmo import CODE_FILES
from ..text.notes import note
from .model_card import loading_line
from .model_info import look_at, new_card
from .saved_card import CARD, is_draft, named_card

# The files that a folder needs besides its weights.
NEEDED = ("config.json", "tokenizer_config.json", CARD, *CODE_FILES)
# Further files that are sent: those that decide the model's numbers, and the scores of a run.
SENT = {
    *(name for name in MODEL_FILES if name not in (WEIGHTS, SAFE_WEIGHTS_INDEX_NAME)),
    SUMS,
    "chat_template.jinja",
    "log.json",
    "curve.png",
    "all_results.json",
    "train_results.json",
    "eval_results.json",
    "test_results.json",
    "predict_results.json",
}
# Files that are read with a model because of their names; weights with other names are the user's.
READ = (*(name for name in MODEL_FILES if name != WEIGHTS), SAFE_WEIGHTS_NAME, "model-*-of-*.safetensors")
# The name of a picture that is in the folder itself; a slash or a colon would lead elsewhere.
PICTURE_NAME = r"(?:\./)?([^()<>\"'/:]+\.(?:png|jpe?g|svg))"
# A card shows a picture as ![text](name "title") or ![text](<name>), or as <img src="name">.
SHOWN_IN_MARKDOWN = re.compile(rf"!\[[^\]]*\]\(\s*<?{PICTURE_NAME}>?(?:\s+[\"'(][^)]*)?\s*\)")
SHOWN_IN_HTML = re.compile(rf"<img\s(?:[^>]*\s)?src\s*=\s*[\"']{PICTURE_NAME}[\"']", re.IGNORECASE)
ADVICE = (
    "The Hub has the whole commit or nothing of it. Pushing needs a network, and a token with write access (`hf auth "
    "login`). Run the same command again; large files that arrived are not sent twice. The reason"
)


def push_folder(
    folder: Path, name: str, *, private: bool = False, include: Sequence[str] = ()
) -> tuple[CommitInfo, list[str], str]:
    """Sends the files of a model to a Hub repository in one commit; the repository is created if needed.

    The card is sent under the repository's name; the card in the folder does not change. `SHA256SUMS` is made for what
    is sent, because code and settings may have been edited. What the repository has of an earlier model, and the folder
    has not, is removed in the same commit, because it would be read with the new model; a note names it.

    Args:
        folder: a complete model folder, as `elmo-hf convert` writes.
        name: `org/name`, or `name` in the namespace of the user.
        private: makes a new repository private; otherwise the organisation's default applies.
        include: patterns of further files.

    Returns:
        the commit, the names that were left out, and a line of Python that loads the model.

    Raises:
        ValueError: if the folder is incomplete, its weights differ from its `SHA256SUMS`, a pattern fits no file, or
            the name is illegal; nothing is sent then.
            Also if the Hub refuses the token or is out of reach, or if an upload breaks off.
    """
    needed = {*NEEDED, *weight_names(folder)}
    missing = [name for name in sorted(needed) if not is_plain_file(folder / name)]
    if missing:
        raise ValueError(
            f"there is no folder {folder} with {', '.join(missing)}, as files and not as links. "
            "`model.save_pretrained` writes weights and code, `tokenizer.save_pretrained` the tokenizer, `elmo-hf card "
            f"{folder}` the model card {CARD}."
        )
    model = look_at(folder)
    files, left_out = chosen_files(folder, include)
    load_complete(folder, model.model_class)
    sums = sums_to_send(folder, files)
    if not model.card.data.to_dict().get("license"):
        note(
            f"{folder / CARD} names no licence, so nobody knows whether they may use the model. `elmo-hf card {folder} "
            "--license NAME` writes it into the card; then push again."
        )
    if "/" not in name:
        note(f"{name} names no organisation or user, so the repository is in the account of your token.")
    api = HfApi()
    with naming(f"pushing to {name} at {constants.ENDPOINT} failed. {ADVICE}"):
        repository = api.create_repo(name, private=private or None, exist_ok=True).repo_id
        if is_draft(model.card):
            card = new_card(folder, {}, repository)
        else:
            card = named_card((folder / CARD).read_text(encoding="utf-8"), repository)
        contents = {name: folder / name for name in files} | {CARD: card.encode(), SUMS: sums.encode()}
        added = [CommitOperationAdd(name, content) for name, content in sorted(contents.items())]
        not_sent = [name for name in api.list_repo_files(repository) if name not in contents]
        of_model = [name for name in not_sent if is_of_model(name, READ)]
        stale = [name for name in of_model if not os.path.lexists(folder / name)]  # a link is not sent, but it is there
        removed = [CommitOperationDelete(name) for name in stale]
        commit = api.create_commit(repository, [*added, *removed], commit_message="Upload ELMo model")
    if stale:
        note(f"Removed from {repository}, because {folder} has no such file: {', '.join(stale)}.")
    language = model.card.data.to_dict().get("language")
    return commit, left_out, loading_line(repository, model.config, model.auto_class, commit.oid, language)


def sums_to_send(folder: Path, files: Iterable[str]) -> str:
    """The list of checksums of the files that are sent and decide the model's numbers.

    Changed weights are refused. Code and settings may have been edited; a note names those that differ from the list.
    """
    digests = {name: sha256_of_file(folder / name) for name in files if is_of_model(name)}
    recorded = {name: digest for name, digest in recorded_sums(folder).items() if is_of_model(name)}
    changed = [name for name, digest in recorded.items() if digest != digests.get(name)]
    weights = [name for name in changed if is_of_model(name, (WEIGHTS,))]
    if weights:
        raise ValueError(
            f"{folder} must have the weights of its {SUMS}, found {', '.join(weights)} missing or changed, so they may "
            f"be damaged. If you changed them yourself, delete {folder / SUMS}."
        )
    if changed:
        note(
            f"{', '.join(changed)} changed or went missing since {folder / SUMS} was written, and {folder} is sent as "
            "it is now. If you did not edit these files, save the model again, then push."
        )
    return sum_lines(digests)


def chosen_files(folder: Path, include: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files of a folder that are sent, and the names of those that are not. Links are never sent."""
    included: set[Path] = set()
    unmatched = []
    for pattern in include:
        paths = [path for path in folder.glob(pattern) if is_plain_file(path)]
        included.update(paths)
        if not paths:
            unmatched.append(repr(pattern))
    if unmatched:
        raise ValueError(f"no file of {folder} fits {', '.join(unmatched)}; a link is not sent.")
    present = sorted(folder.iterdir())
    named = _named_files(folder)
    sent = [path for path in present if is_plain_file(path) and path.name in named]
    names = sorted(path.relative_to(folder).as_posix() for path in included.union(sent))
    first_parts = {name.partition("/")[0] for name in names}  # of a file in a folder within, the name of this folder
    return names, [path.name for path in present if path.name not in first_parts]


def _named_files(folder: Path) -> set[str]:
    """The names of the files that are sent without being asked for, if they are there."""
    names = {*NEEDED, *SENT, *weight_names(folder)}
    if has_index(folder):
        names.add(SAFE_WEIGHTS_INDEX_NAME)
    card = (folder / CARD).read_text(encoding="utf-8")
    return names | _shown_pictures(card)


def _shown_pictures(card: str) -> set[str]:
    """The names of the pictures in the folder itself that a card shows."""
    pictures = [*SHOWN_IN_MARKDOWN.findall(card), *SHOWN_IN_HTML.findall(card)]
    return {unquote(picture) for picture in pictures}


def is_plain_file(path: Path) -> bool:
    """Whether a path is a file and not a link."""
    return path.is_file() and not path.is_symlink()
