"""An error of transformers or of its `@strict` classes as one line."""

from huggingface_hub.errors import StrictDataclassClassValidationError

MOST = 500


def one_line(error: BaseException) -> str:
    """An error's text without line breaks, cut where it quotes a long value; of a broken rule, the rule alone."""
    if isinstance(error, StrictDataclassClassValidationError) and error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return text if len(text) <= MOST else f"{text[:MOST]} ..."
