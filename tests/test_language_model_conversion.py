"""Checkpoints with a softmax: TensorFlow's save directories, and the released hdf5 softmax, there and back."""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import (
    EDGES,
    SAVES,
    TINY_LM,
    VOCABULARY,
    Arrays,
    Options,
    assert_refused,
    bits,
    random_checkpoint,
    random_options,
    read_datasets,
    shared,
    write_checkpoint,
    write_datasets,
)
from safetensors.numpy import load_file
from tensor_bundles import write_bundle
from transformers import AutoModel, AutoModelForPreTraining, pipeline

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp
from elmo_hf.conversion.errors import ConversionError
from elmo_hf.pretraining import ElmoForPreTraining

WORDS = ["<S>", "</S>", "<UNK>", "the", "a", "ferry", "the ", "naïve", "日本", "x", "y"]
LANGUAGE_MODEL_OPTIONS = {
    "n_tokens_vocab": len(WORDS),
    "dropout": 0.25,
    "sample_softmax": True,
    "n_negative_samples_batch": 5,
    "share_embedding_softmax": False,
}


def tiny_files() -> AllenNlpFiles:
    return AllenNlpFiles(TINY_LM / "options.json", TINY_LM / "model.ckpt-1.index", TINY_LM / "vocab.txt")


@pytest.fixture(scope="module")
def tiny_language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of bilm-tf's own tiny language model."""
    folder = tmp_path_factory.mktemp("conversion") / "tiny_lm"
    difference = allennlp_to_folder(tiny_files(), folder, source_name="tiny", check=True)
    assert difference is not None
    assert difference < 1e-5
    return folder


def words_file(folder: Path, words: list[str], name: str = "vocab.txt") -> Path:
    (folder / name).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return folder / name


def random_language_model(seed: int, folder: Path, **changes: Any) -> tuple[AllenNlpFiles, Options, Arrays]:
    """An odd character model with a softmax of its own file over `WORDS`, in files."""
    options, cell_projection, char_projection = random_options(seed)
    options |= LANGUAGE_MODEL_OPTIONS | changes
    arrays = random_checkpoint(options, seed, cell_projection=cell_projection, char_projection=char_projection)
    generator = np.random.default_rng(100 + seed)
    softmax = {
        "softmax/W": generator.normal(size=(len(WORDS), options["lstm"]["projection_dim"])).astype(np.float32),
        "softmax/b": generator.normal(size=len(WORDS)).astype(np.float32),
    }
    files = write_checkpoint(folder, options, arrays)
    softmax_file = write_datasets(folder / "softmax.hdf5", softmax)
    return replace(files, softmax=softmax_file, vocabulary=words_file(folder, WORDS)), options, arrays | softmax


def state_of(folder: Path) -> Arrays:
    state: Arrays = {}
    for path in folder.glob("*.safetensors"):
        state |= load_file(path)
    return state


def test_losses_are_those_that_bilm_tf_computed(tiny_language_model: Path) -> None:
    model = AutoModelForPreTraining.from_pretrained(tiny_language_model, trust_remote_code=True).eval()
    with np.load(TINY_LM / "expected.npz") as archive:
        expected = dict(archive)
    state = None
    for batch in range(3):

        def tensor(name: str, batch: int = batch) -> torch.Tensor:
            return torch.from_numpy(expected[f"batch{batch}_{name}"].astype(np.int64))

        with torch.no_grad():
            outputs = model(
                tensor("forward_char_ids") + 1,
                backward_input_ids=tensor("backward_char_ids") + 1,
                forward_targets=tensor("forward_targets"),
                backward_targets=tensor("backward_targets"),
                state=state,
            )
        state = outputs.state
        for ours, theirs in (
            ("forward_loss", "forward_loss"),
            ("backward_loss", "backward_loss"),
            ("loss", "total_loss"),
        ):
            assert outputs[ours].item() == pytest.approx(expected[f"batch{batch}_{theirs}"].item(), abs=2e-6)


def test_softmax_is_the_checkpoints_own_bit_by_bit(tiny_language_model: Path) -> None:
    state = state_of(tiny_language_model)
    with np.load(TINY_LM / "expected.npz") as expected:
        np.testing.assert_array_equal(state["softmax.weight"], expected["softmax_W"])
        np.testing.assert_array_equal(state["softmax.bias"], expected["softmax_b"])


def test_training_options_become_fields(tiny_language_model: Path) -> None:
    config = ElmoConfig.from_pretrained(tiny_language_model)
    found = (config.num_softmax_words, config.softmax, config.num_softmax_samples, config.lm_dropout)
    assert found == (28, "sampled", 8, 0.1)
    assert (config.share_embedding_softmax, config.vocab_size, config.architectures) == (
        False,
        262,
        ["ElmoForPreTraining"],
    )


