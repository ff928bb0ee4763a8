"""Where a command computes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ..language_model.pretraining import ElmoForPreTraining
    from ..tokenizer.tokenization_elmo import ElmoTokenizer


def usable_device(device: "str | torch.device | None") -> "torch.device":
    """A device that torch can compute on; None: a GPU if there is one, else the CPU.

    Raises:
        ValueError: with torch's reason, if torch has no such device or cannot compute on it.
    """
    import torch

    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.zeros(1, device=place).item()
    except (AssertionError, ImportError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise ValueError(f"torch cannot compute on the device {device}: {reason}.") from error
    return place


def load_on_gpu(model: str) -> tuple["ElmoForPreTraining", "ElmoTokenizer"]:
    """Loads language models and their tokenizer, the models on the GPU if there is one."""
    from elmo_hf.folder.loading import load_language_models

    place = usable_device(None)
    language_model, tokenizer = load_language_models(model)
    return language_model.to(place), tokenizer
