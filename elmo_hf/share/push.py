"""A folder to the Hub: whole, in one commit, or not at all.

What a folder needs to load elsewhere is checked before anything is sent: without its code or its tokenizer a repository
opens in no process but ours, without some of its weights it opens with random numbers. Sending is `huggingface_hub`'s:
large files go before the commit, by their SHA-256; requests that fail are tried again; a second push sends only what
the Hub does not have.
"""

import json
from pathlib import Path

from huggingface_hub import CommitInfo, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, OfflineModeIsEnabled
from transformers.dynamic_module_utils import get_relative_import_files

from ..loading import load_complete

# Checkpoints and private notes of transformers' Trainer, and hidden files.
IGNORED = ["checkpoint-*", "_*", ".*"]


def push_folder(folder: Path, name: str, *, private: bool = False) -> CommitInfo:
    """Makes the content of a folder one commit of a Hub repository, which is created if it is not there.

    Args:
        folder: a complete model folder, as `elmo-hf convert` writes.
        name: `org/name`.
        private: whether a new repository is private; without it the organisation's default holds.

    Returns:
        the commit; its `oid` is what `revision` and `code_revision` pin.

    Raises:
        ValueError: if the folder is not complete or the name is none; nothing is sent then.
        PermissionError: if there is no token, or it may not write there.
        ConnectionError: if the Hub is out of reach or an upload broke off; it has the whole commit or nothing of it.
    """
    check_folder(folder)
    if name.count("/") != 1:
        raise ValueError(f"a Hub repository is called org/name, found {name!r}.")
    if get_token() is None:
        raise PermissionError(
            "pushing needs a token: run `hf auth login`, or set HF_TOKEN, with a token that may write "
            "(https://huggingface.co/settings/tokens)."
        )
    api = HfApi()
    try:
        api.create_repo(name, private=private or None, exist_ok=True)
        return api.upload_folder(
            repo_id=name, folder_path=folder, commit_message="Upload ELMo model", ignore_patterns=IGNORED
        )
    except HFValidationError as error:
        raise ValueError(f"{name!r} is no name of a Hub repository: {error}") from error
    except OfflineModeIsEnabled as error:
        raise ConnectionError("HF_HUB_OFFLINE is set, so nothing can be pushed; unset it.") from error
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            raise PermissionError(
                f"the Hub does not let this token write to {name}: {error.server_message or error}. Use a token with "
                f"write access to {name.split('/')[0]}, or another organisation."
            ) from error
        raise _broken_off(name, error) from error
    except HTTPError as error:
        raise _broken_off(name, error) from error


def check_folder(folder: Path) -> None:
    """Checks that a folder has all that loading it elsewhere takes.

    Raises:
        ValueError: naming the missing files and what writes them, or the missing weights.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}.")
    load_complete(folder)
    missing = [name for name in ("tokenizer_config.json", "README.md") if not (folder / name).is_file()]
    modules = set()
    for name in ("config.json", "tokenizer_config.json"):
        if name not in missing:
            modules |= _modules_of(json.loads((folder / name).read_text(encoding="utf-8")))
    missing += sorted(_absent_code(folder, modules))
    if missing:
        raise ValueError(
            f"{folder} lacks {', '.join(missing)}. `model.save_pretrained` writes weights and code, "
            "`tokenizer.save_pretrained` the tokenizer; README.md is the model card, which `elmo-hf convert` writes."
        )


def _modules_of(config: dict) -> set[str]:
    """Names of the code files that an `auto_map` refers to, as `modeling_elmo.py`."""
    references = []
    for reference in config.get("auto_map", {}).values():
        references += reference if isinstance(reference, list) else [reference]
    return {f"{reference.split('.')[0]}.py" for reference in references if reference is not None}


def _absent_code(folder: Path, modules: set[str]) -> set[str]:
    """What is not there of the modules and of those they import from beside them; of each, the first such."""
    absent = set()
    for name in modules:
        try:
            get_relative_import_files(folder / name)  # reads every one of them
        except FileNotFoundError as error:
            absent.add(Path(error.filename).name)
    return absent


def _broken_off(name: str, error: Exception) -> ConnectionError:
    return ConnectionError(
        f"pushing to {name} at {constants.ENDPOINT} broke off: {str(error).rstrip('.')}. It has the whole commit or "
        "nothing of it. Run the same command again; large files that arrived are not sent twice."
    )
