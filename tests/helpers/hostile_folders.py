"""The one table of saved folders that are damaged or hostile, each with a word of the error that must answer it."""

import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from elmo_hf import ElmoPreTrainedModel
from elmo_hf.folder.saved_config import MOST, MOST_NUMBER
from tests.helpers.archives import read_files, write_files
from tests.helpers.task_models import make_task_model
from tests.helpers.tiny_lm import tiny_lm, tiny_word_lm, tokenizer_of

MILLION = 1_000_000
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHT = "elmo.bilm.layers.0.forward_lstm.input_linear.weight"
NO_ERROR = "no error"
CRF = functools.partial(make_task_model, "crf")
Change = Callable[[Path], object]


@functools.cache
def saved(kind: Callable[..., ElmoPreTrainedModel] = tiny_lm, max_shard_size: str = "1GB") -> dict[str, bytes]:
    """The files of a model, a language model unless another kind is given, with nothing wrong in them."""
    model = kind()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        tokenizer_of(model).save_pretrained(folder)
        files = read_files(Path(folder))
    return {name: content for name, content in files.items() if not name.endswith((".py", ".md"))}


def fields(file: str, **changes: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / file
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(content | changes), encoding="utf-8")

    return change


def in_both_configs(**changes: Any) -> Change:
    """Changes fields that the configs of a model and of its tokenizer share."""

    def change(folder: Path) -> None:
        for file in ("config.json", "tokenizer_config.json"):
            fields(file, **changes)(folder)

    return change


def holding(file: str, content: bytes | Callable[[bytes], bytes], size: int = 0) -> Change:
    """Replaces a file, followed by zeros that take no room on the disk, up to `size` bytes."""

    def change(folder: Path) -> None:
        path = folder / file
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)
        os.truncate(path, max(size, path.stat().st_size))

    return change


def renamed(file: str, old: str, new: str) -> Change:
    return holding(file, lambda content: content.replace(old.encode(), new.encode()))


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Change:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return apply


def index(**changes: Any) -> Change:
    """Puts an index in place of the one file of weights, which gets another name; a good one lies outside."""

    def apply(folder: Path) -> None:
        (folder.parent / "x.safetensors").write_bytes((folder / WEIGHTS).read_bytes())
        names = load_file(folder / WEIGHTS).keys()
        (folder / WEIGHTS).rename(folder / "first.safetensors")
        content = {"metadata": {}, "weight_map": dict.fromkeys(names, "first.safetensors")} | changes
        (folder / INDEX).write_text(json.dumps(content), encoding="utf-8")

    return apply


def with_header(header: bytes) -> Change:
    return holding(WEIGHTS, len(header).to_bytes(8, "little") + header)


