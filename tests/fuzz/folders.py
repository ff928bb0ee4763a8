"""Targets that open saved model folders by the package's one door: `load_complete` and `load_tokenizer`.

A loaded tensor must be, bit by bit, what the safetensors library reads under its name; a config's fields must be those
of `config.json`; the tokenizer's ids must be the valid folder's as long as its own files are unchanged; and what one
loads must run.
"""

import io
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from task_models import LSTM, make_task_model
from tiny_lm import tiny_lm, tiny_tokenizer_of, tiny_word_lm

from elmo_hf import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoPreTrainedModel,
    ElmoTokenizer,
)
from elmo_hf.folder.loading import load_complete, load_tokenizer

from .mutators import Files, mutate
from .mutators.arrays import Evil, saved
from .mutators.dice import Dice
from .outcomes import Wrong
from .target import INPUT, Target

TOKENIZER_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "words.txt")
SENTENCES = ["the ferry left", "naïve 日本語 extraordinarily unseen"]
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"[^/\\]+\.safetensors")
# Fields of the config that loading resolves: they may differ from what the file says.
RESOLVED = {"scalar_mix_weights", "hidden_size", "char_projection", "cell_projection", "bos_token_id", "eos_token_id"}


def folder_files(work: Path, model: ElmoPreTrainedModel, tokenizer: ElmoTokenizer, **saving: Any) -> Files:
    """What a saved folder holds, without code."""
    model.save_pretrained(work / "saved", **saving)
    tokenizer.save_pretrained(work / "saved")
    return {path.name: path.read_bytes() for path in (work / "saved").iterdir() if path.suffix not in (".py", ".md")}


def opening(name: str, files: Files, model_class: type[ElmoPreTrainedModel]) -> Target:
    """A target that loads a folder and its tokenizer, and embeds."""
    outputs: list[np.ndarray] = []

    def run(changed: Files) -> None:
        model = load_complete(INPUT, model_class)
        compare_tensors(model, changed)
        compare_config(model.config, changed)
        compare_outputs(model, load_tokenizer(INPUT), changed == files, outputs)

    return Target(name, files, run, rewrite=rewrite_weights)


def opening_tokenizer(name: str, files: Files) -> Target:
    """A target that loads the tokenizer alone."""
    files = {key: content for key, content in files.items() if key in TOKENIZER_FILES}
    expected: list[list[list[int]]] = []

    def run(changed: Files) -> None:
        tokenizer = load_tokenizer(INPUT)
        ids = tokenizer(SENTENCES, padding=True)["input_ids"]
        tokenizer.decode(ids[0])
        if tokenizer.num_word_classes is not None:
            tokenizer.class_words(tokenizer.word_classes(["the", "<S>", "unseen"]).tolist())
        numbers = [np.asarray(text).tolist() for text in ids]
        if not expected:
            expected.append(numbers)
        own = [key for key in TOKENIZER_FILES if key != "config.json"]
        if numbers != expected[0] and all(changed.get(key) == files.get(key) for key in own):
            raise Wrong("other ids although the tokenizer's files are the same")

    return Target(name, files, run)


def compare_tensors(model: ElmoPreTrainedModel, files: Files) -> None:
    """Raises `Wrong` if a tensor is not what the folder's files hold under its name."""
    if "model.safetensors" not in files and files.get(INDEX):
        outside = [name for name in json.loads(files[INDEX] or b"")["weight_map"].values() if not SHARD.fullmatch(name)]
        if outside:
            raise Wrong(f"loaded weights from {outside[0]!r}, which is no name of a safetensors file")
    candidates: dict[str, list[torch.Tensor]] = {}
    for name, content in files.items():
        if name.endswith(".safetensors") and content is not None:
            try:
                tensors = safetensors.torch.load(content)
            except safetensors.SafetensorError:
                continue  # a shard that the index does not name
            for key, tensor in tensors.items():
                candidates.setdefault(key.removeprefix("elmo."), []).append(tensor)
    for name, tensor in model.state_dict().items():
        found = candidates.get(name.removeprefix("elmo."), [])
        if not any(
            torch.equal(bits_of(tensor), bits_of(each.to(tensor.dtype))) and each.shape == tensor.shape
            for each in found
        ):
            if found or "scalar_mixes." not in name:
                raise Wrong(f"tensor {name} is not what the folder's files hold")


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def compare_config(config: ElmoConfig, files: Files) -> None:
    """Raises `Wrong` if a field is not what `config.json` says."""
    said = json.loads(files["config.json"] or b"")
    for name, value in said.items():
        if name not in ElmoConfig.__annotations__ or name in RESOLVED:
            continue
        found = getattr(config, name)
        listed = json.loads(json.dumps(found))
        if listed != value or isinstance(listed, bool) != isinstance(value, bool):
            raise Wrong(f"the config's {name} became another value: {value!r:.80} became {found!r:.80}")


