"""AllenNLP's `Elmo` and `ElmoEmbedder` under their old names give AllenNLP's numbers."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmo_hf import ElmoModel
from elmo_hf.allennlp import Elmo, ElmoEmbedder, ElmoLstm, batch_to_ids, pretrained
from elmo_hf.conversion.published import PUBLISHED
from elmo_hf.conversion.refusals import ConversionError
from tests.helpers.checkpoints import run_python, shared
from tests.helpers.file_server import HTML
from tests.helpers.golden import BASE, CASES, SENTENCES, Golden, assert_all_close, assert_close

IDS = batch_to_ids(SENTENCES)
MASK, MIX = BASE.expected["mask"], BASE.expected["mix"][0]
A_MODULE_IN_A_NEW_MODEL = """
from allennlp.modules.elmo import Elmo, batch_to_ids

# Two representations of each word, each a weighted sum of the layers.
elmo = Elmo(options_file, weight_file, 2, dropout=0)
character_ids = batch_to_ids(sentences)
embeddings = elmo(character_ids)
first, second = embeddings["elmo_representations"]
mask = embeddings["mask"]
later = elmo(batch_to_ids(more_sentences))["elmo_representations"][0]
"""


@pytest.fixture(params=CASES, scope="module")
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def test_a_script_of_allennlps_documentation_with_another_import_line(golden: Golden) -> None:
    calls = {"sentences": golden.sentences["call1"], "more_sentences": golden.sentences["call2"]}
    names = golden.run(A_MODULE_IN_A_NEW_MODEL, **calls)
    np.testing.assert_array_equal(names["character_ids"], golden.expected["char_ids"])
    np.testing.assert_array_equal(names["mask"], golden.expected["mask"])
    assert_close(names["first"], golden.expected["mix"][0])
    assert_close(names["second"], golden.expected["mix"][0])
    for vectors, layers in zip(names["later"], golden.arrays("call2"), strict=True):
        assert_close(vectors[: layers.shape[1]], layers.mean(axis=0))


@pytest.mark.parametrize("kept", [False, True], ids=["words", "with boundaries"])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer norm"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_given_mix_parameters_layer_norm_and_boundaries_are_allennlps(
    number: int, layer_norm: bool, kept: bool, golden: Golden
) -> None:
    mix = golden.expected["mix_scalars"][number].tolist()
    options = {"do_layer_norm": layer_norm, "keep_sentence_boundaries": kept, "scalar_mix_parameters": mix}
    elmo = Elmo(*golden.files, 1, dropout=0, **options)
    output = elmo(batch_to_ids(golden.sentences["call1"]))
    suffix = ("_layer_norm" if layer_norm else "") + ("_with_boundaries" if kept else "")
    mask = golden.expected["mask_with_boundaries" if kept else "mask"]
    np.testing.assert_array_equal(output["mask"], mask)
    # Where AllenNLP normalises it leaves numbers on padding; a given mix has no gamma.
    expected = golden.expected[f"mix{suffix}"][number] / golden.expected["mix_gammas"][number] * mask[..., None]
    assert_close(output["elmo_representations"][0], expected, 5e-5)
    assert elmo.get_output_dim() == expected.shape[-1]


def trainable(module: nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


def test_only_the_mixes_train_unless_more_or_less_is_asked_for_and_the_state_has_no_gradient() -> None:
    parts = ("gamma", "scalar_parameters.0", "scalar_parameters.1", "scalar_parameters.2")
    mixes = {f"scalar_mix_{index}.{part}" for index in range(2) for part in parts}
    assert trainable(Elmo(*BASE.files, 2)) == mixes
    assert trainable(Elmo(*BASE.files, 2, scalar_mix_parameters=[0, 0, 1])) == set()
    elmo = Elmo(*BASE.files, 2, requires_grad=True, dropout=0)
    assert trainable(elmo) == set(elmo.state_dict()) > mixes
    for _ in range(2):
        elmo.zero_grad()
        torch.stack(elmo(IDS)["elmo_representations"]).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in elmo.parameters())


def test_dropout_acts_in_training_only() -> None:
    vectors = Elmo(*BASE.files, 1)(IDS)["elmo_representations"][0]
    kept = vectors != 0
    assert 0.4 < kept[torch.from_numpy(MASK)].float().mean() < 0.6
    assert_close(vectors[kept], 2 * torch.from_numpy(MIX)[kept].numpy())
    assert_close(Elmo(*BASE.files, 1).eval()(IDS)["elmo_representations"][0], MIX)


def test_stateful_can_be_switched_off_where_it_always_was() -> None:
    elmo = Elmo(*BASE.files, 1, dropout=0)
    first, second = (elmo(IDS)["elmo_representations"][0] for _ in range(2))
    assert (first - second).abs().max() > 1e-2
    lstm = elmo._elmo_lstm._elmo_lstm
    lstm.reset_states()
    assert elmo(IDS)["elmo_representations"][0].equal(first)
    lstm.stateful = False
    assert elmo(IDS)["elmo_representations"][0].equal(first)
    elmo(batch_to_ids(BASE.sentences["call2"]))
    lstm.stateful = True  # and the state is what it was
    assert elmo(IDS)["elmo_representations"][0].equal(second)


def test_cached_words_are_a_table_that_replaces_the_token_embedder_unless_a_word_is_not_in_it() -> None:
    vocabulary = ["@@PADDING@@", *sorted({word for words in SENTENCES for word in words})]
    numbers = torch.zeros(MASK.shape, dtype=torch.long)
    for row, words in enumerate(SENTENCES):
        numbers[row, : len(words)] = torch.tensor([vocabulary.index(word) for word in words])
    elmo = Elmo(*BASE.files, 1, dropout=0, vocab_to_cache=vocabulary)
    bilm, tokens = elmo._elmo_lstm, BASE.expected["token_embedding"]
    assert_close(torch.stack([bilm._bos_embedding, bilm._eos_embedding]), tokens[1, [0, 4]])  # around three words
    assert_close(bilm._word_embedding(numbers)[torch.from_numpy(MASK)], tokens[:, 1:-1][MASK])
    one_unknown = numbers.clone()
    one_unknown[0, 0] = len(vocabulary)
    outputs = [elmo(IDS, one_unknown)]
    bilm._elmo_lstm.reset_states()
    del bilm._token_embedder
    outputs.append(elmo(numbers, numbers))
    for output in outputs:
        np.testing.assert_array_equal(output["mask"], MASK)
        assert_close(output["elmo_representations"][0], MIX)


def test_a_model_of_ours_takes_the_place_of_the_files_and_more_axes_are_folded(tiny_folder: Path) -> None:
    elmo = Elmo(None, None, 1, dropout=0, module=ElmoModel.from_pretrained(tiny_folder))
    output = elmo(IDS.unflatten(0, (2, 1, 2)))
    np.testing.assert_array_equal(output["mask"].flatten(0, 2), MASK)
    assert_close(output["elmo_representations"][0].flatten(0, 2), MIX)


def test_a_module_with_allennlps_interface_takes_the_place_of_the_files() -> None:
    class Constant(nn.Module):
        num_layers = 2

        def get_output_dim(self) -> int:
            return 3

        def forward(self, inputs: Tensor, word_inputs: Tensor | None) -> dict[str, Any]:
            mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
            return {"activations": [torch.ones(2, 4, 3), 3 * torch.ones(2, 4, 3)], "mask": mask}

    elmo = Elmo(None, None, 1, dropout=0, module=Constant())
    output = elmo(batch_to_ids([["a", "b"], ["c"]]))
    assert_close(output["elmo_representations"][0], np.array([[[2] * 3, [2] * 3], [[2] * 3, [0] * 3]]))
    assert (elmo.get_output_dim(), output["mask"].tolist()) == (3, [[True, True], [True, False]])


def test_words_may_stand_anywhere_in_a_row() -> None:
    output = Elmo(*BASE.files, 1, dropout=0)(IDS.roll(18, dims=1)[1:2])  # three words at the end of 21 places
    assert output["mask"].nonzero()[:, 1].tolist() == [18, 19, 20]
    assert_close(output["elmo_representations"][0][0, 18:], MIX[1, :3])


def test_addresses_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of each name, each from its own address."""
    monkeypatch.setattr(pretrained, "CACHE", tmp_path / "home")
    cases = [BASE, Golden("four_layer")]
    for golden in cases:
        shutil.copytree(Path(golden.files[0]).parent, tmp_path / golden.name)
    for _ in range(2):
        for golden in cases:
            folder = tmp_path / golden.name
            elmo = Elmo(f"file://{folder}/options.json", f"file://{folder}/weights.hdf5", 1, dropout=0)
            vectors = elmo(batch_to_ids(golden.sentences["call1"]))["elmo_representations"][0]
            assert_close(vectors, golden.expected["mix"][0])
            shutil.rmtree(folder, ignore_errors=True)
            path = pretrained.download_path(f"file://{folder}/weights.hdf5")
            assert [*path.parent.iterdir()] == [path]
            path.with_name(f".{path.name}.lock").touch()  # by a process that was killed at the end