def with_vocabulary(**words: Any) -> Change:
    """A folder of a model that reads words, with further ones in its vocabulary."""

    def change(folder: Path) -> None:
        write_files(folder, saved(tiny_word_lm))
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        content["model"]["vocab"] |= words
        (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")

    return change


LARGE = "must be a file of at most"
# What the largest value of a field meets.
FOUND = dict.fromkeys(("vocab_size", "char_embedding_size", "cell_size", "num_softmax_words"), "found `")
FOUND |= {
    "projection_size": "`hidden_size`",
    "num_hidden_layers": "would be random",
    "num_highway_layers": "would be random",
}
CONFIG: list[tuple[str, Any]] = [
    ("model_type", "bert"),
    ("cell_size", "x"),
    ("hidden_size", 3),
    ("num_labels", 10**9),
    ("num_labels", None),
    ("id2label", {n: "x" for n in range(100_001)}),
    ("id2label", {"0": 0}),
    ("dtype", "load"),
    ("architectures", "x"),
    ("task_specific_params", "x"),
    ("quantization_config", 1),
    ("quantization_config", {"quant_method": "torchao"}),
    ("num_hidden_layers", 257),
    ("char_filters", [[1, 1]] * 101),
    ("num_softmax_words", 10**9),
    ("cell_clip", 1e39),
]
TOKENIZER: list[tuple[str, Any]] = [
    ("max_word_length", 50 * MILLION),
    ("max_word_length", None),
    ("max_word_length", 0),
    ("model_max_length", "bytes"),
    ("saved_vocabularies", 3),
    ("words_file", "/etc/passwd"),
    ("vocab_file", "/etc/passwd"),
    ("tokenizer_file", "../tokenizer.json"),
    ("fast_tokenizer_files", ["../../tokenizer.4.0.json"]),
    ("init_inputs", ["char_cnn", 11, "ptb", "/etc/passwd"]),
    ("word_splitter", 3),
    ("bos_token", ["<S>"]),
]
OUTSIDE = ("../x.safetensors", "/tmp/x.safetensors", "C:x.safetensors", "a\\x.safetensors", "x.bin", "", 3, ["x"])
TENSORS = {f"t{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(60_000)}
HOSTILE_FOLDERS: dict[str, tuple[Change, str]] = {
    **{f"{name} {value!r:.20}": (fields("config.json", **{name: value}), name) for name, value in CONFIG},
    **{
        # No weight of this model has the size of the others.
        f"most {name}": (fields("config.json", **{name: MOST.get(name, MOST_NUMBER)}), FOUND.get(name, NO_ERROR))
        for name in FOUND | MOST
        if name not in ("largest id", "max_word_length")
    },
    "most max_word_length": (in_both_configs(max_word_length=MOST["max_word_length"]), NO_ERROR),
    "longer words of the tokenizer": (fields("tokenizer_config.json", max_word_length=12), "`max_word_length` of the"),
    "longer words of the model": (fields("config.json", max_word_length=12), "`max_word_length` of the"),
    "words of the model": (fields("config.json", token_encoder="word_embedding"), "'word_embedding', found 'char_cnn'"),
    "labels of a CRF": (
        lambda folder: (write_files(folder, saved(CRF)), fields("config.json", num_labels=10**5)(folder)),
        "`crf.end",
    ),
    "filters": (fields("config.json", char_filters=[[1, 2**14]] * 100), "cannot be loaded"),
    "a large filter": (fields("config.json", char_filters=[[1, 10**30]]), "`char_filters.0`"),
    "misspelt": (renamed("config.json", "forget_bias", "forget_biaz"), "forget_biaz"),
    "nested": (holding("config.json", b'{"a":' * MILLION), "config.json is damaged"),
    "wide": (holding("config.json", b'{"a": [' + b"{}," * MILLION + b"1]}"), "cannot be loaded"),
    "a list": (holding("config.json", b"[]"), "config.json"),
    "cut": (holding("config.json", lambda content: content[:-9]), "config.json"),
    "not UTF-8": (holding("config.json", b'{"a": "\xff"}'), "config.json"),
    "large": (holding("config.json", b'{"a": 1}', 1 << 32), LARGE),
    # which files hold weights
    "a pickle": (
        lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"),
        "if you trust a pytorch_model.bin",
    ),
    "a part": (holding("shard-00001-model-00001-of-00001.safetensors", b""), "shard-00001"),
    "an adapter": (fields("adapter_config.json", base_model_name_or_path="../x"), "adapter_config.json"),
    "index without names": (index(weight_map={}), INDEX),
    "index of a list": (index(weight_map=[]), INDEX),
    "index without metadata": (index(metadata=None), INDEX),
    "index, metadata of a number": (index(metadata=0.5), INDEX),
    "index, a file that is not there": (index(weight_map={"x": "second.safetensors"}), "second.safetensors"),
    "index, large": (lambda folder: (index()(folder), holding(INDEX, b"{", 1 << 32)(folder)), LARGE),
    **{f"index names {name!r}": (index(weight_map={"x": name}), INDEX) for name in OUTSIDE},
    # what they hold
    "no header": (holding(WEIGHTS, b""), WEIGHTS),
    "cut header": (holding(WEIGHTS, lambda content: content[:300]), WEIGHTS),
    "cut weights": (holding(WEIGHTS, lambda content: content[:-1]), WEIGHTS),
    "large header": (holding(WEIGHTS, (2**40).to_bytes(8, "little")), "header too"),
    "header of junk": (with_header(b"{" * (1 << 22)), "is damaged"),
    "header of many tensors": (with_header(json.dumps(TENSORS).encode()), "would be random"),
    "integers": (renamed(WEIGHTS, '"F32"', '"I32"'), "I32"),
    "another shape": (fields("config.json", cell_size=99), "(396, 7)"),
    "a weight is missing": (weights(lambda each: each.pop(WEIGHT)), WEIGHT.removeprefix("elmo.")),
    "half a mix": (weights(lambda each: each.pop("elmo.scalar_mixes.0.logits")), "`scalar_mixes.0.logits`"),
    "no weight of an ELMo": (weights(lambda each: each.update({"elmp.x": torch.zeros(1)})), "`elmp.x`"),
    # the tokenizer
    **{
        f"tokenizer {name} {value!r:.20}": (fields("tokenizer_config.json", **{name: value}), name)
        for name, value in TOKENIZER
    },
    "tokenizer, misspelt": (renamed("tokenizer_config.json", "word_splitter", "word_splittes"), "word_splittes"),
    "no tokenizer": (lambda folder: (folder / "tokenizer_config.json").unlink(), "tokenizer_config.json"),
    "tokenizer, large": (holding("tokenizer_config.json", b"{", 1 << 32), LARGE),
    "tokenizer, a list": (holding("tokenizer_config.json", b"[]"), "tokenizer_config.json"),
    "vocabulary, nested": (holding("tokenizer.json", b'{"a":' * MILLION), "tokenizer.json is damaged"),
    "vocabulary, large": (holding("tokenizer.json", b"{", 1 << 34), LARGE),
    "vocabulary, far ids": (with_vocabulary(x=10**8), "largest id"),
    "vocabulary, text": (with_vocabulary(x="1"), "tokenizer.json"),
    "special tokens name a file": (fields("special_tokens_map.json", vocab_file="/etc/passwd"), "vocab_file"),
    "added tokens": (holding("added_tokens.json", b"["), "added_tokens.json"),
    "words, large": (holding("words.txt", b"x", 1 << 31), "words.txt"),
    "words, not UTF-8": (holding("words.txt", b"<S>\n</S>\n<UNK>\n\xff\n"), "words.txt"),
    "a template": (holding("chat_template.jinja", b"", 1 << 26), "chat_template.jinja"),
    # what nothing reads
    "to_dict": (fields("config.json", to_dict=3, corpus="news"), NO_ERROR),
}
