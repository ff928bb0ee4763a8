"""Scripts as AllenNLP's own documentation writes them give AllenNLP's numbers once their import line is changed."""

import inspect
import json
import logging
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from checkpoints import BASE, FIXTURES, GOLDEN_CASES, shared
from torch import Tensor, nn

from elmo_hf import ElmoModel, allennlp
from elmo_hf.allennlp import Elmo, ElmoEmbedder, batch_to_ids
from elmo_hf.conversion import published
from elmo_hf.conversion.errors import ConversionError
from elmo_hf.conversion.load import model_from_allennlp

TOLERANCE = 2e-5
# AllenNLP's words always have 50 characters.
CASES = [name for name in GOLDEN_CASES if name != "ext_max_chars_24"]
CHANGED_IMPORTS = {
    "from allennlp.modules.elmo import": "from elmo_hf.allennlp import",
    "from allennlp.commands.elmo import": "from elmo_hf.allennlp import",
}


class Golden:
    """A case that AllenNLP computed."""

    def __init__(self, name: str) -> None:
        self.files = (str(FIXTURES / name / "options.json"), str(FIXTURES / name / "weights.hdf5"))
        self.sentences: dict[str, list[list[str]]] = json.loads((FIXTURES / name / "sentences.json").read_text())
        self.expected = dict(np.load(FIXTURES / name / "expected.npz"))

    def layers(self, call: str) -> np.ndarray:
        """`(L+1, B, T, 2P)`, without boundaries."""
        prefix = "" if call == "call1" else f"{call}_"
        return np.stack(
            [trimmed(layer, self.lengths(call)) for layer in self.expected[f"{prefix}layers_with_boundaries"]]
        )

    def lengths(self, call: str) -> list[int]:
        return [len(words) for words in self.sentences[call]]


def trimmed(vectors: np.ndarray, lengths: list[int]) -> np.ndarray:
    """`(B, T+2, D)` to `(B, T, D)`: `<S>` and `</S>` cut off, zero behind."""
    result = np.zeros_like(vectors[:, 2:])
    for row, length in enumerate(lengths):
        result[row, :length] = vectors[row, 1 : 1 + length]
    return result


@pytest.fixture(params=CASES)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


@pytest.fixture
def base() -> Golden:
    return Golden("base_2l_relu")