def test_a_page_in_place_of_a_file_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "CACHE", tmp_path / "home")
    for name, path in zip(("options.json", "weights.hdf5"), BASE.files, strict=True):
        shutil.copy(path, tmp_path / name)
    (tmp_path / "weights.hdf5").write_bytes(HTML)
    addresses = [f"file://{tmp_path}/{name}" for name in ("options.json", "weights.hdf5")]
    with pytest.raises(ConversionError, match=re.escape(f"Nothing of {addresses[1]} was kept.")):
        Elmo(*addresses, 1)
    assert [path.name for path in (tmp_path / "home").rglob("*") if path.is_file()] == ["options.json"]
    shutil.copy(BASE.files[1], tmp_path / "weights.hdf5")
    assert Elmo(*addresses, 1).get_output_dim() == 16


def test_a_download_is_kept_when_another_file_or_a_size_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "CACHE", tmp_path / "home")
    shutil.copy(BASE.files[1], tmp_path / "weights.hdf5")
    address = f"file://{tmp_path}/weights.hdf5"
    with pytest.raises(ConversionError, match="mistyped"):
        Elmo("mistyped.json", address, 1)
    with pytest.raises(ConversionError, match="shape"):
        ElmoLstm(8, 8, 5, 2).load_weights(address)
    (tmp_path / "weights.hdf5").unlink()  # a second download would fail
    assert Elmo(BASE.files[0], address, 1).get_output_dim() == 16


