"""The two files of a checkpoint, by path or address, and the biLM in them."""

import hashlib
from pathlib import Path

from huggingface_hub.constants import HF_HOME

from elmo_hf.conversion.model import bilm_of
from elmo_hf.conversion.published import BASE_URL, PUBLISHED, fetch
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles, read_allennlp

from ..model.modeling_elmo import ElmoModel

DEFAULT_OPTIONS_FILE = BASE_URL + PUBLISHED["original"].options
DEFAULT_WEIGHT_FILE = BASE_URL + PUBLISHED["original"].weights


def find_files(options_file: str | Path | None, weight_file: str | Path | None) -> AllenNlpFiles:
    """The two files on this machine; addresses are downloaded, once, to `$HF_HOME`.

    Raises:
        ValueError: if one is None.
        ConversionError: if one cannot be downloaded.
    """
    return AllenNlpFiles(_local(options_file, "options_file"), _local(weight_file, "weight_file"))


def load_bilm(files: AllenNlpFiles, requires_grad: bool) -> ElmoModel:
    """The biLM; `requires_grad` says whether it trains.

    Raises:
        ConversionError: if a file is missing or has another format.
    """
    return bilm_of(read_allennlp(files)).requires_grad_(requires_grad)


def _local(file: str | Path | None, name: str) -> Path:
    if file is None:
        raise ValueError(f"`{name}` must be a path or an address, found None; it may be None with `module` only.")
    address = str(file)
    if not address.startswith(("http://", "https://")):
        return Path(file)
    folder = Path(HF_HOME) / "elmo-hf" / hashlib.sha256(address.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return fetch(address, folder)
