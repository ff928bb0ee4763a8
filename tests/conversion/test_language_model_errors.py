"""Checkpoints with a softmax that are refused or converted with a warning; the message gives the reason."""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checkpoints import (
    TINY_LM,
    VOCABULARY,
    assert_refused,
    bits,
    read_datasets,
    write_checkpoint,
    write_datasets,
)
from language_models import (
    WORDS,
    random_language_model,
    save_directory,
    tiny_files,
    words_file,
)

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion import convert
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp
from elmo_hf.conversion.errors import ConversionError
from elmo_hf.language_model.pretraining import ElmoForPreTraining


def test_a_save_directory_with_an_export_is_ambiguous(tmp_path: Path) -> None:
    message = (
        f"{TINY_LM} holds hdf5 files, weights.hdf5, and a TensorFlow checkpoint, model.ckpt-1.index. Choose one: give "
        f"`--options FILE` and `--weights FILE`, which is {TINY_LM / 'model.ckpt-1.index'} for the language models "
        "with their softmax, or an hdf5 file."
    )
    with pytest.raises(ConversionError, match=re.escape(message)):
        AllenNlpFiles.in_folder(TINY_LM)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["options.json", "checkpoint"], "checkpoint must name the checkpoint as `model_checkpoint_path:"),
        (["options.json", "model.ckpt-1.meta"], "holds no index of a TensorFlow checkpoint, such as"),
        (["model.ckpt-1.index"], "found model.ckpt-1.index; name the files with `--options FILE --weights FILE`."),
        (["options.json", "a_softmax.hdf5"], "found a_softmax.hdf5, options.json; name the files with"),
        (["options.json", "a.hdf5", "b_softmax.hdf5", "c_softmax.hdf5"], "found a.hdf5, b_softmax.hdf5, c_softmax"),
    ],
    ids=["empty record", "no index", "no options", "softmax alone", "two softmaxes"],
)
def test_a_folder_of_parts_is_refused(names: list[str], message: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ConversionError, match=re.escape(message)):
        AllenNlpFiles.in_folder(tmp_path)


def test_an_hdf5_file_beside_remains_of_a_checkpoint_is_taken(tmp_path: Path) -> None:
    for name in ("options.json", "w.hdf5", "checkpoint", "model.ckpt-1.meta"):
        (tmp_path / name).touch()
    assert AllenNlpFiles.in_folder(tmp_path).weights == tmp_path / "w.hdf5"


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["vocab.txt", "vocab_full.txt"], "vocab.txt"), (["a_vocab.txt", "b_vocab.txt"], None), ([], None)],
    ids=["the usual name", "two others", "none"],
)
def test_one_of_two_vocabularies_is_not_guessed(names: list[str], expected: str | None, tmp_path: Path) -> None:
    for name in ["options.json", "w.hdf5", *names]:
        (tmp_path / name).touch()
    assert AllenNlpFiles.in_folder(tmp_path).vocabulary == (tmp_path / expected if expected else None)


def test_a_language_model_without_vocabulary_embeds_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = replace(tiny_files(), vocabulary=None)
    with caplog.at_level(logging.WARNING, logger="elmo_hf.conversion.convert"):
        allennlp_to_folder(files, tmp_path / "there", source_name="tiny")
    (record,) = [record for record in caplog.records if record.name == "elmo_hf.conversion.convert"]
    assert record.getMessage() == (
        f"{files.weights} has a softmax over 28 words, but there is no vocabulary to say which: the folder embeds "
        "text, and cannot score it. Convert again with `--vocabulary FILE` (one word a line)."
    )
    assert ElmoTokenizer.from_pretrained(tmp_path / "there").num_word_classes is None
    assert ElmoForPreTraining.from_pretrained(tmp_path / "there").config.num_softmax_words == 28
    notes = folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert notes == ["there is no `words.txt` in the folder, so no `vocab.txt` says which words the softmax predicts."]
    assert not (tmp_path / "back" / "vocab.txt").exists()


def test_word_input_checkpoint_needs_its_vocabulary(tmp_path: Path) -> None:
    files = replace(save_directory("bi_word_shared", tmp_path), vocabulary=None)
    assert_refused(files, tmp_path, "model.ckpt-6.index is of a model that reads word ids, so its vocabulary is needed")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*WORDS, "more"], "vocab.txt has 12 words, but the softmax has 11; give the vocabulary that the model was"),
        (WORDS[:-1], "vocab.txt has 10 words, but the softmax has 11; give the vocabulary that the model was"),
        (WORDS[3:], "vocab.txt: the vocabulary lacks <S>, </S>, <UNK>"),
    ],
    ids=["more", "fewer", "no boundaries"],
)
def test_vocabulary_of_another_softmax_is_refused(words: list[str], message: str, tmp_path: Path) -> None:
    files, _, _ = random_language_model(0, tmp_path / "source")
    words_file(tmp_path / "source", words)
    assert_refused(files, tmp_path, message)


def test_vocabulary_of_a_word_input_model_may_not_be_shorter_than_its_softmax(tmp_path: Path) -> None:
    files = save_directory("bi_word_shared", tmp_path)
    words_file(tmp_path, VOCABULARY[:-1])
    assert_refused(files, tmp_path, "vocab.txt has 31 words, but the softmax has 32")