def assert_close(actual: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    actual = actual.detach().numpy() if isinstance(actual, Tensor) else actual
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def run_legacy(script: str, **names: Any) -> dict[str, Any]:
    """Runs a script of old with its import lines changed and nothing else."""
    for old, new in CHANGED_IMPORTS.items():
        script = script.replace(old, new)
    assert "allennlp" in script
    assert "from allennlp" not in script
    exec(compile(script, "legacy", "exec"), names)
    return names


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


def test_usage_as_a_module_of_a_new_model(golden: Golden) -> None:
    calls = {"sentences": golden.sentences["call1"], "more_sentences": golden.sentences["call2"]}
    names = run_legacy(A_MODULE_IN_A_NEW_MODEL, options_file=golden.files[0], weight_file=golden.files[1], **calls)
    np.testing.assert_array_equal(names["character_ids"], golden.expected["char_ids"])
    np.testing.assert_array_equal(names["mask"], golden.expected["mask"])
    assert_close(names["first"], golden.expected["mix"][0])
    assert_close(names["second"], golden.expected["mix"][0])
    assert_close(names["later"], golden.layers("call2").mean(axis=0))


INTERACTIVELY = """
from allennlp.commands.elmo import ElmoEmbedder

elmo = ElmoEmbedder(options_file, weight_file)
assert len(elmo.embed_sentence(sentence)) == num_layers
elmo.elmo_bilm._elmo_lstm.reset_states()
batches = [elmo.embed_batch(batch) for batch in calls]
"""


def test_usage_interactively_with_the_state_carried_through_batches_that_shrink_and_grow(golden: Golden) -> None:
    calls = sorted(golden.sentences)
    names = run_legacy(
        INTERACTIVELY,
        options_file=golden.files[0],
        weight_file=golden.files[1],
        sentence=golden.sentences["call1"][0],
        num_layers=len(golden.expected["layers"]),
        calls=[golden.sentences[call] for call in calls],
    )
    for call, vectors in zip(calls, names["batches"], strict=True):
        for row, length in enumerate(golden.lengths(call)):
            assert vectors[row].dtype == np.float32
            assert_close(vectors[row], golden.layers(call)[:, row, :length])


VECTORS_ON_DISK = """
from allennlp.commands.elmo import ElmoEmbedder

with open(sentences_file, encoding="utf-8") as file:
    ElmoEmbedder(options_file, weight_file).embed_file(file, vectors_file, output_format, batch_size=batch_size)
"""


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_usage_for_vectors_on_disk(output_format: str, base: Golden, tmp_path: Path) -> None:
    """Calls 1 and 5 are the same sentences; the second batch starts from the state that the first one left."""
    batch = [words for words in base.sentences["call1"] if words]
    lines = [" ".join(words) for words in batch]
    (tmp_path / "sentences.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run_legacy(
        VECTORS_ON_DISK,
        options_file=base.files[0],
        weight_file=base.files[1],
        sentences_file=tmp_path / "sentences.txt",
        vectors_file=str(tmp_path / "vectors.hdf5"),
        output_format=output_format,
        batch_size=len(batch),
    )
    with h5py.File(tmp_path / "vectors.hdf5") as file:
        assert json.loads(file["sentence_to_index"][0]) == {line: str(index) for index, line in enumerate(lines)}
        for row, words in enumerate(batch):
            layers = base.layers("call1")[:, row, : len(words)]
            expected = {"all": layers, "top": layers[-1], "average": layers.mean(axis=0)}[output_format]
            assert_close(file[str(row)][()], expected)


def test_signatures_are_allennlps() -> None:
    parameters = inspect.signature(Elmo).parameters
    assert list(parameters) == [
        "options_file",
        "weight_file",
        "num_output_representations",
        "requires_grad",
        "do_layer_norm",
        "dropout",
        "vocab_to_cache",
        "keep_sentence_boundaries",
        "scalar_mix_parameters",
        "module",
    ]
    defaults = [parameter.default for parameter in list(parameters.values())[3:]]
    assert defaults == [False, False, 0.5, None, False, None, None]
    address = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/2x4096_512_2048cnn_2xhighway/elmo_2x4096_512_2048cnn_2xhighway"
    assert [parameter.default for parameter in inspect.signature(ElmoEmbedder).parameters.values()] == [
        f"{address}_options.json",
        f"{address}_weights.hdf5",
        -1,
    ]
    assert list(inspect.signature(ElmoEmbedder.embed_file).parameters)[1:] == [
        "input_file",
        "output_file_path",
        "output_format",
        "batch_size",
        "forget_sentences",
        "use_sentence_keys",
    ]


@pytest.mark.parametrize("kept", [False, True], ids=["words", "with boundaries"])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer norm"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_given_mix_parameters_layer_norm_and_boundaries_are_allennlps(
    number: int, layer_norm: bool, kept: bool, golden: Golden
) -> None:
    elmo = Elmo(
        *golden.files,
        1,
        dropout=0,
        do_layer_norm=layer_norm,
        keep_sentence_boundaries=kept,
        scalar_mix_parameters=golden.expected["mix_scalars"][number].tolist(),
    )
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


def test_only_the_mixes_train_unless_more_or_less_is_asked_for(base: Golden) -> None:
    mixes = {"scalar_mix_0.logits", "scalar_mix_0.scale", "scalar_mix_1.logits", "scalar_mix_1.scale"}
    assert trainable(Elmo(*base.files, 2)) == mixes
    assert trainable(Elmo(*base.files, 2, scalar_mix_parameters=[0, 0, 1])) == set()
    everything = trainable(Elmo(*base.files, 2, requires_grad=True))
    names = model_from_allennlp(BASE / "options.json", BASE / "weights.hdf5").state_dict()
    assert everything == mixes | {f"_elmo_lstm._elmo_lstm.model.{name}" for name in names if "mixes" not in name}


def test_gradients_reach_the_bilm_and_the_state_is_cut_off(base: Golden) -> None:
    elmo = Elmo(*base.files, 1, requires_grad=True, dropout=0)
    ids = batch_to_ids(base.sentences["call1"])
    for _ in range(2):
        elmo.zero_grad()
        elmo(ids)["elmo_representations"][0].square().sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0
        for name, parameter in elmo.named_parameters()
        if parameter.requires_grad
    )


def test_dropout_acts_in_training_only(base: Golden) -> None:
    ids = batch_to_ids(base.sentences["call1"])
    vectors = Elmo(*base.files, 1)(ids)["elmo_representations"][0]
    words = torch.from_numpy(base.expected["mask"])
    assert 0.4 < (vectors[words] == 0).float().mean() < 0.6
    kept = vectors != 0
    assert_close(vectors[kept], 2 * torch.from_numpy(base.expected["mix"][0])[kept].numpy())
    assert_close(Elmo(*base.files, 1).eval()(ids)["elmo_representations"][0], base.expected["mix"][0])


