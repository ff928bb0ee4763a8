"""What a push needs before a model is loaded: a name and a token. Imports neither torch nor transformers."""

from huggingface_hub import get_token
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id


def check_name_and_token(name: str) -> None:
    """Checks the name of a Hub repository, and that this machine has a token.

    Raises:
        ValueError: if the name is not `org/name`.
        PermissionError: if there is no token.
    """
    if name.count("/") != 1:
        raise ValueError(f"a Hub repository is called org/name, found {name!r}.")
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(f"{name!r} is no name of a Hub repository: {error}") from error
    if get_token() is None:
        raise PermissionError(
            "pushing needs a token: run `hf auth login`, or set HF_TOKEN, with a token that may write "
            "(https://huggingface.co/settings/tokens)."
        )
