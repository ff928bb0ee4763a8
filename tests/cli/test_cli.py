"""The command line: every form of `convert` and `embed`, the help of every verb, errors without a traceback."""

import inspect
import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from checkpoints import FIXTURES, SAVES, TINY_LM, VOCABULARY, read_datasets, write_datasets
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.cli import app
from elmo_hf.cli import app as cli
from elmo_hf.conversion import published
from elmo_hf.conversion.convert import AllenNlpFiles
from elmo_hf.embedding.embed import BATCH_WORDS, DTYPES, LAYERS
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.tokenizer.word_splitter import WORD_SPLITTERS

BASE = FIXTURES / "base_2l_relu"
WORDS = FIXTURES / "bilm_tf_edges" / "bi_word_2"
EXPORT_FORM = "--to allennlp takes SOURCE and DEST and no other option."
FORMS = "give SOURCE and DEST; with --options and --weights, or with --model, DEST alone."


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def assert_fails(result: Result, code: int, text: str) -> None:
    """The program ends with the code and the text on standard error, as a message and not as a traceback."""
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == code
    # Usage errors are wrapped to the width of the terminal.
    assert text in " ".join(result.stderr.split())
    assert re.search(r"^Error: ", result.stderr, re.MULTILINE)
    assert "Traceback" not in result.output


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text("The ferry left.\n\nIt isn't late.\n", encoding="utf-8")
    return path


def read_hdf5(path: Path) -> list[np.ndarray]:
    with h5py.File(path, "r") as file:
        return [file[str(index)][()] for index in range(len(file) - 1)]


@pytest.mark.parametrize(
    ("verb", "example"),
    [
        ("convert", "elmo-hf convert tests/fixtures/base_2l_relu tiny-elmo --check"),
        ("embed", "elmo-hf embed tiny-elmo sentences.txt -o vectors.hdf5 --layers average"),
        ("export", "elmo-hf export tiny elmo.onnx"),
        ("push", "elmo-hf push elmo-small my-org/elmo-small --private"),
        ("verify", "elmo-hf verify elmo-small"),
    ],
)
def test_help_of_each_verb_shows_its_example(verb: str, example: str) -> None:
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert f"Example: {example}" in " ".join(result.stdout.split())


def test_the_examples_run_as_they_stand(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "fixtures").symlink_to(FIXTURES)
    monkeypatch.chdir(tmp_path)
    for verb in ("convert", "embed"):
        example = " ".join(run(verb, "--help").stdout.split()).split("Example: elmo-hf ")[1]
        result = run(*example.split())
        assert result.exit_code == 0, result.output
    assert [vectors.shape for vectors in read_hdf5(tmp_path / "vectors.hdf5")] == [(4, 16), (0, 16), (5, 16)]


def test_help_lists_every_verb() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.split("Commands:")[1].splitlines() if line] == [
        "convert",
        "embed",
        "export",
        "push",
        "verify",
        "vocab",
        "pretrain",
        "score",
    ]


def test_no_verb_shows_the_help() -> None:
    assert "Commands:" in run().output


def test_an_unknown_verb_is_refused() -> None:
    assert_fails(run("train"), 2, "No such command 'train'.")


def test_convert_makes_a_folder_of_a_folder(tmp_path: Path) -> None:
    result = run("convert", BASE, tmp_path / "to")
    assert result.exit_code == 0
    load = f"Load it: AutoModel.from_pretrained('{tmp_path / 'to'}', trust_remote_code=True)"
    found = f"Found options and weights of AllenNLP, bilm-tf or simple_elmo in {BASE}."
    assert result.stdout == f"{found}\nWrote {tmp_path / 'to'}. {load}\n"
    assert ElmoModel.from_pretrained(tmp_path / "to").config.cell_size == 32
    assert "# to" in (tmp_path / "to" / "README.md").read_text(encoding="utf-8").splitlines()


def test_convert_makes_a_folder_of_two_files(tmp_path: Path) -> None:
    options, weights = tmp_path / "o.json", tmp_path / "elmo_tiny.hdf5"
    options.write_bytes((BASE / "options.json").read_bytes())
    weights.write_bytes((BASE / "weights.hdf5").read_bytes())
    result = run("convert", "--options", options, "--weights", weights, tmp_path / "to")
    assert result.exit_code == 0
    assert ElmoModel.from_pretrained(tmp_path / "to").config.cell_size == 32
    assert "# to" in (tmp_path / "to" / "README.md").read_text(encoding="utf-8").splitlines()


