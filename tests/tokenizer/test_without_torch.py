"""The tokenizer of a folder works with transformers, tokenizers and NumPy alone, as users of an exported graph need."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from transformers.dynamic_module_utils import get_imports

from elmo_hf import ElmoConfig, ElmoTokenizer
from tests.helpers.language_models import words_file
from tests.helpers.rows import BOTH, C

TEXTS = ["The bank isn't open, 猫.", "", "Yes."]
# transformers sees torch as not installed, and an import of it fails.
CODE = """
import json
import sys

sys.modules["torch"] = None
import numpy as np
from transformers import AutoTokenizer

texts = json.loads(sys.argv[1])
for folder in sys.argv[2:]:
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    arrays = dict(tokenizer(texts, padding=True, return_tensors="np"))
    rows = [dict(tokenizer(text)) for text in texts]
    arrays |= {f"padded_{name}": array for name, array in tokenizer.pad(rows, return_tensors="np").items()}
    arrays["decoded"] = tokenizer.batch_decode(arrays["input_ids"])
    np.savez(f"{folder}/arrays.npz", **arrays)
    try:
        tokenizer(texts, padding=True, return_tensors="pt")
    except ImportError as error:
        print(error)
"""


def test_a_folders_tokenizer_gives_the_packages_ids_as_int64_where_torch_is_not_installed(tmp_path: Path) -> None:
    vocabulary = words_file(tmp_path, ["<S>", "</S>", "<UNK>", "The", "bank", "."])
    tokenizers = {
        "characters": ElmoTokenizer(),
        "words": ElmoTokenizer(token_encoder="word_embedding", vocab_file=vocabulary),
        "code-points": ElmoTokenizer(alphabet="code_points", vocab=BOTH, max_word_length=C),
    }
    for name, tokenizer in tokenizers.items():
        ElmoConfig().save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    variables = {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules"), "PYTHONPATH": ""}
    command = [sys.executable, "-c", CODE, json.dumps(TEXTS), *tokenizers]
    result = subprocess.run(
        command, cwd=tmp_path, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=100
    )
    assert result.returncode == 0, result.stderr
    refused = '`return_tensors="pt"` needs torch, which is not installed; `return_tensors="np"` does not.'
    assert result.stdout.splitlines() == [refused] * len(tokenizers)
    for name, tokenizer in tokenizers.items():
        expected = tokenizer(TEXTS, padding=True, return_tensors="pt")
        with np.load(tmp_path / name / "arrays.npz") as arrays:
            for key in ("input_ids", "attention_mask"):
                for prefix in ("", "padded_"):
                    assert arrays[prefix + key].dtype == np.int64
                    np.testing.assert_array_equal(arrays[prefix + key], expected[key].numpy())
            assert arrays["decoded"].tolist() == tokenizer.batch_decode(expected["input_ids"])


def test_transformers_asks_for_no_torch_to_open_a_folders_tokenizer(tmp_path: Path) -> None:
    ElmoTokenizer().save_pretrained(tmp_path)
    for file in ("tokenization_elmo.py", "configuration_elmo.py"):
        assert "torch" not in get_imports(tmp_path / file)
