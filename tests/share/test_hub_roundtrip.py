"""A converted folder in a process that has never heard of this package: what every user of the Hub does."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import torch
from checkpoints import FIXTURES, run_python
from transformers.dynamic_module_utils import get_imports

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.hub_code import SENTENCE_FILES, TABLE

CODE = {f"{file}.py" for file in TABLE}
MAY_IMPORT = {"torch", "transformers", "huggingface_hub", "tokenizers", "safetensors", "numpy"}
MAY_IMPORT |= sys.stdlib_module_names

# An import hook refuses our package and what only our tools need, as if neither were installed.
SCRIPT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"elmo_hf", "conversion", "h5py"}:
            raise ImportError(f"{name} is not to be had here")

sys.meta_path.insert(0, Refuse())
import json
import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer, pipeline

folder, words_file, result = sys.argv[1:]
sentences = json.load(open(words_file, encoding="utf-8"))
config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
inputs = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
with torch.no_grad():
    output = model(**inputs, output_hidden_states=True)
extract = pipeline(model=folder, trust_remote_code=True)
assert extract.task == "feature-extraction", extract.task
features, _ = extract(["The bank, of the river.", "Yes ."], batch_size=2, return_tensors=True)
again = sys.argv[3] + ".saved"
model.save_pretrained(again)
tokenizer.save_pretrained(again)
reloaded = AutoModel.from_pretrained(again, trust_remote_code=True).eval()
with torch.no_grad():
    second = reloaded(**AutoTokenizer.from_pretrained(again, trust_remote_code=True)(
        sentences, is_split_into_words=True, padding=True, return_tensors="pt"
    ))
assert type(model).__module__.startswith("transformers_modules"), type(model)
assert type(tokenizer).__module__.startswith("transformers_modules"), type(tokenizer)
np.savez(
    result,
    layers=torch.stack(output.hidden_states),
    representation=output.elmo_representations[0],
    pooled=output.pooler_output,
    features=features,
    saved_again=second.elmo_representations[0],
    hidden_size=config.hidden_size,
)
"""


def test_auto_classes_and_pipeline_load_the_folder_without_the_package(tiny_folder: Path, tmp_path: Path) -> None:
    sentences = json.loads((FIXTURES / "base_2l_relu" / "sentences.json").read_text())["call1"]
    (tmp_path / "words.json").write_text(json.dumps(sentences))
    run_python(SCRIPT, tmp_path, tiny_folder, tmp_path / "words.json", tmp_path / "result.npz")
    result = np.load(tmp_path / "result.npz")
    expected = np.load(FIXTURES / "base_2l_relu" / "expected.npz")
    np.testing.assert_allclose(result["layers"], expected["layers_with_boundaries"], atol=2e-5)
    np.testing.assert_allclose(result["representation"], expected["mix_with_boundaries"][0], atol=2e-5)
    np.testing.assert_array_equal(result["saved_again"], result["representation"])
    assert result["hidden_size"] == 16
    ours = ElmoModel.from_pretrained(tiny_folder).eval()
    inputs = ElmoTokenizer.from_pretrained(tiny_folder)("The bank, of the river.", return_tensors="pt")
    with torch.no_grad():
        np.testing.assert_allclose(result["features"], ours(**inputs).last_hidden_state, atol=1e-6)


def test_a_saved_folder_holds_exactly_the_promised_files(tiny_folder: Path) -> None:
    others = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in tiny_folder.iterdir()} == CODE | others | SENTENCE_FILES.keys()
    tokenizer_config = json.loads((tiny_folder / "tokenizer_config.json").read_text())
    assert tokenizer_config["auto_map"] == {"AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None]}


def test_the_code_in_a_folder_imports_only_what_every_user_of_the_hub_has(tiny_folder: Path) -> None:
    for name in CODE:
        source = (tiny_folder / name).read_text(encoding="utf-8")
        # The line regex that transformers finds siblings with, which looks into functions and docstrings too.
        siblings = re.findall(r"^\s*from\s+\.(\S*)\s+import", source, flags=re.MULTILINE)
        assert {f"{sibling}.py" for sibling in siblings} <= CODE
        assert not re.findall(r"^\s*import\s+\.|^\s*from\s+\.\s+import", source, flags=re.MULTILINE)
        assert set(get_imports(tiny_folder / name)) <= MAY_IMPORT
        # Triton, inside a `try`, which transformers leaves out of what a user must have.
        absolute = re.findall(r"^\s*import\s+(\w+)|^\s*from\s+(\w+)[\w.]*\s+import", source, flags=re.MULTILINE)
        assert {first or second for first, second in absolute} <= MAY_IMPORT | {"triton"}
