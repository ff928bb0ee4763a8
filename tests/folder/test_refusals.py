"""What the one door to model folders refuses: the part of a folder, and what the error names; nothing takes memory."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_lm import tiny_lm, tiny_tokenizer_of
from typer.testing import CliRunner

import elmo_hf
from elmo_hf import ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from elmo_hf.cli import app
from elmo_hf.folder.loading import load_complete, load_tokenizer

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHT = "elmo.bilm.layers.0.forward_lstm.input_linear.weight"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a language model in one file of weights, with nothing wrong in them."""
    folder = tmp_path_factory.mktemp("whole")
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, folder)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / INDEX).unlink()
    for path in folder.glob("*.safetensors"):
        path.unlink()
    save_file(model.state_dict(), folder / WEIGHTS, metadata={"format": "pt"})
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix not in (".py", ".md")}


@pytest.fixture
def folder(files: dict[str, bytes], tmp_path: Path) -> Path:
    (tmp_path / "it").mkdir()
    for name, content in files.items():
        (tmp_path / "it" / name).write_bytes(content)
    return tmp_path / "it"


def fields(file: str, **changes: Any) -> Callable[[Path], None]:
    """Replaces fields of a JSON file, which need not be there."""

    def change(folder: Path) -> None:
        path = folder / file
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(content | changes), encoding="utf-8")

    return change


