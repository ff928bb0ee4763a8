"""Checkpoints with a softmax: TensorFlow's save directories, and the released hdf5 softmax, there and back."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from checkpoints import (
    EDGES,
    SAVES,
    TINY_LM,
    VOCABULARY,
    Options,
    bits,
    read_datasets,
    shared,
)
from language_models import (
    LANGUAGE_MODEL_OPTIONS,
    WORDS,
    random_language_model,
    save_directory,
    state_of,
    tiny_files,
    words_file,
)
from safetensors.numpy import load_file
from transformers import AutoModel, AutoModelForPreTraining, pipeline

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.conversion import convert
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp
from elmo_hf.language_model.pretraining import ElmoForPreTraining


def test_losses_are_those_that_bilm_tf_computed(tiny_lm_folder: Path) -> None:
    model = AutoModelForPreTraining.from_pretrained(tiny_lm_folder, trust_remote_code=True).eval()
    with np.load(TINY_LM / "expected.npz") as archive:
        expected = dict(archive)
    state = None
    for batch in range(3):

        def tensor(name: str, batch: int = batch) -> torch.Tensor:
            return torch.from_numpy(expected[f"batch{batch}_{name}"].astype(np.int64))

        with torch.no_grad():
            outputs = model(
                tensor("forward_char_ids") + 1,
                backward_input_ids=tensor("backward_char_ids").flip(1) + 1,
                forward_targets=tensor("forward_targets"),
                backward_targets=tensor("backward_targets").flip(1),
                state=state,
            )
        state = outputs.state
        for ours, theirs in (
            ("forward_loss", "forward_loss"),
            ("backward_loss", "backward_loss"),
            ("loss", "total_loss"),
        ):
            assert outputs[ours].item() == pytest.approx(expected[f"batch{batch}_{theirs}"].item(), abs=2e-6)


def test_softmax_is_the_checkpoints_own_bit_by_bit(tiny_lm_folder: Path) -> None:
    state = state_of(tiny_lm_folder)
    with np.load(TINY_LM / "expected.npz") as expected:
        np.testing.assert_array_equal(state["softmax.weight"], expected["softmax_W"])
        np.testing.assert_array_equal(state["softmax.bias"], expected["softmax_b"])


def test_training_options_become_fields(tiny_lm_folder: Path) -> None:
    config = ElmoConfig.from_pretrained(tiny_lm_folder)
    found = (config.num_softmax_words, config.softmax, config.num_softmax_samples, config.lm_dropout)
    assert found == (28, "sampled", 8, 0.1)
    assert (config.share_embedding_softmax, config.vocab_size, config.architectures) == (
        False,
        262,
        ["ElmoForPreTraining"],
    )


def test_softmax_lies_in_a_shard_of_its_own(tiny_lm_folder: Path) -> None:
    first, second = (tiny_lm_folder / f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    assert {name.split(".")[0] for name in load_file(first)} == {"elmo"}
    assert sorted(load_file(second)) == ["softmax.bias", "softmax.weight"]
    assert not (tiny_lm_folder / "model.safetensors").exists()
    index = json.loads((tiny_lm_folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["weight_map"] == dict.fromkeys(load_file(first), first.name) | dict.fromkeys(
        load_file(second), second.name
    )
    sizes = [tensor.nbytes for tensor in state_of(tiny_lm_folder).values()]
    assert index["metadata"]["total_size"] == sum(sizes)


def test_bilm_of_a_language_model_is_that_of_its_export(
    tiny_lm_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    allennlp_to_folder(
        AllenNlpFiles(TINY_LM / "options.json", TINY_LM / "weights.hdf5"), tmp_path / "bilm", source_name="b"
    )
    bilm = load_file(tmp_path / "bilm" / "model.safetensors")
    language_model = state_of(tiny_lm_folder)
    elmo = {name.removeprefix("elmo."): tensor for name, tensor in language_model.items() if name.startswith("elmo.")}
    assert bits(elmo) == bits(bilm)
    model, loading = ElmoModel.from_pretrained(tiny_lm_folder, output_loading_info=True)
    assert not loading["unexpected_keys"]
    assert all("scalar_mixes." in name for name in loading["missing_keys"])
    inputs = ElmoTokenizer.from_pretrained(tiny_lm_folder)("the ferry left", return_tensors="pt")
    with torch.no_grad():
        ours = model.eval()(**inputs).last_hidden_state
        theirs = AutoModel.from_pretrained(tmp_path / "bilm", trust_remote_code=True).eval()(**inputs).last_hidden_state
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert ElmoConfig.from_pretrained(tmp_path / "bilm").num_softmax_words is None


def test_feature_extraction_opens_the_folder_of_a_language_model(tiny_lm_folder: Path) -> None:
    texts = ["the ferry left", "the"]
    extract = pipeline("feature-extraction", model=str(tiny_lm_folder), trust_remote_code=True, batch_size=2)
    found = [torch.tensor(vectors) for vectors in extract(texts)]
    model = ElmoModel.from_pretrained(tiny_lm_folder).eval()
    for text, vectors in zip(texts, found, strict=True):
        inputs = ElmoTokenizer.from_pretrained(tiny_lm_folder)(text, return_tensors="pt")
        with torch.no_grad():
            expected = model(**inputs).last_hidden_state
        torch.testing.assert_close(vectors[:, : expected.shape[1]], expected, rtol=0, atol=1e-6)


def test_tokenizer_knows_the_words_of_the_softmax(tiny_lm_folder: Path) -> None:
    tokenizer = ElmoTokenizer.from_pretrained(tiny_lm_folder)
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
        top = model.elmo(**inputs, output_hidden_states=True).hidden_states[-1][..., :8].numpy()
    expected = top @ arrays["embedding"].T + arrays["softmax/b"]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-6)


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


def test_bilm_saved_out_of_a_language_model_exports_without_softmax(tiny_lm_folder: Path, tmp_path: Path) -> None:
    ElmoModel.from_pretrained(tiny_lm_folder).save_pretrained(tmp_path / "bilm")
    assert folder_to_allennlp(tmp_path / "bilm", tmp_path / "back") == []
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["options.json", "weights.hdf5"]
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(read_datasets(TINY_LM / "weights.hdf5"))


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_word_with_a_line_end_is_not_written(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["<S>", f"a{end}b"]
    monkeypatch.setattr(convert, "load_tokenizer", lambda source: SimpleNamespace(predicted_words=words))
    with pytest.raises(ValueError, match="word 2"):
        convert._vocabulary(Path("x"))
