"""An `Elmo` as an `ElmoModel`, or as a folder of one, and the other way round; all numbers stay the same."""

from pathlib import Path

import torch

from elmo_hf.conversion.readers.trained_allennlp import BILM, join_mixes, split_mixes, trained_config, trained_rules
from elmo_hf.conversion.rules import export_arrays, import_arrays

from ..disk.checksums import write_sums
from ..disk.whole_files import new_folder
from ..folder.listed_files import MODEL_FILES
from ..folder.loading import load_complete
from ..public import ElmoModel, ElmoTokenizer
from .bilm import _ElmoBiLm
from .elmo import Elmo, ScalarMix
from .pretrained import arrays_of

TABLE = f"{BILM}_word_embedding.weight"


def to_model(elmo: Elmo) -> ElmoModel:
    """Copies the biLM and the mixes, as float32 on the CPU, into a model in evaluation mode.

    Raises:
        ValueError: if the `Elmo` has a module of another class in place of the biLM or of the first mix, or cached
            words that train.
        ConversionError: if a part of the biLM was wrapped or replaced by one with other tensors.
    """
    bilm = elmo._elmo_lstm
    if not isinstance(bilm, _ElmoBiLm):
        raise ValueError(f"`_elmo_lstm` must be a `_ElmoBiLm` to become an `ElmoModel`, found {type(bilm).__name__}.")
    table = bilm._word_embedding
    if table is not None and table.weight.requires_grad:
        raise ValueError(
            "an `ElmoModel` has no table of cached words, and this one trains: save "
            "`elmo._elmo_lstm._word_embedding.weight` by itself, and set `elmo._elmo_lstm._word_embedding` to None."
        )
    arrays = {name: array for name, array in join_mixes(arrays_of(elmo)).items() if name != TABLE}
    mix = elmo.scalar_mix_0
    if not isinstance(mix, ScalarMix):
        raise ValueError(
            f"`scalar_mix_0` must be a `ScalarMix` to become that of an `ElmoModel`, found {type(mix).__name__}: set "
            "it to a `ScalarMix` of `elmo_hf.allennlp` with your numbers."
        )
    mix_parameters = None if mix.gamma.requires_grad else [float(number) for number in mix.scalar_parameters]
    arguments = {
        "dropout": elmo._dropout.p,
        "do_layer_norm": mix.do_layer_norm,
        "scalar_mix_parameters": mix_parameters,
    }
    config = trained_config(bilm._token_embedder._options, arguments, arrays, "the options of the Elmo")
    tensors = import_arrays(trained_rules(config), arrays, "the Elmo")
    model = ElmoModel(config)
    model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in tensors.items()})
    return model.eval()


def from_model(model: ElmoModel) -> Elmo:
    """Copies a model's biLM and mixes, with its device and dtype.

    A parameter trains if one of the model's parameters that it is made of trains.

    Raises:
        ValueError: if AllenNLP's ELMo lacks a part of the model.
    """
    config = model.config
    if config.layer_mix != "scalar" or config.scalar_mix_layer_norm == "word":
        raise ValueError(
            "AllenNLP's mixes are scalar, without or with one layer norm for a batch; the model has `layer_mix` "
            f"{config.layer_mix!r} and `scalar_mix_layer_norm` {config.scalar_mix_layer_norm!r}. Give the model to "
            "`Elmo` as `module`, which takes its biLM alone."
        )
    elmo = Elmo(
        None,
        None,
        config.num_output_representations,
        do_layer_norm=config.scalar_mix_layer_norm == "batch",
        dropout=config.representation_dropout,
        module=model,
    )
    rules = [rule for rule in trained_rules(config) if not rule.source.startswith(BILM)]
    mixes = split_mixes(export_arrays(rules, arrays_of(model)))
    elmo.load_state_dict(elmo.state_dict() | {name: torch.tensor(array) for name, array in mixes.items()})
    for index, mix in enumerate(model.scalar_mixes_of_all()):
        elmo.get_submodule(f"scalar_mix_{index}.scalar_parameters").requires_grad_(mix.logits.requires_grad)
        elmo.get_parameter(f"scalar_mix_{index}.gamma").requires_grad_(mix.scale.requires_grad)
    return elmo.to(model.device, model.dtype)


def save_folder(elmo: Elmo, folder: str | Path) -> None:
    """Writes a folder of ours: `AutoModel` loads it, with AllenNLP's mixes, and `AutoTokenizer` its tokenizer.

    Raises:
        FileExistsError: if the folder exists.
        ValueError: as in `to_model`; nothing is written then.
    """
    model = to_model(elmo)
    with new_folder(Path(folder)) as partial:
        model.save_pretrained(partial)
        ElmoTokenizer(max_word_length=model.config.max_word_length, word_splitter="ptb").save_pretrained(partial)
        write_sums(partial, MODEL_FILES)


def load_folder(folder: str | Path, requires_grad: bool = False) -> Elmo:
    """Loads a folder of ours, or a model of the Hub; `requires_grad` says whether the biLM trains.

    Raises:
        ValueError: if there is no such model, or if AllenNLP's ELMo lacks a part of it.
    """
    model = load_complete(folder)
    model.token_encoder.requires_grad_(requires_grad)
    model.bilm.requires_grad_(requires_grad)
    return from_model(model)
