"""Scripts as AllenNLP's own documentation writes them give AllenNLP's numbers once their import line is changed."""

import functools
import inspect
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp_cases import CASES, Golden, assert_close, run_legacy
from checkpoints import BASE
from torch import Tensor, nn

from elmo_hf import ElmoModel
from elmo_hf.allennlp import Elmo, ElmoEmbedder, batch_to_ids, checkpoint_files
from elmo_hf.conversion import published
from elmo_hf.conversion.model import bilm_of
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles, read_allennlp
from elmo_hf.conversion.refusals import ConversionError

read_once = functools.cache(read_allennlp)


@pytest.fixture(autouse=True)
def _files_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "read_allennlp", read_once)


@pytest.fixture(params=CASES, scope="module")
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


@pytest.fixture(scope="module")
def base() -> Golden:
    return Golden("base_2l_relu")


A_MODULE_IN_A_NEW_MODEL = """
from allennlp.modules.elmo import Elmo, batch_to_ids
from elmo_hf.allennlp import checkpoint_files

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
    parts = ("gamma", "scalar_parameters.0", "scalar_parameters.1", "scalar_parameters.2")
    mixes = {f"scalar_mix_{index}.{part}" for index in range(2) for part in parts}
    assert trainable(Elmo(*base.files, 2)) == mixes
    assert trainable(Elmo(*base.files, 2, scalar_mix_parameters=[0, 0, 1])) == set()
    everything = trainable(Elmo(*base.files, 2, requires_grad=True))
    names = bilm_of(read_allennlp(AllenNlpFiles.in_folder(BASE))).state_dict()
    places = {"token_encoder": "_elmo_lstm._token_embedder.encoder", "bilm": "_elmo_lstm._elmo_lstm.bilm"}
    parts = [name.partition(".") for name in names if "mixes" not in name]
    assert everything == mixes | {f"{places[part]}.{rest}" for part, _, rest in parts}


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
    elmo._elmo_lstm._token_embedder.encoder.register_forward_hook(lambda *_: encoded.append(1))
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
    assert elmo._elmo_lstm._word_embedding is None


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


def test_addresses_are_downloaded_once(base: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "HF_HOME", str(tmp_path))
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
        (("nowhere.json", BASE / "weights.hdf5", 1), ConversionError, "there is no file nowhere.json"),
        ((BASE / "options.json", "nowhere.hdf5", 1), ConversionError, "there is no file nowhere.hdf5"),
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


def test_files_of_one_name_at_two_addresses_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "HF_HOME", str(tmp_path))
    monkeypatch.setattr(checkpoint_files, "fetch", lambda address, folder: folder / "options.json")
    assert checkpoint_files._local("https://a.org/options.json", "x") != checkpoint_files._local(
        "https://b.org/options.json", "x"
    )