def compare_outputs(
    model: ElmoPreTrainedModel, tokenizer: ElmoTokenizer, is_valid: bool, outputs: list[np.ndarray]
) -> None:
    """Runs the model; the first call, with the valid folder, says what comes of it."""
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        result = model(**inputs, **({"output_logits": True} if isinstance(model, ElmoForPreTraining) else {}))
    top = next(value for value in result.to_tuple() if isinstance(value, torch.Tensor)).numpy()
    if not outputs:
        outputs.append(top)
    if is_valid and not np.array_equal(top, outputs[0]):
        raise Wrong("other vectors of the same files")


def rewrite_weights(files: Files, dice: Dice) -> Files:
    """Puts weights where they should not be: pickles, names that lead outside, an index that lies."""
    weights = sorted(name for name in files if name.endswith(".safetensors"))
    kind = dice.choose("pickle", "evil pickle", "pickle shard", "outside", "index of one", "as usual")
    if kind == "as usual":
        return mutate(files, dice)
    tensors: dict[str, torch.Tensor] = {}
    for name in weights:
        tensors |= safetensors.torch.load(files[name] or b"")
    if kind in ("pickle", "evil pickle"):
        for name in [*weights, INDEX]:
            files.pop(name, None)
        content = saved(tensors | ({"evil": Evil()} if kind == "evil pickle" else {}), dice)
        return files | {dice.choose("pytorch_model.bin", "model.pt", "tf_model.h5", "flax_model.msgpack"): content}
    shard = dice.choose("part.bin", "part.pt", "part.safetensors.bin") if kind == "pickle shard" else weights[0]
    if kind == "outside":
        shard = dice.choose(
            "../input/x.safetensors", "/etc/passwd", "./x.safetensors", "a/x.safetensors", "..", "", "\0"
        )
        files["x.safetensors"] = files["a/x.safetensors"] = files[weights[0]]
    elif kind == "pickle shard":
        files[shard] = saved(tensors, dice)
    if kind != "index of one":
        del files[weights[0]]
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(tensors, shard)}
    return files | {INDEX: json.dumps(index).encode()}


def character_files(work: Path) -> Files:
    """A biLM that reads characters."""
    model = tiny_lm()
    return folder_files(work, model.elmo, tiny_tokenizer_of(model, work))


def word_files(work: Path) -> Files:
    """A biLM that reads words."""
    model = tiny_word_lm()
    return folder_files(work, model.elmo, tiny_tokenizer_of(model, work))


def language_model_files(work: Path) -> Files:
    """Both language models, with the softmax's words."""
    model = tiny_lm()
    return folder_files(work, model, tiny_tokenizer_of(model, work))


def sharded_files(work: Path) -> Files:
    """The same in several files with an index."""
    model = tiny_lm()
    files = folder_files(work, model, tiny_tokenizer_of(model, work), max_shard_size="4KB")
    assert INDEX in files
    return files


def task_files(work: Path) -> Files:
    """A tagger with a CRF and an LSTM."""
    return folder_files(work, make_task_model("crf", **LSTM), ElmoTokenizer(max_word_length=11))


def pickles(work: Path) -> Files:
    """A folder with weights in torch's form beside the right ones."""
    files = character_files(work)
    content = io.BytesIO()
    torch.save(safetensors.torch.load(files["model.safetensors"] or b""), content)
    return files | {"pytorch_model.bin": content.getvalue()}


FOLDERS = {
    "char-model": (character_files, ElmoModel),
    "word-model": (word_files, ElmoModel),
    "language-model": (language_model_files, ElmoForPreTraining),
    "sharded": (sharded_files, ElmoForPreTraining),
    "task-model": (task_files, ElmoForTokenClassification),
    "two-forms": (pickles, ElmoModel),
}


def make(kind: str, way: str, work: Path) -> Target:
    """A target by its folder and how that is opened."""
    make_files, model_class = FOLDERS[kind]
    files = make_files(work)
    if way == "tokenizer":
        return opening_tokenizer(f"{kind}-tokenizer", files)
    return opening(kind, files, model_class)


TARGETS = {
    **{kind: partial(make, kind, "load") for kind in FOLDERS},
    **{f"{kind}-tokenizer": partial(make, kind, "tokenizer") for kind in ("language-model", "word-model")},
}