def set_option(name: str, value: Any) -> Callable[[AllenNlpFiles], AllenNlpFiles]:
    def change(files: AllenNlpFiles) -> AllenNlpFiles:
        options = json.loads(files.options.read_text(encoding="utf-8"))
        options[name] = value
        files.options.write_text(json.dumps(options), encoding="utf-8")
        return files

    return change


def set_softmax(**arrays: np.ndarray) -> Callable[[AllenNlpFiles], AllenNlpFiles]:
    def change(files: AllenNlpFiles) -> AllenNlpFiles:
        assert files.softmax is not None
        write_datasets(files.softmax, {f"softmax/{name}": array for name, array in arrays.items()})
        return files

    return change


def write_html(files: AllenNlpFiles) -> AllenNlpFiles:
    assert files.softmax is not None
    files.softmax.write_bytes(b"<html>404</html>")
    return files


B, W = np.ones(11, np.float32), np.ones((11, 7), np.float32)
FAULTS: dict[str, tuple[Callable[[AllenNlpFiles], AllenNlpFiles], str]] = {
    "missing file": (lambda files: replace(files, softmax=Path("none.hdf5")), "there is no weights file none.hdf5."),
    "html": (write_html, "softmax.hdf5 is not an hdf5 file; "),
    "bilm as softmax": (
        lambda files: replace(files, softmax=files.weights),
        "weights.hdf5 must hold `softmax/W` and `softmax/b`, the softmax of the language models, found CNN/W_cnn_0",
    ),
    "empty": (set_softmax(), "the softmax of the language models, found no arrays."),
    "more": (set_softmax(b=B, W=W, c=B), "found softmax/W, softmax/b, softmax/c."),
    "twice": (
        lambda files: replace(tiny_files(), softmax=files.softmax),
        "model.ckpt-1.index has a softmax already, so ",
    ),
    "no matrix": (set_softmax(b=B), "missing: `softmax/W` (11, 7)"),
    "no bias": (set_softmax(W=W), "missing: `softmax/b` (11,)"),
    "matrix transposed": (set_softmax(b=B, W=W.T), "shape: `softmax/W` must be (11, 7), found (7, 11)"),
    "whole numbers": (set_softmax(b=B.astype(int), W=W), "type: `softmax/b` must be float32, found int64"),
    "scalar bias": (set_softmax(b=np.float32(1), W=W), "`n_tokens_vocab` is 11, but `softmax/b` has 0 rows"),
    "another size": (
        set_option("n_tokens_vocab", 12),
        "options.json: `n_tokens_vocab` is 12, but `softmax/b` has 11 rows; check that the softmax belongs to these",
    ),
    "dropout": (set_option("dropout", 1.0), "`dropout` must be a number of at least 0 and below 1, or null, found"),
    "sampling": (set_option("sample_softmax", "yes"), "`sample_softmax` must be true or false, found 'yes'."),
    "samples": (set_option("n_negative_samples_batch", 12), "options.json: `num_softmax_samples` must be at most"),
    "shared by characters": (set_option("share_embedding_softmax", True), "`share_embedding_softmax` must be False"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), FAULTS.values(), ids=FAULTS)
def test_faulty_softmax_is_named(
    change: Callable[[AllenNlpFiles], AllenNlpFiles], message: str, tmp_path: Path
) -> None:
    files, options, _ = random_language_model(0, tmp_path / "source")
    assert options["lstm"]["projection_dim"] == W.shape[1]
    assert_refused(change(files), tmp_path, message)


def test_shared_softmax_has_no_matrix_of_its_own(tmp_path: Path) -> None:
    files = save_directory("bi_word_shared", tmp_path)
    options, arrays = files.read()
    del options["share_embedding_softmax"]
    hdf5 = replace(write_checkpoint(tmp_path / "a", options, arrays), vocabulary=files.vocabulary)
    assert_refused(hdf5, tmp_path, "missing: `softmax/W` (32, 8)")
    options["share_embedding_softmax"] = True
    both = write_checkpoint(tmp_path / "b", options, arrays | {"softmax/W": arrays["embedding"]})
    (tmp_path / "place").rmdir()
    assert_refused(replace(both, vocabulary=files.vocabulary), tmp_path, "unknown: `softmax/W` (32, 8)")


def test_bilm_saved_out_of_a_language_model_exports_without_softmax(tiny_lm_folder: Path, tmp_path: Path) -> None:
    ElmoModel.from_pretrained(tiny_lm_folder).save_pretrained(tmp_path / "bilm")
    assert folder_to_allennlp(tmp_path / "bilm", tmp_path / "back") == []
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["options.json", "weights.hdf5"]
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(read_datasets(TINY_LM / "weights.hdf5"))


def test_language_model_that_lacks_its_softmax_is_not_exported(tiny_lm_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "config.json").write_bytes((tiny_lm_folder / "config.json").read_bytes())
    shard = (tiny_lm_folder / "model-00001-of-00002.safetensors").read_bytes()
    (tmp_path / "source" / "model.safetensors").write_bytes(shard)
    with pytest.raises(
        ConversionError, match=r"lack `softmax\.bias`, `softmax\.weight`, which would be random numbers"
    ):
        folder_to_allennlp(tmp_path / "source", tmp_path / "to")


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_word_with_a_line_end_is_not_written(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["<S>", f"a{end}b"]
    monkeypatch.setattr(convert, "load_tokenizer", lambda source: SimpleNamespace(predicted_words=words))
    with pytest.raises(ConversionError, match="word 2 "):
        convert._vocabulary(Path("x"))