def replaced(file: str, content: bytes | Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Replaces a file."""

    def change(folder: Path) -> None:
        path = folder / file
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)

    return change


def renamed(file: str, old: str, new: str) -> Callable[[Path], None]:
    """Replaces a name in a file of text."""
    return replaced(file, lambda content: content.replace(old.encode(), new.encode()))


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    """Changes the tensors of the file of weights."""

    def apply(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return apply


def index(**changes: Any) -> Callable[[Path], None]:
    """Puts an index in place of the one file of weights, which gets another name."""

    def apply(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder / "first.safetensors")
        names = load_file(folder / "first.safetensors").keys()
        content = {"metadata": {}, "weight_map": dict.fromkeys(names, "first.safetensors")} | changes
        (folder / INDEX).write_text(json.dumps(content), encoding="utf-8")

    return apply


def without_weights(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


CONFIG: list[tuple[str, Any]] = [
    ("model_type", "bert"),
    ("cell_size", "x"),
    ("hidden_size", 3),
    ("to_dict", 3),
    ("configuration_files", ["config.4.json"]),
    ("transformers_weights", "../x.safetensors"),
    ("num_labels", 10**9),
    ("num_labels", None),
    ("id2label", {n: "x" for n in range(100_001)}),
    ("id2label", {"0": 0}),
    ("dtype", "load"),
    ("problem_type", "x"),
    ("architectures", "x"),
    ("return_dict", 1),
    ("auto_map", []),
    ("quantization_config", 1),
    ("quantization_config", {"quant_method": "fp8"}),
    ("num_hidden_layers", 257),
    ("max_word_length", 10**6),
    ("char_filters", [[1, 1]] * 101),
    ("num_softmax_words", 10**9),
    ("cell_clip", 1e39),
]
MODEL: list[tuple[str, Callable[[Path], None], str]] = [
    *((f"{name} {value!r:.20}", fields("config.json", **{name: value}), name) for name, value in CONFIG),
    ("names of a CRF", fields("config.json", id2label={n: "x" for n in range(1001)}, use_crf=True), "id2label"),
    ("quantisation, kind", fields("config.json", quantization_config={"quant_method": "torchao"}), "(quant|torchao)"),
    ("misspelt", renamed("config.json", "forget_bias", "forget_biaz"), "forget_biaz"),
    ("nested", replaced("config.json", b'{"a":' * 100_000), "config.json"),
    ("a list", replaced("config.json", b"[]"), "config.json"),
    ("cut", replaced("config.json", lambda content: content[:-9]), "config.json"),
    ("not UTF-8", replaced("config.json", b'{"a": "\xff"}'), "config.json"),
    ("large", replaced("config.json", b'{"a": 1}' + b" " * 2**23), "config.json"),
    # which files hold weights
    ("a pickle", without_weights, f"no {WEIGHTS} and no {INDEX}.*if you trust a pytorch_model.bin, convert it"),
    ("a part", replaced("shard-00001-model-00001-of-00001.safetensors", b""), "shard-00001"),
    ("an adapter", fields("adapter_config.json", base_model_name_or_path="../x"), "adapter_config.json"),
    ("index without names", index(weight_map={}), INDEX),
    ("index of a list", index(weight_map=[]), INDEX),
    ("index without metadata", index(metadata=None), INDEX),
    ("index, a shard that is not there", index(weight_map={"x": "second.safetensors"}), "second.safetensors"),
    *(
        (f"index names {name!r}", index(weight_map={"x": name}), f"{INDEX}.*{re.escape(repr(name))}")
        for name in (
            "../x.safetensors",
            "/tmp/x.safetensors",
            "C:x.safetensors",
            "a\\x.safetensors",
            "x.bin",
            "",
            3,
            ["x"],
        )
    ),
    # what they hold
    ("no header", replaced(WEIGHTS, b""), WEIGHTS),
    ("cut header", replaced(WEIGHTS, lambda content: content[:300]), WEIGHTS),
    ("cut weights", replaced(WEIGHTS, lambda content: content[:-1]), WEIGHTS),
    ("large header", replaced(WEIGHTS, (2**40).to_bytes(8, "little")), WEIGHTS),
    ("integers", renamed(WEIGHTS, '"F32"', '"I32"'), f"{WEIGHTS}.*I32"),
    ("another shape", fields("config.json", cell_size=99), rf"{WEIGHTS}: `.*` .*396, 7.* found"),
    ("far more words", fields("config.json", num_softmax_words=10**8), f"{WEIGHTS}: `softmax.bias`"),
    ("a weight is missing", weights(lambda each: each.pop(WEIGHT)), WEIGHT.removeprefix("elmo.")),
    ("half a mix", weights(lambda each: each.pop("elmo.scalar_mixes.0.logits")), r"scalar_mixes\.0\.logits"),
    ("no weight of an ELMo", weights(lambda each: each.update({"elmp.x": torch.zeros(1)})), r"`elmp\.x`"),
]
VOCABULARY = {"<pad>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3}
TOKENIZER_CONFIG: list[tuple[str, Any]] = [
    ("max_word_length", 10**6),
    ("model_max_length", "x"),
    ("chat_template", [{"name": 3}]),
    ("model_input_names", "x"),
    ("words_file", "/etc/passwd"),
    ("vocab_file", "/etc/passwd"),
    ("tokenizer_file", "../tokenizer.json"),
    ("fast_tokenizer_files", ["../../tokenizer.4.0.json"]),
    ("init_inputs", ["char_cnn", 11, "ptb", "/etc/passwd"]),
    ("word_splitter", 3),
    ("bos_token", ["<S>"]),
    ("decode", 3),
]
TOKENIZER: list[tuple[str, Callable[[Path], None], str]] = [
    *((name, fields("tokenizer_config.json", **{name: value}), name) for name, value in TOKENIZER_CONFIG),
    ("misspelt", renamed("tokenizer_config.json", "word_splitter", "word_splittes"), "word_splittes"),
    ("no tokenizer", lambda folder: (folder / "tokenizer_config.json").unlink(), "tokenizer_config.json"),
    ("config nested", replaced("tokenizer_config.json", b"[" * 100_000), "tokenizer_config.json"),
    ("config, a list", replaced("tokenizer_config.json", b"[]"), "tokenizer_config.json"),
    ("vocabulary empty", replaced("tokenizer.json", b""), "tokenizer.json"),
    ("vocabulary, no list", fields("tokenizer.json", model=3), "tokenizer.json"),
    ("vocabulary, far ids", fields("tokenizer.json", model={"vocab": VOCABULARY | {"x": 10**8}}), "tokenizer.json"),
    ("vocabulary, text", fields("tokenizer.json", model={"vocab": VOCABULARY | {"x": "1"}}), "tokenizer.json"),
    ("added tokens", replaced("added_tokens.json", b"["), "added_tokens.json"),
    ("special tokens", replaced("special_tokens_map.json", b"[]"), "special_tokens_map.json"),
    ("special tokens name a file", fields("special_tokens_map.json", vocab_file="/etc/passwd"), "vocab_file"),
    ("words, large", lambda folder: (folder / "words.txt").open("a").truncate(2**25 + 1), "words.txt"),
    ("words, lines", replaced("words.txt", b"<S>\n</S>\n<UNK>\n" + b"the\n" * 2000), "words.txt"),
    ("words, not UTF-8", replaced("words.txt", b"<S>\n</S>\n<UNK>\n\xff\n"), "words.txt"),
    ("a template", lambda folder: (folder / "chat_template.jinja").open("w").truncate(2**24), "chat_template.jinja"),
]


@pytest.mark.parametrize(("change", "named"), [each[1:] for each in MODEL], ids=[each[0] for each in MODEL])
def test_a_model_is_refused_by_name(change: Callable[[Path], None], named: str, folder: Path) -> None:
    (folder.parent / "x.safetensors").write_bytes((folder / WEIGHTS).read_bytes())
    change(folder)
    with pytest.raises(ValueError, match=rf"(?s)^{folder}.*{named}") as error:
        load_complete(folder, ElmoForPreTraining)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("change", "named"), [each[1:] for each in TOKENIZER], ids=[each[0] for each in TOKENIZER])
def test_a_tokenizer_is_refused_by_name(change: Callable[[Path], None], named: str, folder: Path) -> None:
    change(folder)
    with pytest.raises(ValueError, match=rf"{folder}.*{named}") as error:
        load_tokenizer(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("what", "part"),
    [(what, "config.json") for what in ("embed", "score", "info", "export", "push", "pipeline", "fill-mask")]
    + [(what, "tokenizer_config.json") for what in ("embed", "info", "pipeline")],
)
def test_every_way_into_a_folder_is_by_the_door(what: str, part: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Yes .\n", encoding="utf-8")
    fields(part, max_word_length=10**6)(folder)
    if what in ("pipeline", "fill-mask"):
        with pytest.raises(ValueError, match=f"{part}.*max_word_length"):
            elmo_hf.pipeline("feature-extraction" if what == "pipeline" else what, folder)
        return
    commands = {
        "embed": ["embed", folder, tmp_path / "in.txt", "-o", tmp_path / "out.npz"],
        "score": ["score", folder, tmp_path / "in.txt"],
        "info": ["info", folder],
        "export": ["export", folder, tmp_path / "out.onnx"],
        "push": ["push", folder, "org/it"],
    }
    result = CliRunner().invoke(app, [*map(str, commands[what])], env={"HF_TOKEN": "hf_x"})
    assert result.exit_code == 1
    assert re.search(f"^Error: .*{part}.*max_word_length", result.output, re.MULTILINE)


def test_only_the_vocabulary_of_a_tokenizer_json_is_read(word_tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    word_tokenizer.save_pretrained(tmp_path)
    fields("tokenizer.json", pre_tokenizer={"type": "Bomb"}, normalizer=3, truncation={"max_length": 1})(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.get_vocab() == word_tokenizer.get_vocab()
    assert loaded("the cat saß")["input_ids"] == word_tokenizer("the cat saß")["input_ids"]


def test_names_that_no_elmo_reads_are_kept(folder: Path) -> None:
    fields("config.json", corpus="news", attn_implementation="org/kernels")(folder)
    assert load_complete(folder).config.corpus == "news"
    fields("tokenizer_config.json", chat_style="x")(folder)
    assert load_tokenizer(folder).init_kwargs["chat_style"] == "x"


def test_the_parts_of_other_classes_may_be_left_out(tiny_model: ElmoModel, tmp_path: Path) -> None:
    ElmoForTokenClassification(tiny_model.config).save_pretrained(tmp_path)
    assert load_complete(tmp_path) is not None
    assert load_complete(tmp_path, num_output_representations=1) is not None
    with pytest.raises(ValueError, match=r"`softmax\.bias`"):
        load_complete(tmp_path, ElmoForPreTraining, num_softmax_words=5)


def test_a_part_that_the_config_switched_off_is_refused(tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.config.use_crf = True
    ElmoForTokenClassification(tiny_model.config).save_pretrained(tmp_path)
    fields("config.json", use_crf=False)(tmp_path)
    with pytest.raises(ValueError, match=r"`crf.end`, `crf.start`, `crf.transitions`"):
        load_complete(tmp_path, ElmoForTokenClassification)


def test_the_parts_of_a_users_own_class_are_not_refused(tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.save_pretrained(tmp_path)
    fields("config.json", architectures=["MyTagger"])(tmp_path)
    weights(lambda each: each.update({"scorer.weight": torch.zeros(1)}))(tmp_path)
    assert load_complete(tmp_path) is not None


def test_a_mix_that_is_missing_starts_from_equal_weights(folder: Path) -> None:
    weights(lambda each: [each.pop(f"elmo.scalar_mixes.0.{part}") for part in ("logits", "scale")])(folder)
    assert load_complete(folder).scalar_mixes[0].weights.tolist() == pytest.approx([1 / 3] * 3)