def test_without_a_network_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "CACHE", tmp_path / "home")
    with pytest.raises(ConversionError, match="cannot download") as error:
        Elmo(f"file://{tmp_path}/options.json", f"file://{tmp_path}/weights.hdf5", 1)
    assert "give their paths as `options_file` and `weight_file`" in str(error.value)
    assert "ELMO_HF_BASE_URL" in str(error.value)


def test_the_default_addresses_are_those_of_the_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_HF_BASE_URL", "https://example.org/elmo")
    line = "from elmo_hf.allennlp import DEFAULT_OPTIONS_FILE; print(DEFAULT_OPTIONS_FILE)"
    path = PUBLISHED["original"].addresses["options"][0]
    assert run_python(line, tmp_path).strip() == f"https://example.org/elmo/{path}"


@pytest.mark.parametrize("case", CASES)
def test_the_state_is_carried_through_batches_that_shrink_and_grow(case: str) -> None:
    golden = Golden(case)
    embedder = ElmoEmbedder(*golden.files)
    assert len(embedder.embed_sentence(golden.sentences["call1"][0])) == len(golden.expected["layers"])
    embedder.elmo_bilm._elmo_lstm.reset_states()
    for call, batch in sorted(golden.sentences.items()):
        assert_all_close(embedder.embed_batch(batch), golden.arrays(call))