def test_convert_downloads_a_published_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(name: str) -> AllenNlpFiles:
        asked.append(name)
        return AllenNlpFiles.in_folder(BASE)

    monkeypatch.setattr(published, "download", download)
    result = run("convert", "--model", "5.5B", tmp_path / "to")
    assert (result.exit_code, asked) == (0, ["5.5B"])
    text = (tmp_path / "to" / "README.md").read_text(encoding="utf-8")
    assert "converted from the published 5.5B model by" in text
    assert "5.5 billion words of English" in text
    assert "license_name: no-restrictions" in text.splitlines()


def test_convert_checks_when_asked(tmp_path: Path) -> None:
    result = run("convert", BASE, tmp_path / "to", "--check")
    assert result.exit_code == 0
    pattern = r"Largest difference from the checkpoint, all layers: (\S+) \(float32 against float64\)\.\nWrote .*\n"
    match = re.fullmatch(rf"Found .*\n{pattern}", result.stdout)
    assert match is not None
    assert float(match[1]) < 1e-5


def test_convert_takes_a_vocabulary_for_word_input(tmp_path: Path) -> None:
    words = ["<S>", "</S>", "<UNK>"] + [f"word{number}" for number in range(4, 33)]
    (tmp_path / "words.txt").write_text("\n".join(words), encoding="utf-8")
    result = run("convert", WORDS, tmp_path / "to", "--vocabulary", tmp_path / "words.txt")
    assert result.exit_code == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "to")("word7 other")["input_ids"] == [1, 7, 3, 2]