def test_stateful_can_be_switched_off_where_it_always_was(base: Golden) -> None:
    elmo = Elmo(*base.files, 1, dropout=0)
    ids = batch_to_ids(base.sentences["call1"])
    first, second = (elmo(ids)["elmo_representations"][0] for _ in range(2))
    assert (first - second).abs().max() > 1e-2
    elmo._elmo_lstm._elmo_lstm.reset_states()
    torch.testing.assert_close(elmo(ids)["elmo_representations"][0], first, rtol=0, atol=0)
    elmo._elmo_lstm._elmo_lstm.stateful = False
    torch.testing.assert_close(elmo(ids)["elmo_representations"][0], first, rtol=0, atol=0)


def test_more_axes_are_folded_and_unfolded(base: Golden) -> None:
    ids = batch_to_ids(base.sentences["call1"])
    output = Elmo(*base.files, 1, dropout=0)(ids.unflatten(0, (2, 2)))
    assert output["mask"].shape == (2, 2, 21)
    assert_close(output["elmo_representations"][0].flatten(0, 1), base.expected["mix"][0])


@pytest.mark.parametrize("unknown", [False, True], ids=["all words cached", "one word unknown"])
def test_a_cached_vocabulary_gives_the_same_vectors(unknown: bool, base: Golden) -> None:
    batch = base.sentences["call1"]
    vocabulary = ["@@PADDING@@", *sorted({word for words in batch for word in words})]
    numbers = torch.zeros(len(batch), 21, dtype=torch.long)
    for row, words in enumerate(batch):
        numbers[row, : len(words)] = torch.tensor([vocabulary.index(word) for word in words])
    if unknown:
        numbers[0, 0] = len(vocabulary)
    elmo = Elmo(*base.files, 1, dropout=0, vocab_to_cache=vocabulary)
    encoded = []
    model = elmo._elmo_lstm._elmo_lstm.model
    model.token_encoder.register_forward_hook(lambda *_: encoded.append(1))
    output = elmo(batch_to_ids(batch), numbers)
    assert bool(encoded) == unknown
    np.testing.assert_array_equal(output["mask"], base.expected["mask"])
    assert_close(output["elmo_representations"][0], base.expected["mix"][0])