def test_softmax_lies_in_a_shard_of_its_own(tiny_language_model: Path) -> None:
    first, second = (tiny_language_model / f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    assert {name.split(".")[0] for name in load_file(first)} == {"elmo"}
    assert sorted(load_file(second)) == ["softmax.bias", "softmax.weight"]
    assert not (tiny_language_model / "model.safetensors").exists()
    index = json.loads((tiny_language_model / "model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["weight_map"] == dict.fromkeys(load_file(first), first.name) | dict.fromkeys(
        load_file(second), second.name
    )
    sizes = [tensor.nbytes for tensor in state_of(tiny_language_model).values()]
    assert index["metadata"] == {"total_size": sum(sizes)}


def test_bilm_of_a_language_model_is_that_of_its_export(
    tiny_language_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    allennlp_to_folder(
        AllenNlpFiles(TINY_LM / "options.json", TINY_LM / "weights.hdf5"), tmp_path / "bilm", source_name="b"
    )
    bilm = load_file(tmp_path / "bilm" / "model.safetensors")
    language_model = state_of(tiny_language_model)
    elmo = {name.removeprefix("elmo."): tensor for name, tensor in language_model.items() if name.startswith("elmo.")}
    assert bits(elmo) == bits(bilm)
    model, loading = ElmoModel.from_pretrained(tiny_language_model, output_loading_info=True)
    assert not loading["unexpected_keys"]
    assert all("scalar_mixes." in name for name in loading["missing_keys"])
    inputs = ElmoTokenizer.from_pretrained(tiny_language_model)("the ferry left", return_tensors="pt")
    with torch.no_grad():
        ours = model.eval()(**inputs).last_hidden_state
        theirs = AutoModel.from_pretrained(tmp_path / "bilm", trust_remote_code=True).eval()(**inputs).last_hidden_state
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert ElmoConfig.from_pretrained(tmp_path / "bilm").num_softmax_words is None


def test_feature_extraction_opens_the_folder_of_a_language_model(tiny_language_model: Path) -> None:
    texts = ["the ferry left", "the"]
    extract = pipeline("feature-extraction", model=str(tiny_language_model), trust_remote_code=True, batch_size=2)
    found = [torch.tensor(vectors) for vectors in extract(texts)]
    model = ElmoModel.from_pretrained(tiny_language_model).eval()
    for text, vectors in zip(texts, found, strict=True):
        inputs = ElmoTokenizer.from_pretrained(tiny_language_model)(text, return_tensors="pt")
        with torch.no_grad():
            expected = model(**inputs).last_hidden_state
        torch.testing.assert_close(vectors[:, : expected.shape[1]], expected, rtol=0, atol=1e-6)


def test_tokenizer_knows_the_words_of_the_softmax(tiny_language_model: Path) -> None:
    tokenizer = ElmoTokenizer.from_pretrained(tiny_language_model)
    words = (TINY_LM / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert tokenizer.class_words(range(28)) == words
    assert tokenizer.word_classes(["ferry", "unseen", "</S>"]).tolist() == [words.index("ferry"), 2, 1]


@pytest.mark.parametrize("seed", range(6))
def test_a_released_softmax_beside_the_bilm_returns_bit_by_bit(seed: int, tmp_path: Path) -> None:
    files, options, arrays = random_language_model(seed, tmp_path / "source", sample_softmax=seed % 2 == 0)
    allennlp_to_folder(files, tmp_path / "there", source_name="random", check=True)
    state = state_of(tmp_path / "there")
    np.testing.assert_array_equal(state["softmax.weight"], arrays["softmax/W"])
    assert folder_to_allennlp(tmp_path / "there", tmp_path / "back") == folder_to_allennlp_notes(options)
    back = tmp_path / "back"
    assert sorted(path.name for path in back.iterdir()) == [
        "options.json",
        "softmax.hdf5",
        "vocab.txt",
        "weights.hdf5",
    ]
    softmax = read_datasets(back / "softmax.hdf5")
    assert list(softmax) == ["softmax/W", "softmax/b"]
    assert bits(read_datasets(back / "weights.hdf5") | softmax) == bits(arrays)
    returned = json.loads((back / "options.json").read_text(encoding="utf-8"))
    for clip in ("cell_clip", "proj_clip"):
        options["lstm"][clip] = options["lstm"][clip] or None
    assert returned == options
    expected = [word.strip() for word in WORDS]
    expected[3] = "<unused4>"  # "the" stands for the second time in line 7
    assert (back / "vocab.txt").read_text(encoding="utf-8").splitlines() == expected
    assert AllenNlpFiles.in_folder(back) == AllenNlpFiles(
        back / "options.json", back / "weights.hdf5", back / "vocab.txt", back / "softmax.hdf5"
    )


def folder_to_allennlp_notes(options: Options) -> list[str]:
    """Whether AllenNLP reads the biLM has nothing to do with the softmax."""
    lstm, char_cnn = options["lstm"], options["char_cnn"]
    reasons = {
        "use_skip_connections is off": not lstm["use_skip_connections"],
        "max_word_length is not 50": char_cnn["max_characters_per_token"] != 50,
        "there is no projection after the character CNN": sum(count for _, count in char_cnn["filters"])
        == lstm["projection_dim"],
        "there is no projection in the cell": lstm["dim"] == lstm["projection_dim"],
    }
    found = " and ".join(reason for reason, holds in reasons.items() if holds)
    return [f"bilm-tf reads these files, AllenNLP does not, because {found}."] if found else []


def test_options_without_training_keep_the_configs_own_defaults(tmp_path: Path) -> None:
    files, options, _ = random_language_model(0, tmp_path / "source")
    for key in LANGUAGE_MODEL_OPTIONS:
        del options[key]
    files.options.write_text(json.dumps(options), encoding="utf-8")
    allennlp_to_folder(files, tmp_path / "there", source_name="random")
    config, default = ElmoConfig.from_pretrained(tmp_path / "there"), ElmoConfig()
    assert config.num_softmax_words == len(WORDS)
    for field in ("softmax", "num_softmax_samples", "lm_dropout", "share_embedding_softmax"):
        assert getattr(config, field) == getattr(default, field)


def save_directory(name: str, work: Path) -> AllenNlpFiles:
    """One of `bilm_tf_edges` as a save directory, with a vocabulary of 32 words."""
    folder = SAVES / name if (SAVES / name).is_dir() else shared("fixtures", "bilm_tf_edges", name)
    return AllenNlpFiles(folder / "options.json", folder / "model.ckpt-6.index", words_file(work, VOCABULARY))


@pytest.mark.parametrize("name", ["bi_char_1layer", "bi_char_noproj", "bi_word_2", "bi_word_shared"])
def test_save_directory_of_an_unusual_shape_converts_and_returns(name: str, tmp_path: Path) -> None:
    files = save_directory(name, tmp_path)
    has_characters = name.startswith("bi_char")
    difference = allennlp_to_folder(files, tmp_path / "there", source_name=name, check=has_characters)
    assert difference is None or difference < 1e-5
    model = ElmoForPreTraining.from_pretrained(tmp_path / "there")
    assert model.config.num_softmax_words == len(VOCABULARY)
    assert model.config.share_embedding_softmax == (name == "bi_word_shared")
    assert ("softmax.weight" in model.state_dict()) == (name != "bi_word_shared")
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    _, arrays = files.read()
    expected = {name.replace("/RNN/LSTMCell/", "/RNN/MultiRNNCell/Cell0/LSTMCell/"): arrays[name] for name in arrays}
    returned = read_datasets(tmp_path / "back" / "weights.hdf5") | read_datasets(tmp_path / "back" / "softmax.hdf5")
    assert bits(returned) == bits(expected)
    assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines() == VOCABULARY
    allennlp_to_folder(AllenNlpFiles.in_folder(tmp_path / "back"), tmp_path / "again", source_name=name)
    assert bits(state_of(tmp_path / "again")) == bits(state_of(tmp_path / "there"))
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "there" / "config.json").read_bytes()


def test_one_layer_of_a_checkpoint_is_that_of_its_export(tmp_path: Path) -> None:
    _, arrays = save_directory("bi_char_1layer", tmp_path).read()
    softmax = {name: arrays.pop(name) for name in ("softmax/W", "softmax/b")}
    assert bits(arrays) == bits(read_datasets(EDGES / "bi_char_1layer" / "w.hdf5"))
    assert {name: array.shape for name, array in softmax.items()} == {"softmax/W": (32, 8), "softmax/b": (32,)}


def test_shared_softmax_scores_with_the_word_embedding(tmp_path: Path) -> None:
    files = save_directory("bi_word_shared", tmp_path)
    allennlp_to_folder(files, tmp_path / "there", source_name="shared")
    model = ElmoForPreTraining.from_pretrained(tmp_path / "there").eval()
    inputs = ElmoTokenizer.from_pretrained(tmp_path / "there")("the ferry word7", return_tensors="pt")
    _, arrays = files.read()
    with torch.no_grad():
        logits = model(**inputs, output_logits=True).forward_logits.numpy()
        top = model.elmo(**inputs).last_hidden_state[..., :8].numpy()
    expected = top @ arrays["embedding"].T + arrays["softmax/b"]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-6)


def test_one_direction_checkpoint_is_refused(tmp_path: Path) -> None:
    arrays = {
        "lm/char_embed": np.ones((261, 4), np.float32),
        "lm/rnn/multi_rnn_cell/cell_0/lstm_cell/kernel": np.ones((16, 64), np.float32),
        "lm/softmax/b": np.ones(32, np.float32),
    }
    write_bundle(tmp_path / "model.ckpt-6", arrays)
    files = AllenNlpFiles(EDGES / "uni_char_2" / "options.json", tmp_path / "model.ckpt-6.index")
    message = "these weights are of a one-direction language model; an ELMo reads in both directions."
    assert_refused(files, tmp_path, message)


def test_one_direction_save_directory_of_bilm_tf_is_refused(tmp_path: Path) -> None:
    message = "these weights are of a one-direction language model; an ELMo reads in both directions."
    assert_refused(save_directory("uni_char_2", tmp_path), tmp_path, message)


def test_trained_save_directory_converts(tmp_path: Path) -> None:
    folder = shared("fixtures", "bilm_tf_trained")
    vocabulary = shared("data", "wikitext2", "bilm_reference", "vocab_full.txt")
    files = AllenNlpFiles(folder / "options.json", folder / "model.ckpt-1484.index", vocabulary)
    difference = allennlp_to_folder(files, tmp_path / "there", source_name="trained", check=True)
    assert difference is not None
    assert difference < 1e-5
    assert ElmoConfig.from_pretrained(tmp_path / "there").softmax == "full"
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(read_datasets(folder / "lm_weights.hdf5"))


@pytest.mark.parametrize("name", ["bi_char_1layer", "bi_word_shared"])
def test_files_of_a_save_directory_are_found(name: str, tmp_path: Path) -> None:
    for path in (SAVES / name).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    vocabulary = words_file(tmp_path, VOCABULARY, "my_vocab.txt")
    files = AllenNlpFiles(tmp_path / "options.json", tmp_path / "model.ckpt-6.index", vocabulary)
    assert AllenNlpFiles.in_folder(tmp_path) == files
    assert files.paths == [
        tmp_path / "options.json",
        tmp_path / "model.ckpt-6.index",
        tmp_path / "model.ckpt-6.data-00000-of-00001",
    ]


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
    "dropout": (set_option("dropout", 1.0), "options.json: `lm_dropout` must be in [0, 1), found 1.0."),
    "sampling": (set_option("sample_softmax", "yes"), "options.json: `softmax` must be one of 'full', 'sampled'"),
    "samples": (set_option("n_negative_samples_batch", 12), "options.json: `num_softmax_samples` may be at most"),
    "shared by characters": (set_option("share_embedding_softmax", True), "`share_embedding_softmax` needs"),
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


def test_adaptive_softmax_has_no_place_in_the_format(tiny_config: ElmoConfig, tmp_path: Path) -> None:
    fields = tiny_config.to_dict() | {"num_softmax_words": 40, "softmax": "adaptive", "softmax_cutoffs": [5]}
    ElmoForPreTraining(ElmoConfig(**fields)).save_pretrained(tmp_path / "source")
    message = "bilm-tf's format has no place for an adaptive softmax; save the model's `elmo` alone to export the biLM."
    with pytest.raises(ConversionError, match=re.escape(message)):
        folder_to_allennlp(tmp_path / "source", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_bilm_saved_out_of_a_language_model_exports_without_softmax(tiny_language_model: Path, tmp_path: Path) -> None:
    ElmoModel.from_pretrained(tiny_language_model).save_pretrained(tmp_path / "bilm")
    assert folder_to_allennlp(tmp_path / "bilm", tmp_path / "back") == []
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["options.json", "weights.hdf5"]
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(read_datasets(TINY_LM / "weights.hdf5"))


def test_language_model_that_lacks_its_softmax_is_not_exported(tiny_language_model: Path, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "config.json").write_bytes((tiny_language_model / "config.json").read_bytes())
    shard = (tiny_language_model / "model-00001-of-00002.safetensors").read_bytes()
    (tmp_path / "source" / "model.safetensors").write_bytes(shard)
    with pytest.raises(ConversionError, match=r"lacks softmax\.bias, softmax\.weight, which would be random numbers"):
        folder_to_allennlp(tmp_path / "source", tmp_path / "to")
