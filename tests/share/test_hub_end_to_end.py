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
from safetensors.torch import load, save

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
    hub.part_size = 4096
    classes = json.dumps({name: reference for name, reference in AUTO_MAP.items() if name != "AutoConfig"})
    pushed = run_online(COMMON + PUSH, hub, tmp_path / "pusher", classes, tmp_path / "pushed.npz")
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


FIRST_USE = """
from transformers import AutoConfig, AutoModel, AutoTokenizer

config = AutoConfig.from_pretrained("org/elmo", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("org/elmo", trust_remote_code=True)
model = AutoModel.from_pretrained("org/elmo", trust_remote_code=True)
print(type(model).__module__.split(".")[0])
"""


def test_a_first_use_asks_the_hub_a_few_times_and_warns_little(
    hub: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    # Older versions ask for config.json again with each file of code.
    most, most_after_an_edit = (28, 20) if Version(transformers.__version__) >= Version("5.23") else (32, 24)
    repository = hub.repositories["org/elmo"] = Repository(is_private=False)
    files = versioned(hub, tiny_folder, 1)
    repository.commit("main", files)

    def use(**variables: str) -> tuple[int, int]:
        hub.asked.clear()
        code = f"import os; os.dup2(1, 2)\n{WITHOUT}{FIRST_USE}"
        *lines, module = run_online(code, hub, tmp_path, HF_TOKEN="", **variables).splitlines()
        assert module == "transformers_modules"
        # A warning about new code has a line for each file, one before and one after them.
        warned = [line for line in lines if re.search(r"A new version of the following|^- \w+\.py|^\. Make sure", line)]
        return len(hub.asked), len(warned)

    requests, lines = use()
    assert 4 < requests <= most
    assert len(TABLE) < lines <= 15
    repository.commit("main", files | {"README.md": StoredFile(b"Another card.\n", is_lfs=False)})
    assert use()[0] <= most_after_an_edit
    hub.asked.clear()
    assert use(HF_HUB_OFFLINE="1")[0] == 0


PINNED = """
import sys
from transformers import AutoModel, AutoTokenizer, pipeline

def look(**pins):
    model = AutoModel.from_pretrained("org/elmo", trust_remote_code=True, **pins)
    return [sys.modules[type(model).__module__].VERSION, int(model.token_encoder.projection.bias[0])]

first = sys.argv[1]
print(look(), look(revision=first), look(code_revision=first), look(revision="main", code_revision=first))
tokenizer = AutoTokenizer.from_pretrained("org/elmo", trust_remote_code=True, code_revision=first)
print(first in type(tokenizer).__module__)
print(first in type(pipeline(model="org/elmo", trust_remote_code=True, revision=first)).__module__)
"""


def test_a_revision_pins_weights_and_code_and_a_code_revision_the_code_alone(
    hub: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    repository = hub.repositories["org/elmo"] = Repository(is_private=False)
    first = repository.commit("main", versioned(hub, tiny_folder, 1))
    repository.commit("main", versioned(hub, tiny_folder, 2))
    printed = run_online(PINNED, hub, tmp_path, first, HF_TOKEN="")
    assert printed.splitlines() == ["[2, 2] [1, 1] [1, 2] [1, 2]", "True", "True"]


def versioned(hub: LoopbackHub, folder: Path, version: int) -> dict[str, StoredFile]:
    """The files of a folder; weights and code both tell their version."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    weights = load(files["model.safetensors"])
    weights["token_encoder.projection.bias"][0] = version
    files["model.safetensors"] = save(weights, metadata={"format": "pt"})
    files["modeling_elmo.py"] += f"\n\nVERSION = {version}\n".encode()
    stored = {name: StoredFile(content, is_lfs=name.endswith(".safetensors")) for name, content in files.items()}
    hub.lfs |= {file.oid: file.content for file in stored.values() if file.is_lfs}
    return stored


INFO = """
import sys
from pathlib import Path
from typer.testing import CliRunner
from elmo_hf.cli import app

for name in ("org/elmo", sys.argv[1]):
    print(CliRunner().invoke(app, ["info", name]).stdout, end="")
for arguments in (["embed", "org/bert", "s.txt", "-o", "v.npz"], ["info", "org/bert"]):
    print(CliRunner().invoke(app, arguments).stderr)
print([path.name for path in Path(sys.argv[2]).glob("*/snapshots/*/*.safetensors")])
"""


def test_info_of_a_model_on_the_hub_downloads_no_weights_and_another_kind_is_named(
    hub: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    hub.repositories["org/elmo"] = Repository(is_private=False)
    hub.repositories["org/elmo"].commit("main", versioned(hub, tiny_folder, 1))
    hub.repositories["org/bert"] = Repository(is_private=False)
    bert = {"config.json": StoredFile(b'{"model_type": "bert", "hidden_size": 5}', is_lfs=False)}
    hub.repositories["org/bert"].commit("main", bert)
    (tmp_path / "s.txt").write_text("Yes .\n", encoding="utf-8")
    code = f"import os; os.chdir({str(tmp_path)!r})\n{INFO}"
    *lines, weights = run_online(code, hub, tmp_path, tiny_folder, tmp_path / "hub").splitlines()
    assert weights == "[]", lines
    refusals = [line for line in lines if line.startswith("Error")]
    assert len(refusals) == 2
    assert all("org/bert" in line and "'bert'" in line for line in refusals)
    count = next(index for index, line in enumerate(lines) if line.startswith("can ")) + 1
    there, here = lines[:count], lines[count : 2 * count]
    assert there[0].split() == ["model", "org/elmo"]
    assert there[1:-1] == here[1:-1]


PRIVATE = """
import sys
from transformers import AutoModel
from typer.testing import CliRunner
from elmo_hf.cli import app

try:
    AutoModel.from_pretrained("org/secret", trust_remote_code=True)
    print("loaded")
except OSError as error:
    print(error)
result = CliRunner().invoke(app, ["embed", "org/secret", sys.argv[1], "-o", sys.argv[2]])
print("exit code", result.exit_code, result.stdout, result.stderr)
"""


def test_a_private_repository_needs_a_token_and_the_errors_say_so(
    hub: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    repository = hub.repositories["org/secret"] = Repository(is_private=True)
    repository.commit("main", versioned(hub, tiny_folder, 1))
    (tmp_path / "in.txt").write_text("Yes .\n", encoding="utf-8")
    arguments = (PRIVATE, hub, tmp_path, tmp_path / "in.txt", tmp_path / "out.npz")
    python, command_line = run_online(*arguments, HF_TOKEN="").split("exit code ")
    assert "If this is a private repository, make sure to pass a token having permission to this repo" in python
    assert command_line.startswith("1")
    assert re.search("Error: org/secret cannot be loaded as an ELMo model: 401 .* authenticated", command_line)
    assert not (tmp_path / "out.npz").exists()

    python, command_line = run_online(*arguments).split("exit code ")
    assert python == "loaded\n"
    assert command_line.startswith("0 Wrote 1 sentence")
