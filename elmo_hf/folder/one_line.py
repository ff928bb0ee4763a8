"""An error of transformers or of its `@strict` classes as one line."""

from huggingface_hub.errors import StrictDataclassClassValidationError

MOST = 1000


def one_line(error: BaseException) -> str:
    """An error's text, printable and without line breaks, cut if it is long; of a broken rule, the rule alone."""
    if isinstance(error, StrictDataclassClassValidationError) and error.__cause__ is not None:
        error = error.__cause__
    text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in " ".join(str(error).split()))
    return text if len(text) <= MOST else f"{text[:MOST]} ..."
