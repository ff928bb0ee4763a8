"""Loading a model for use rather than for training: every weight must be in the checkpoint."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from .modeling_elmo import ElmoModel, ElmoPreTrainedModel


def load_complete(source: str | Path, model_class: type[ElmoPreTrainedModel] = ElmoModel, **kwargs: Any) -> Any:
    """Loads a biLM, or another class of model, in evaluation mode.

    Args:
        source: a folder, or a Hub name.
        model_class: the class to load.
        **kwargs: of `from_pretrained`, as `dtype`.

    Raises:
        ValueError: if there is no such folder, it is not an ELMo model, or weights are missing, which transformers
            would make up at random.
    """
    if not Path(source).exists() and len(Path(source).parts) != 2:
        raise ValueError(f"there is no folder {source}, and a Hub name looks like org/name.")
    try:
        model, loading = model_class.from_pretrained(source, output_loading_info=True, **kwargs)
    except (OSError, RuntimeError, SafetensorError, ValueError) as error:
        raise ValueError(f"{source} cannot be loaded as an ELMo model: {error}") from error
    missing = sorted(name for name in loading["missing_keys"] if "scalar_mixes." not in name)
    if missing:
        raise ValueError(f"{source} lacks {', '.join(missing)}, which would be random numbers.")
    return model.eval()