def test_a_vocabulary_is_not_cached_where_training_would_outdate_it(
    base: Golden, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    elmo = Elmo(*base.files, 1, requires_grad=True, vocab_to_cache=["", "the"])
    logger.removeHandler(caplog.handler)
    assert "`vocab_to_cache` is not used where the character CNN trains" in caplog.text
    assert elmo._elmo_lstm._cached_vectors is None


def test_a_model_of_ours_takes_the_place_of_the_files(base: Golden, tiny_folder: Path) -> None:
    elmo = Elmo(None, None, 1, dropout=0, module=ElmoModel.from_pretrained(tiny_folder))
    assert_close(elmo(batch_to_ids(base.sentences["call1"]))["elmo_representations"][0], base.expected["mix"][0])


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


def test_words_may_stand_anywhere_in_a_row(base: Golden) -> None:
    ids = batch_to_ids(base.sentences["call1"])
    elmo = Elmo(*base.files, 1, dropout=0)
    output = elmo(ids.roll(18, dims=1)[1:2])  # three words at the end of 21 places
    assert output["mask"].nonzero()[:, 1].tolist() == [18, 19, 20]
    assert_close(output["elmo_representations"][0][0, 18:], base.expected["mix"][0][1, :3])


def test_empty_sentences_are_arrays_without_words_and_leave_the_state_alone(base: Golden) -> None:
    elmo = ElmoEmbedder(*base.files)
    assert elmo.embed_sentence([]).shape == (3, 0, 16)
    assert [array.shape for array in elmo.embed_batch([[], []])] == [(3, 0, 16)] * 2
    mixed = elmo.embed_batch([*base.sentences["call1"], []])
    assert mixed[-1].shape == (3, 0, 16)
    assert_close(mixed[0], base.layers("call1")[:, 0, : base.lengths("call1")[0]])
    output = Elmo(*base.files, 1)(batch_to_ids([[], []]))
    assert (output["mask"].shape, output["elmo_representations"][0].shape) == ((2, 0), (2, 0, 16))


def test_batches_of_the_embedder_have_allennlps_axes(base: Golden) -> None:
    vectors, mask = ElmoEmbedder(*base.files).batch_to_embeddings(base.sentences["call1"])
    assert_close(vectors.transpose(0, 1), base.layers("call1"))
    np.testing.assert_array_equal(mask, base.expected["mask"])


def test_sentences_of_a_stream_are_run_in_batches(base: Golden) -> None:
    stream = (words for words in base.sentences["call1"] + base.sentences["call2"])
    vectors = ElmoEmbedder(*base.files).embed_sentences(stream, batch_size=4)
    assert next(vectors).shape == (3, 12, 16)
    rest = list(vectors)
    assert len(rest) == 7
    assert_close(rest[3], base.layers("call2")[:, 0, :10])


def embed_file(base: Golden, folder: Path, text: str, **options: Any) -> dict[str, np.ndarray]:
    (folder / "in.txt").write_text(text, encoding="utf-8")
    with (folder / "in.txt").open(encoding="utf-8") as file:
        ElmoEmbedder(*base.files).embed_file(file, folder / "out.hdf5", **options)
    with h5py.File(folder / "out.hdf5") as file:
        return {name: file[name][()] for name in file}


def test_keys_on_disk_are_numbers_or_sentences_as_asked(base: Golden, tmp_path: Path) -> None:
    text = "The ferry left .\nYes .\n"
    assert set(embed_file(base, tmp_path, text, forget_sentences=True)) == {"0", "1"}
    by_sentence = embed_file(base, tmp_path, text, use_sentence_keys=True)
    assert {name: vectors.shape for name, vectors in by_sentence.items()} == {
        "The ferry left .": (3, 4, 16),
        "Yes .": (3, 2, 16),
    }


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("Yes .\n\n", {}, r"lines \[1\] \(from 0\) are blank. Remove them, or use `elmo-hf embed`, which keeps them"),
        ("Yes .\n", {"output_format": "mean"}, "`output_format` must be one of all, top, average, found 'mean'"),
        ("Yes .\nYes .\n", {"use_sentence_keys": True}, "two sentences are equal, so they cannot be keys"),
    ],
)
def test_a_file_that_cannot_be_embedded_leaves_nothing(
    text: str, options: dict[str, Any], message: str, base: Golden, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        embed_file(base, tmp_path, text, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_what_was_there_stays_if_embedding_fails(base: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out.hdf5").write_bytes(b"precious")
    monkeypatch.setattr(ElmoEmbedder, "embed_batch", lambda self, batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        embed_file(base, tmp_path, "Yes .\n")
    assert (tmp_path / "out.hdf5").read_bytes() == b"precious"
    assert len(list(tmp_path.iterdir())) == 2


def test_addresses_are_downloaded_once(base: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allennlp, "HF_HOME", str(tmp_path))
    asked = []

    def retrieve(address: str, path: Path, show: Any) -> None:
        asked.append(address)
        path.write_bytes(Path(base.files["weights" in address]).read_bytes())

    monkeypatch.setattr(published.urllib.request, "urlretrieve", retrieve)
    addresses = ("https://example.org/options.json", "https://example.org/weights.hdf5")
    for _ in range(2):
        output = Elmo(*addresses, 1, dropout=0)(batch_to_ids(base.sentences["call1"]))
        assert_close(output["elmo_representations"][0], base.expected["mix"][0])
    assert asked == list(addresses)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("nowhere.json", BASE / "weights.hdf5", 1), ConversionError, "there is no options file nowhere.json"),
        ((BASE / "options.json", "nowhere.hdf5", 1), ConversionError, "there is no weights file nowhere.hdf5"),
        ((None, None, 1), ValueError, "`options_file` must be a path or an address, found None"),
        ((BASE / "options.json", BASE / "weights.hdf5", 1, False, False, 0, None, False, [1]), ValueError, "3 numbers"),
        (
            ("a", "b", 1, False, False, 0, None, False, None, nn.Identity()),
            ValueError,
            "give either `options_file` and",
        ),
    ],
    ids=["no options", "no weights", "nothing", "too few mix parameters", "files and module"],
)
def test_wrong_arguments_are_named(arguments: tuple, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Elmo(*arguments)


def test_a_real_model_of_bilm_tf_gives_the_vectors_that_allennlp_tests_for() -> None:
    source = shared("fixtures", "bilm_tf_fixture")
    elmo = ElmoEmbedder(source / "options.json", source / "lm_weights.hdf5")
    streams = json.loads((source / "sentences.json").read_text())
    expected = [h5py.File(source / f"lm_embeddings_{index}.hdf5") for index in range(3)]
    for number in range(10):
        batch = [stream[number].split() for stream in streams]
        for row, vectors in enumerate(elmo.embed_batch(batch)):
            assert_close(vectors[2], np.concatenate(expected[row][str(number)][()], axis=-1), 5e-6)