def test_convert_makes_language_models_of_a_save_directory(tmp_path: Path) -> None:
    shutil.copytree(SAVES / "bi_word_shared", tmp_path / "save")
    (tmp_path / "save" / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    assert run("convert", tmp_path / "save", tmp_path / "to").exit_code == 0
    assert ElmoForPreTraining.from_pretrained(tmp_path / "to").config.num_softmax_words == 32
    result = run("convert", tmp_path / "to", tmp_path / "back", "--to", "allennlp")
    *files, last = [
        str(tmp_path / "back" / name) for name in ("options.json", "softmax.hdf5", "vocab.txt", "weights.hdf5")
    ]
    assert result.stdout.splitlines()[-1] == f"Wrote {', '.join(files)} and {last}."


def test_convert_takes_the_index_of_a_checkpoint_beside_an_export(tmp_path: Path) -> None:
    assert_fails(
        run("convert", TINY_LM, tmp_path / "to"), 1, "and a TensorFlow checkpoint, model.ckpt-1.index. Choose one"
    )
    files = ("--options", TINY_LM / "options.json", "--weights", TINY_LM / "model.ckpt-1.index")
    result = run("convert", *files, "--vocabulary", TINY_LM / "vocab.txt", tmp_path / "to")
    assert result.exit_code == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").num_word_classes == 28


def test_convert_takes_a_released_softmax(tmp_path: Path) -> None:
    with np.load(TINY_LM / "expected.npz") as archive:
        arrays = {"softmax/W": archive["softmax_W"], "softmax/b": archive["softmax_b"]}
    softmax = write_datasets(tmp_path / "softmax_weights.hdf5", arrays)
    files = ("--options", TINY_LM / "options.json", "--weights", TINY_LM / "weights.hdf5")
    result = run("convert", *files, "--softmax", softmax, "--vocabulary", TINY_LM / "vocab.txt", tmp_path / "to")
    assert result.exit_code == 0
    model = ElmoForPreTraining.from_pretrained(tmp_path / "to")
    np.testing.assert_array_equal(model.softmax.weight.detach().numpy(), arrays["softmax/W"])
    assert run("convert", tmp_path / "to", tmp_path / "back", "--to", "allennlp").exit_code == 0
    np.testing.assert_array_equal(read_datasets(tmp_path / "back" / "softmax.hdf5")["softmax/b"], arrays["softmax/b"])


def test_convert_names_a_softmax_that_is_none(tmp_path: Path) -> None:
    result = run("convert", BASE, tmp_path / "to", "--softmax", BASE / "weights.hdf5")
    assert_fails(result, 1, "weights.hdf5 must hold `softmax/W` and `softmax/b`, the softmax of the language models")
    assert list(tmp_path.iterdir()) == []


def test_convert_writes_allennlps_files_back(tiny_folder: Path, tmp_path: Path) -> None:
    result = run("convert", tiny_folder, tmp_path / "back", "--to", "allennlp")
    assert result.exit_code == 0
    options, weights = tmp_path / "back" / "options.json", tmp_path / "back" / "weights.hdf5"
    assert result.stdout == f"Wrote {options} and {weights}.\n"
    assert json.loads(options.read_text(encoding="utf-8")) == json.loads(
        (BASE / "options.json").read_text(encoding="utf-8")
    )
    with h5py.File(weights, "r") as ours, h5py.File(BASE / "weights.hdf5", "r") as theirs:
        np.testing.assert_array_equal(ours["char_embed"][()], theirs["char_embed"][()])


def test_convert_prints_the_notes_of_an_export(tmp_path: Path) -> None:
    assert run("convert", FIXTURES / "ext_max_chars_24", tmp_path / "there").exit_code == 0
    result = run("convert", "--to", "allennlp", tmp_path / "there", tmp_path / "back")
    note = "Note: bilm-tf reads these files, AllenNLP does not, because max_word_length is not 50."
    assert result.stdout.splitlines()[0] == note


FILES = ("--options", BASE / "options.json", "--weights", BASE / "weights.hdf5")
WRONG_COMBINATIONS = {
    "no path": ((), "Missing argument"),
    "source alone": (("DEST",), FORMS),
    "three paths": ((BASE, "DEST", "more"), FORMS),
    "options alone": ((*FILES[:2], "DEST"), "--options and --weights go together."),
    "weights alone": ((*FILES[2:], "DEST"), "--options and --weights go together."),
    "options and weights with source": ((*FILES, BASE, "DEST"), FORMS),
    "model with source": (("--model", "small", BASE, "DEST"), FORMS),
    "model with files": (("--model", "small", *FILES, "DEST"), FORMS),
    "export with check": ((BASE, "DEST", "--to", "allennlp", "--check"), EXPORT_FORM),
    "export with vocabulary": ((BASE, "DEST", "--to", "allennlp", "--vocabulary", "words.txt"), EXPORT_FORM),
    "export with softmax": ((BASE, "DEST", "--to", "allennlp", "--softmax", "softmax.hdf5"), EXPORT_FORM),
    "export of files": ((*FILES, "DEST", "--to", "allennlp"), EXPORT_FORM),
    "export of published": (("--model", "small", "DEST", "--to", "allennlp"), EXPORT_FORM),
    "unknown format": ((BASE, "DEST", "--to", "onnx"), "Invalid value for '--to'"),
    "unknown option": ((BASE, "DEST", "--fast"), "No such option: --fast"),
}


@pytest.mark.parametrize(("arguments", "text"), WRONG_COMBINATIONS.values(), ids=WRONG_COMBINATIONS)
def test_convert_refuses_a_wrong_combination(
    arguments: tuple, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_fails(run("convert", *arguments), 2, text)
    assert list(tmp_path.iterdir()) == []


def test_convert_names_a_source_that_is_not_there(tmp_path: Path) -> None:
    assert_fails(run("convert", tmp_path / "nowhere", tmp_path / "to"), 1, "there is no file or folder ")


def test_convert_names_an_unknown_published_model(tmp_path: Path) -> None:
    result = run("convert", "--model", "large", tmp_path / "to")
    assert_fails(result, 1, "there is no published model 'large'; known are small, medium, original, 5.5B, pt, ")


def test_convert_leaves_an_existing_destination(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "precious.txt").touch()
    assert_fails(run("convert", BASE, tmp_path / "to"), 1, "to exists already; remove it or choose another place.")
    assert [path.name for path in tmp_path.rglob("*")] == ["to", "precious.txt"]


def test_convert_names_what_cannot_be_exported(tmp_path: Path) -> None:
    result = run("convert", BASE, tmp_path / "to", "--to", "allennlp")
    assert_fails(result, 1, "base_2l_relu cannot be loaded as an ELMo model:")


def test_convert_names_a_missing_vocabulary(tmp_path: Path) -> None:
    result = run("convert", WORDS, tmp_path / "to", "--vocabulary", tmp_path / "nowhere.txt")
    assert_fails(result, 1, "nowhere.txt")
    assert list(tmp_path.iterdir()) == []


def test_convert_names_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_fails(run("convert", BASE, tmp_path / "file" / "to"), 1, "file")


def test_convert_to_the_current_folder_ends_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("convert", BASE, ".")
    assert result.exception is None or isinstance(result.exception, SystemExit)


@torch.no_grad()
def layers_of(folder: Path, sentence: str | list[str]) -> np.ndarray:
    """`(L+1, words, 2P)`, the vectors of one sentence without boundaries."""
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoModel.from_pretrained(folder).eval()
    inputs = tokenizer([sentence], is_split_into_words=isinstance(sentence, list), return_tensors="pt")
    return torch.stack(model(**inputs, output_hidden_states=True).hidden_states)[:, 0, 1:-1].numpy()


def test_embed_writes_a_file_of_vectors(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    result = run("embed", tiny_folder, corpus, "-o", tmp_path / "vectors.hdf5")
    assert result.exit_code == 0
    assert result.stdout == f"Wrote 3 sentences to {tmp_path / 'vectors.hdf5'}.\n"
    found = read_hdf5(tmp_path / "vectors.hdf5")
    assert [vectors.shape for vectors in found] == [(3, 4, 16), (3, 0, 16), (3, 5, 16)]
    for vectors, sentence in zip(found, ("The ferry left.", "", "It isn't late."), strict=True):
        np.testing.assert_allclose(vectors, layers_of(tiny_folder, sentence), rtol=0, atol=1e-6)


def test_embed_reads_standard_input(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    text = corpus.read_text(encoding="utf-8") + "Größe 日本\n"
    corpus.write_text(text, encoding="utf-8")
    assert run("embed", tiny_folder, corpus, "-o", tmp_path / "file.hdf5").exit_code == 0
    result = run("embed", tiny_folder, "-", "-o", tmp_path / "stream.hdf5", stdin=text)
    assert result.exit_code == 0
    assert result.stdout == f"Wrote 4 sentences to {tmp_path / 'stream.hdf5'}.\n"
    assert (tmp_path / "stream.hdf5").read_bytes() == (tmp_path / "file.hdf5").read_bytes()


@pytest.mark.parametrize(
    ("layers", "choose"),
    [
        ("all", lambda layers: layers),
        ("top", lambda layers: layers[-1]),
        ("average", lambda layers: layers.mean(axis=0)),
        ("mix", lambda layers: layers.mean(axis=0)),
        ("pooled", lambda layers: layers.mean(axis=(0, 1))),
    ],
)
def test_embed_keeps_the_layers_asked_for(
    layers: str, choose: object, tiny_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    assert callable(choose)
    result = run("embed", tiny_folder, corpus, "--output", tmp_path / "vectors.hdf5", "--layers", layers)
    assert result.exit_code == 0
    found = read_hdf5(tmp_path / "vectors.hdf5")
    np.testing.assert_allclose(found[2], choose(layers_of(tiny_folder, "It isn't late.")), rtol=0, atol=1e-6)


def test_embed_takes_its_other_options(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    options = ("--dtype", "float16", "--split-into-words", "--batch-words", 1, "--device", "cpu", "--layers", "top")
    assert run("embed", tiny_folder, corpus, "-o", tmp_path / "vectors.hdf5", *options).exit_code == 0
    found = read_hdf5(tmp_path / "vectors.hdf5")
    assert [vectors.shape for vectors in found] == [(3, 16), (0, 16), (3, 16)]
    expected = layers_of(tiny_folder, ["It", "isn't", "late."])[-1]
    np.testing.assert_allclose(found[2], expected.astype(np.float16), rtol=0, atol=1e-3)
    assert found[2].dtype == np.float16


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--layers", "second"), "Invalid value for '--layers'"),
        (("--dtype", "int8"), "Invalid value for '--dtype'"),
        (("--batch-words", 0), "Invalid value for '--batch-words'"),
    ],
    ids=["layers", "dtype", "batch words"],
)
def test_embed_refuses_an_illegal_option(
    options: tuple, text: str, tiny_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    assert_fails(run("embed", tiny_folder, corpus, "-o", tmp_path / "vectors.hdf5", *options), 2, text)
    assert not (tmp_path / "vectors.hdf5").exists()


def test_embed_needs_an_output(tiny_folder: Path, corpus: Path) -> None:
    assert_fails(run("embed", tiny_folder, corpus), 2, "Missing option '--output' / '-o'.")


def test_embed_names_an_unknown_suffix(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    text = "the output's suffix must be one of .hdf5, .safetensors, .npz, .parquet, found 'vectors.txt'."
    assert_fails(run("embed", tiny_folder, corpus, "-o", tmp_path / "vectors.txt"), 1, text)


def test_embed_names_a_model_that_is_not_there(corpus: Path, tmp_path: Path) -> None:
    result = run("embed", tmp_path / "nowhere", corpus, "-o", tmp_path / "vectors.hdf5")
    assert_fails(result, 1, "nowhere")


def test_embed_names_an_input_that_is_not_there(tiny_folder: Path, tmp_path: Path) -> None:
    result = run("embed", tiny_folder, tmp_path / "nowhere.txt", "-o", tmp_path / "vectors.hdf5")
    assert_fails(result, 1, "nowhere.txt.")


def test_embed_names_the_line_that_it_cannot_read(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('"fine"\n{"sentence": 1}\n', encoding="utf-8")
    result = run("embed", tiny_folder, tmp_path / "bad.jsonl", "-o", tmp_path / "vectors.hdf5")
    assert_fails(result, 1, "Error: bad.jsonl, line 2: must be a string, a list of words, or an object with")


def test_embed_leaves_an_existing_output(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "vectors.hdf5").write_bytes(b"precious")
    result = run("embed", tiny_folder, corpus, "-o", tmp_path / "vectors.hdf5")
    assert_fails(result, 1, "vectors.hdf5 exists already; remove it or choose another name.")
    assert (tmp_path / "vectors.hdf5").read_bytes() == b"precious"


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_embed_names_a_device_that_is_not_there(device: str, tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    result = run("embed", tiny_folder, corpus, "-o", tmp_path / "vectors.hdf5", "--device", device)
    assert_fails(result, 1, "Error: ")


def test_convert_writes_the_splitter_that_is_asked_for(tmp_path: Path) -> None:
    assert run("convert", BASE, tmp_path / "to", "--word-splitter", "whitespace").exit_code == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").tokenize("Don't go.") == ["Don't", "go."]


def test_embed_refuses_a_model_that_lacks_weights(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "broken")
    weights = load_file(tmp_path / "broken" / "model.safetensors")
    weights.pop("bilm.layers.1.forward_lstm.projection.weight")
    save_file(weights, tmp_path / "broken" / "model.safetensors", metadata={"format": "pt"})
    result = run("embed", tmp_path / "broken", corpus, "-o", tmp_path / "out.npz")
    assert result.exit_code == 1
    assert "lacks bilm.layers.1.forward_lstm.projection.weight, which would be random numbers." in result.stderr
    assert not (tmp_path / "out.npz").exists()


def test_embed_names_a_folder_that_is_not_there(corpus: Path, tmp_path: Path) -> None:
    result = run("embed", "nosuch", corpus, "-o", tmp_path / "out.npz")
    assert result.exit_code == 1
    assert "Error: there is no folder nosuch, and a Hub name looks like org/name." in result.stderr


def test_choices_of_the_command_line_are_those_of_the_package() -> None:
    assert [layer.value for layer in cli.Layers] == list(LAYERS)
    assert [dtype.value for dtype in cli.Dtype] == list(DTYPES)
    assert [splitter.value for splitter in cli.Splitter] == list(WORD_SPLITTERS)
    assert inspect.signature(cli.embed).parameters["batch_words"].default == BATCH_WORDS
