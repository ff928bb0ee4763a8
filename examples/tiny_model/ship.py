"""Turns a trained model into the folder that the package ships: `python examples/tiny_model/ship.py MODEL`.

The weights are stored in half precision and load as float32. Raw text is split as `build_corpus.py` splits it. The
folder has no code, because the package has it. The run's log and curve are copied beside this file.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch

from elmo_hf import ElmoForPreTraining, ElmoTokenizer
from elmo_hf.folder.loading import load_complete
from elmo_hf.folder.model_names import TINY_FOLDER

HERE = Path(__file__).parent
LARGEST = 16 * 2**20
NOT_SHIPPED = ("*.py", "modules.json", "*sentence_*.json")  # the code, and the files that open a folder with code


def ship(source: Path, destination: Path) -> int:
    """Replaces all of the folder except its model card; returns its size in bytes.

    Raises:
        ValueError: if the folder is larger than `LARGEST` bytes.
    """
    model = load_complete(source, ElmoForPreTraining).to(torch.float16)
    for path in destination.glob("*"):
        if path.name != "README.md":
            path.unlink()
    model.save_pretrained(destination)
    ElmoTokenizer.from_pretrained(source, word_splitter="ptb").save_pretrained(destination)
    for pattern in NOT_SHIPPED:
        for path in destination.glob(pattern):
            path.unlink()
    for name in ("config.json", "tokenizer_config.json"):
        path = destination / name
        content = json.loads(path.read_text(encoding="utf-8"))
        for key in ("auto_map", "custom_pipelines", "is_local", "local_files_only"):
            content.pop(key, None)
        if "dtype" in content:
            content["dtype"] = "float32"
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for path in destination.iterdir():
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in destination.iterdir())
    if size > LARGEST:
        raise ValueError(f"{destination} has {size} bytes, more than {LARGEST}.")
    return size


def main() -> None:
    """Writes the folder and keeps the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="the finished model, such as OUT/model")
    arguments = parser.parse_args()
    print(f"{TINY_FOLDER}: {ship(arguments.model, TINY_FOLDER):,} bytes")
    for name in ("log.json", "curve.png"):
        if (arguments.model / name).exists():
            shutil.copy(arguments.model / name, HERE / name)


if __name__ == "__main__":
    main()