def test_batches_have_allennlps_axes() -> None:
    vectors, mask = ElmoEmbedder(*BASE.files).batch_to_embeddings(SENTENCES)
    assert_close(vectors.transpose(0, 1), BASE.expected["layers"])
    np.testing.assert_array_equal(mask, BASE.expected["mask"])


def test_empty_sentences_are_arrays_without_words_and_leave_the_state_alone() -> None:
    embedder = ElmoEmbedder(*BASE.files)
    assert embedder.embed_sentence([]).shape == (3, 0, 16)
    assert [array.shape for array in embedder.embed_batch([[], []])] == [(3, 0, 16)] * 2
    *arrays, empty = embedder.embed_batch([*SENTENCES, []])
    assert empty.shape == (3, 0, 16)
    assert_all_close(arrays, BASE.arrays("call1"))
    output = Elmo(*BASE.files, 1)(batch_to_ids([[], []]))
    assert (output["mask"].shape, output["elmo_representations"][0].shape) == ((2, 0), (2, 0, 16))


def test_sentences_of_a_stream_are_run_in_batches() -> None:
    arrays = list(ElmoEmbedder(*BASE.files).embed_sentences(iter(SENTENCES + BASE.sentences["call2"]), batch_size=4))
    assert_all_close(arrays[:4], BASE.arrays("call1"))
    assert_all_close(arrays[4:], BASE.arrays("call2"))


def embed_file(folder: Path, text: str, **options: Any) -> dict[str, np.ndarray]:
    (folder / "in.txt").write_text(text, encoding="utf-8")
    with (folder / "in.txt").open(encoding="utf-8") as file:
        ElmoEmbedder(*BASE.files).embed_file(file, folder / "out.hdf5", **options)
    with h5py.File(folder / "out.hdf5") as file:
        return {name: file[name][()] for name in file}


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_a_file_holds_the_vectors_of_each_line(output_format: str, tmp_path: Path) -> None:
    lines = [" ".join(words) for words in SENTENCES]
    found = embed_file(tmp_path, "\n".join(lines), output_format=output_format, batch_size=len(lines))
    index = json.loads(found.pop("sentence_to_index")[0])
    assert index == {line: str(number) for number, line in enumerate(lines)}
    assert found.keys() == set(index.values())
    for row, layers in enumerate(BASE.arrays("call1")):
        expected = {"all": layers, "top": layers[-1], "average": layers.mean(axis=0)}[output_format]
        assert_close(found[str(row)], expected)


@pytest.mark.parametrize(
    ("text", "options", "shapes"),
    [
        ("Yes .\n\n", {"forget_sentences": True}, {"0": (3, 2, 16), "1": (3, 0, 16)}),
        ("A b c\nYes .", {"use_sentence_keys": True}, {"A b c": (3, 3, 16), "Yes .": (3, 2, 16)}),
    ],
)
def test_keys_of_a_file_are_numbers_or_sentences_and_a_blank_line_is_a_sentence(
    text: str, options: dict[str, bool], shapes: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    found = embed_file(tmp_path, text, **options)
    assert {name: vectors.shape for name, vectors in found.items()} == shapes


def test_what_was_there_stays_if_embedding_fails(tmp_path: Path) -> None:
    (tmp_path / "out.hdf5").write_bytes(b"precious")
    with pytest.raises(ValueError, match="shorter"):  # batches without sentences
        embed_file(tmp_path, "Yes .\n", batch_size=0)
    assert (tmp_path / "out.hdf5").read_bytes() == b"precious"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_real_model_of_bilm_tf_gives_the_vectors_that_allennlp_tests_for() -> None:
    source = shared("fixtures", "bilm_tf_fixture")
    elmo = ElmoEmbedder(source / "options.json", source / "lm_weights.hdf5")
    streams = json.loads((source / "sentences.json").read_text())
    expected = [h5py.File(source / f"lm_embeddings_{index}.hdf5") for index in range(3)]
    for number in range(10):
        batch = [stream[number].split() for stream in streams]
        for row, vectors in enumerate(elmo.embed_batch(batch)):
            assert_close(vectors[2], np.concatenate(expected[row][str(number)][()], axis=-1), 5e-6)
