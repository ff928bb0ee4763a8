"""Pushed by this process, loaded by one that has never heard of this package: what every user of the Hub does.

Both talk to the Hub of `loopback_hub.py`, whose docstring says how far it stands for the real one.
"""

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from packaging.version import Version

import elmo_hf
from elmo_hf import ElmoConfig, ElmoTokenizer
from elmo_hf.folder.loading import load_complete
from elmo_hf.model.configuration_elmo import AUTO_MAP, CODE_FILES
from elmo_hf.share.model_info import describe_code
from tests.helpers.checkpoints import run_online
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.fresh_process import without
from tests.helpers.loopback_hub import LoopbackHub
from tests.helpers.tiny_inputs import TINY

WITHOUT = without("elmo_hf", "conversion", "h5py")
TEXTS = ["The ferry left the harbour at 7:45.", "Yes."]


def numbers_of(model: Any, tokenizer: Any) -> np.ndarray:
    """The top layer or the logits of two texts; questions come with a text beside them."""
    second = TEXTS[::-1] if type(model).__name__ == "ElmoForQuestionAnswering" else None
    output = model.eval()(**tokenizer(TEXTS, second, padding=True, return_tensors="pt"))
    return (output.hidden_states[-1] if "hidden_states" in output else output[0]).detach().numpy()


LOAD = f"""
import json
from typing import Any

import numpy as np
import transformers
from transformers import AutoConfig, AutoTokenizer, pipeline

TEXTS = {TEXTS}
{inspect.getsource(numbers_of)}
arrays = {{}}
for auto_class in json.loads(sys.argv[1]):
    name = f"org/{{auto_class}}"
    config = AutoConfig.from_pretrained(name, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    model = getattr(transformers, auto_class).from_pretrained(name, trust_remote_code=True)
    assert all(type(part).__module__.startswith("transformers_modules.") for part in (config, tokenizer, model))
    arrays[auto_class] = numbers_of(model, tokenizer)
    for task in config.custom_pipelines:
        pipe = pipeline(task, model=name, trust_remote_code=True)
        assert pipe(TEXTS[0])
        if task == "token-classification":
            assert type(pipeline("ner", model=name, trust_remote_code=True)) is type(pipe)
    if len(config.custom_pipelines) == 1:
        assert pipeline(model=name, trust_remote_code=True).task == task
np.savez(sys.argv[2], **arrays)
"""


@pytest.mark.same_rounding
def test_every_auto_class_and_pipeline_loads_what_was_pushed(online: LoopbackHub, tmp_path: Path) -> None:
    expected = {}
    for auto_class in sorted(AUTO_MAP.keys() - {"AutoConfig"}):
        config, name = ElmoConfig(**TINY, num_labels=3, num_softmax_words=5), f"org/{auto_class}"
        model = getattr(elmo_hf, AUTO_MAP[auto_class].split(".")[-1])(config)
        tokenizer = ElmoTokenizer(max_word_length=11)
        for part in (model, model.config, tokenizer):  # the first brings the code along, the others leave it there
            if auto_class == "AutoModel":
                part.save_pretrained(tmp_path / type(part).__name__, push_to_hub=True, repo_id=name)
            else:
                part.push_to_hub(name)
            assert {path for path in online.files(name) if path.endswith(".py")} == {*CODE_FILES}
        card = online.files(name)["README.md"].decode()
        assert f'"{name}", trust_remote_code=True)' in card
        assert "More Information Needed" not in card
        expected[auto_class] = numbers_of(model, tokenizer)
    two_classes = ["AutoModelForPreTraining", "AutoModelForTokenClassification"]
    for names, variables in (([*expected], {}), (two_classes, {"HF_HUB_OFFLINE": "1"})):
        online.asked.clear()
        arguments = (json.dumps(names), tmp_path / "loaded.npz")
        run_online(WITHOUT + LOAD, online, tmp_path / "user", *arguments, HF_TOKEN="", **variables)
        loaded = dict(np.load(tmp_path / "loaded.npz"))
        assert [*loaded] == names
        for auto_class, array in loaded.items():
            np.testing.assert_array_equal(array, expected[auto_class], err_msg=auto_class)
    assert online.asked == []


FIRST_USE = """
from transformers import AutoConfig, AutoModel, AutoTokenizer

for kind in (AutoConfig, AutoTokenizer, AutoModel):
    kind.from_pretrained("org/elmo", trust_remote_code=True)
"""


def test_a_use_sends_few_requests(hub: LoopbackHub, tiny_folder: Path, tmp_path: Path) -> None:
    """The first one, the first one after an edit, and one offline."""
    # Older versions request config.json again with each file of code.
    most = (32, 22, 0) if Version(transformers.__version__) >= Version("5.23") else (36, 26, 0)
    files, requests = {path.name: path.read_bytes() for path in tiny_folder.iterdir()}, []
    edited = files | {"README.md": b"Another card.\n"}
    repository = hub.add("org/elmo", files)
    for content, variables in ((files, {}), (edited, {}), (edited, {"HF_HUB_OFFLINE": "1"})):
        repository.commit(content)
        hub.asked.clear()
        run_online(WITHOUT + FIRST_USE, hub, tmp_path, HF_TOKEN="", **variables)
        requests.append(len(hub.asked))
    assert requests[0] > 4
    assert all(found <= limit for found, limit in zip(requests, most, strict=True)), requests


def test_what_the_package_loaded_from_the_hub_is_described_and_loaded_offline(
    online: LoopbackHub, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    online.add("org/elmo", {path.name: path.read_bytes() for path in tiny_folder.iterdir()})
    described = output_of("info", "org/elmo")
    load_complete("org/elmo")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    online.asked.clear()
    assert output_of("info", "org/elmo") == described
    cache = {"HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    run_online(WITHOUT + FIRST_USE, online, tmp_path / "user", HF_TOKEN="", **cache)
    assert online.asked == []


def test_a_download_without_some_code_is_not_compared_with_this_versions(tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "download")
    (tmp_path / "download" / "heads_elmo.py").unlink()
    assert describe_code(tmp_path / "download", is_local=False) == []
    assert "heads_elmo.py is missing" in dict(describe_code(tmp_path / "download", is_local=True))["code"]


def test_info_of_a_model_on_the_hub_downloads_no_weights(
    online: LoopbackHub, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "")
    bert = {"config.json": b'{"model_type": "bert", "hidden_size": 5}'}
    online.add("org/elmo", {path.name: path.read_bytes() for path in tiny_folder.iterdir()})
    online.add("org/bert", bert)
    online.add("org/secret", bert, is_private=True)
    there, here = (output_of("info", name).splitlines() for name in ("org/elmo", tiny_folder))
    assert there[0].split() == ["model", "org/elmo"]
    *here, card_here, checksum, _ = here  # a repository has no list of checksums on this disk
    *there, card_there, _ = there
    assert [line.split()[0] for line in (card_here, checksum, card_there)] == ["card", "SHA-256", "card"]
    assert card_there.endswith("README.md")
    assert there[1:] == here[1:]
    cached = {path.name for path in (tmp_path / "cache").glob("*/snapshots/*/*")}
    assert "config.json" in cached
    assert "model.safetensors" not in cached
    assert_fails(run("info", "org/bert"), 1, "org/bert holds a model of `model_type` 'bert'")
    private = run("info", "org/secret")
    assert_fails(private, 1, "org/secret cannot be loaded as an ELMo model: 401")
    assert "authenticated" in private.stderr
