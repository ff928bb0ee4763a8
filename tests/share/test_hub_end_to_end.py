"""Pushed by one process, loaded by another that has never heard of this package: what every user of the Hub does.

Both talk to the Hub of `loopback_hub.py`, whose docstring says how far it stands for the real one.
"""

import json
import re
from pathlib import Path

import numpy as np
import transformers
from checkpoints import run_online
from fresh_process import without
from loopback_hub import LoopbackHub, Repository, StoredFile
from packaging.version import Version

from elmo_hf.hub_code import TABLE
from elmo_hf.model.configuration_elmo import AUTO_MAP

WITHOUT = without("elmo_hf", "conversion", "h5py")
COMMON = """
import json, sys
import numpy as np
import torch
import transformers

TEXTS = ["The ferry left the harbour at 7:45.", "Yes."]

def run(model, tokenizer):
    # Questions come with a text beside them.
    second = TEXTS[::-1] if type(model).__name__ == "ElmoForQuestionAnswering" else None
    with torch.no_grad():
        output = model.eval()(**tokenizer(TEXTS, second, padding=True, return_tensors="pt"))
    return output.hidden_states[-1].numpy() if "hidden_states" in output else output[0].numpy()
"""
PUSH = """
import elmo_hf
from elmo_hf import ElmoConfig, ElmoTokenizer
from huggingface_hub import list_repo_files

torch.manual_seed(20180608)
tokenizer = ElmoTokenizer(max_word_length=11)
arrays, pushed = {}, []
for auto_class, reference in json.loads(sys.argv[1]).items():
    config = ElmoConfig(max_word_length=11, char_embedding_size=5, char_filters=[[1, 3], [2, 4], [3, 6]],
                        projection_size=7, cell_size=9, num_labels=3, num_softmax_words=5)
    model = getattr(elmo_hf, reference.split(".")[-1])(config)
    if auto_class == "AutoModel":
        for part in (model, config, tokenizer):
            part.save_pretrained(f"{sys.argv[2]}.{type(part).__name__}", push_to_hub=True, repo_id="org/AutoModel")
            pushed.append(sorted(name for name in list_repo_files("org/AutoModel") if name.endswith(".py")))
    else:
        model.push_to_hub(f"org/{auto_class}")
        tokenizer.push_to_hub(f"org/{auto_class}")
    arrays[auto_class] = run(model, tokenizer)
np.savez(sys.argv[2], **arrays)
print(json.dumps(pushed))
"""
LOAD = """
from transformers import AutoConfig, AutoTokenizer, pipeline

arrays = {}
for auto_class in json.loads(sys.argv[1]):
    name = f"org/{auto_class}"
    config = AutoConfig.from_pretrained(name, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    model = getattr(transformers, auto_class).from_pretrained(name, trust_remote_code=True)
    assert all(type(part).__module__.startswith("transformers_modules.") for part in (config, tokenizer, model))
    arrays[auto_class] = run(model, tokenizer)
    for task in config.custom_pipelines:
        pipe = pipeline(task, model=name, trust_remote_code=True)
        assert pipe(TEXTS[0])
        if task == "token-classification":
            assert type(pipeline("ner", model=name, trust_remote_code=True)) is type(pipe)
    if len(config.custom_pipelines) == 1:
        assert pipeline(model=name, trust_remote_code=True).task == task
np.savez(sys.argv[2], **arrays)
"""


def test_every_auto_class_and_pipeline_loads_what_was_pushed_and_loads_it_again_offline(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    classes = json.dumps({name: reference for name, reference in AUTO_MAP.items() if name != "AutoConfig"})
    pushed = run_online(COMMON + PUSH, hub, tmp_path / "pusher", classes, tmp_path / "pushed.npz")
    for name in hub.repositories:
        card = hub.files(name)["README.md"].decode()
        assert f'"{name}", trust_remote_code=True)' in card
        assert "More Information Needed" not in card
    # The config brings the code along already, then the model, then the tokenizer.
    assert json.loads(pushed) == [sorted(f"{file}.py" for file in TABLE)] * 3
    expected = dict(np.load(tmp_path / "pushed.npz"))
    assert expected.keys() == AUTO_MAP.keys() - {"AutoConfig"}
    for variables in ({}, {"HF_HUB_OFFLINE": "1"}):
        hub.asked.clear()
        arguments = (classes, tmp_path / "loaded.npz")
        run_online(COMMON + WITHOUT + LOAD, hub, tmp_path / "user", *arguments, HF_TOKEN="", **variables)
        found = dict(np.load(tmp_path / "loaded.npz"))
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert hub.asked == []


def stored(hub: LoopbackHub, folder: Path) -> dict[str, StoredFile]:
    """The files of a folder, for a commit; the weights are in the Hub's large storage."""
    files = {path.name: StoredFile(path.read_bytes(), path.suffix == ".safetensors") for path in folder.iterdir()}
    hub.lfs |= {file.oid: file.content for file in files.values() if file.is_lfs}
    return files


FIRST_USE = """
from transformers import AutoConfig, AutoModel, AutoTokenizer

for kind in (AutoConfig, AutoTokenizer, AutoModel):
    kind.from_pretrained("org/elmo", trust_remote_code=True)
"""


def test_a_first_use_sends_few_requests_and_a_use_after_an_edit_fewer(
    hub: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    # Older versions request config.json again with each file of code.
    most = (28, 20, 0) if Version(transformers.__version__) >= Version("5.23") else (32, 24, 0)
    repository = hub.repositories["org/elmo"] = Repository(is_private=False)
    files, requests = stored(hub, tiny_folder), []
    edited = files | {"README.md": StoredFile(b"Another card.\n", is_lfs=False)}
    for content, variables in ((files, {}), (edited, {}), (edited, {"HF_HUB_OFFLINE": "1"})):
        repository.commit("main", content)
        hub.asked.clear()
        run_online(WITHOUT + FIRST_USE, hub, tmp_path, HF_TOKEN="", **variables)
        requests.append(len(hub.asked))
    assert requests[0] > 4
    assert all(found <= limit for found, limit in zip(requests, most, strict=True)), requests


INFO = """
import sys
from pathlib import Path
from typer.testing import CliRunner
from elmo_hf.cli import app

for name in ("org/elmo", sys.argv[1]):
    print(CliRunner().invoke(app, ["info", name]).stdout, end="")
for name in ("org/bert", "org/secret"):
    print(CliRunner().invoke(app, ["info", name]).stderr.splitlines()[-1])
print([path.name for path in Path(sys.argv[2]).glob("*/snapshots/*/*.safetensors")])
"""


def test_info_of_a_model_on_the_hub_downloads_no_weights_and_another_kind_or_none_is_named(
    hub: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    bert = {"config.json": StoredFile(b'{"model_type": "bert", "hidden_size": 5}', is_lfs=False)}
    elmo = stored(hub, tiny_folder)
    for name, files in (("org/elmo", elmo), ("org/bert", bert), ("org/secret", bert)):
        hub.repositories[name] = Repository(is_private=name == "org/secret")
        hub.repositories[name].commit("main", files)
    arguments = (INFO, hub, tmp_path, tiny_folder, tmp_path / "hub")
    *lines, kind, private, weights = run_online(*arguments, HF_TOKEN="").splitlines()
    assert weights == "[]", lines
    assert re.search("^Error: .*org/bert.*'bert'", kind)
    assert re.search("^Error: org/secret cannot be loaded as an ELMo model: 401 .* authenticated", private)
    there, here = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert there[0].split() == ["model", "org/elmo"]
    assert there[1:-1] == here[1:-1]
