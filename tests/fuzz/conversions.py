"""Targets that convert foreign checkpoints; a result is compared with what plain readers find in the changed files."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import archives
import numpy as np
import safetensors.numpy
import torch
from checkpoints import Arrays, random_checkpoint, write_datasets
from language_models import LANGUAGE_MODEL_OPTIONS, WORDS
from tensor_bundles import DTYPE_NUMBERS, header_message, index_file, masked_crc, tensor_message, write_bundle
from tiny_lm import tiny_lm, tiny_tokenizer_of

from elmo_hf import ElmoTokenizer
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp

from .carried import Places, compare_fields, distinct, options_of
from .folders import folder_files
from .mutators import Files
from .mutators.arrays import change_array
from .mutators.dice import Dice
from .outcomes import Wrong
from .plain_readers import PlainReader, read_hdf5_plainly, read_safetensors_plainly, read_torch_plainly, unpacked
from .target import INPUT, Target

OPTIONS: dict[str, Any] = {
    "lstm": {
        "projection_dim": 5,
        "dim": 7,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 2.5,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "embedding": {"dim": 3},
        "filters": [[1, 2], [3, 4]],
        "n_highway": 1,
        "activation": "relu",
        "max_characters_per_token": 13,
        "n_characters": 262,
    },
}
# Where the options say what a field of the config must be.
LSTM_FIELDS = {
    "projection_size": ("lstm", "projection_dim"),
    "cell_size": ("lstm", "dim"),
    "num_hidden_layers": ("lstm", "n_layers"),
    "cell_clip": ("lstm", "cell_clip"),
    "projection_clip": ("lstm", "proj_clip"),
    "use_skip_connections": ("lstm", "use_skip_connections"),
    "char_embedding_size": ("char_cnn", "embedding", "dim"),
    "char_filters": ("char_cnn", "filters"),
    "num_highway_layers": ("char_cnn", "n_highway"),
    "char_activation": ("char_cnn", "activation"),
    "max_word_length": ("char_cnn", "max_characters_per_token"),
}
MANYLANGS_FIELDS = {
    "projection_size": ("encoder", "projection_dim"),
    "cell_size": ("encoder", "dim"),
    "num_hidden_layers": ("encoder", "n_layers"),
    "cell_clip": ("encoder", "cell_clip"),
    "projection_clip": ("encoder", "proj_clip"),
    "char_filters": ("token_embedder", "filters"),
    "num_highway_layers": ("token_embedder", "n_highway"),
    "char_activation": ("token_embedder", "activation"),
    "max_word_length": ("token_embedder", "max_characters_per_token"),
}


def conversion(
    name: str, files: Files, read_plainly: PlainReader, fields: dict[str, tuple[str, ...]], **options: Any
) -> Target:
    """A target that converts its input, a folder or the file `alone`."""
    alone, given, rewrite = (options.get(key) for key in ("alone", "given", "rewrite"))
    learned: list[Places] = []

    def run(changed: Files) -> None:
        extra = {key: Path(INPUT, path) for key, path in (given or {}).items()}
        config = options_of(changed, fields)
        has_new_options = config != options_of(files, fields) and name != "words"
        convert_source(Path(INPUT, alone or ""), Path("out"), Given(**extra), check=has_new_options and not given)
        tensors = {}
        for path in Path("out").glob("*.safetensors"):
            tensors |= safetensors.numpy.load_file(path)
        try:
            arrays = read_plainly(changed)
        except Exception as error:  # of any library
            raise Wrong(f"read although a plain reader cannot: {type(error).__name__} {error}") from error
        if not learned:
            learned.append(Places(arrays, tensors))
        learned[0].compare(arrays, tensors)
        compare_fields(config, json.loads(Path("out/config.json").read_text()))
        ElmoTokenizer.from_pretrained("out")

    return Target(name, files, run, rewrite=rewrite)


def character_arrays() -> Arrays:
    """A small biLM that reads characters."""
    return distinct(random_checkpoint(OPTIONS, 1, cell_projection=True, char_projection=True))


def softmax_arrays() -> Arrays:
    """Its softmax."""
    size = OPTIONS["lstm"]["projection_dim"]
    return distinct({"softmax/W": np.zeros((len(WORDS), size)), "softmax/b": np.zeros(len(WORDS))}, seed=2)


def hdf5_bytes(work: Path, arrays: Arrays) -> bytes:
    """An hdf5 file."""
    return write_datasets(work / "arrays.hdf5", arrays).read_bytes()


def vocabulary_bytes() -> bytes:
    """The words of the softmax."""
    return "".join(f"{word}\n" for word in WORDS).encode()


def language_model_options() -> bytes:
    """Options with the keys of the softmax."""
    return json.dumps(OPTIONS | LANGUAGE_MODEL_OPTIONS).encode()


def allennlp(work: Path) -> Target:
    """`options.json` and hdf5 files, with a softmax and its vocabulary."""
    files = {"options.json": language_model_options(), "vocab.txt": vocabulary_bytes()}
    files |= {"weights.hdf5": hdf5_bytes(work, character_arrays())}
    files |= {"softmax.hdf5": hdf5_bytes(work, softmax_arrays())}
    return conversion("allennlp", files, read_hdf5_plainly, LSTM_FIELDS)


def words(work: Path) -> Target:
    """A biLM that reads words."""
    size = OPTIONS["lstm"]["projection_dim"]
    arrays = {name: array for name, array in character_arrays().items() if name.startswith("RNN")}
    arrays = distinct(arrays | {"embedding": np.zeros((len(WORDS), size))}, seed=3)
    files = {"options.json": json.dumps({"lstm": OPTIONS["lstm"]}).encode(), "vocab.txt": vocabulary_bytes()}
    return conversion("words", files | {"weights.hdf5": hdf5_bytes(work, arrays)}, read_hdf5_plainly, LSTM_FIELDS)


def dump(work: Path) -> Target:
    """A biLM that reads characters, and bilm-tf's dump of token vectors in their place."""
    size = OPTIONS["lstm"]["projection_dim"]
    table = distinct({"embedding": np.zeros((len(WORDS), size))}, seed=4)
    files = {"options.json": json.dumps(OPTIONS).encode(), "words.txt": vocabulary_bytes()}
    files |= {"weights.hdf5": hdf5_bytes(work, character_arrays()), "tokens.dump": hdf5_bytes(work, table)}
    given = {"token_embeddings": "tokens.dump", "vocabulary": "words.txt"}

    fields = {field: path for field, path in LSTM_FIELDS.items() if path[0] == "lstm"}
    return conversion("dump", files, read_hdf5_plainly, fields, given=given, alone="")


def bundle(work: Path) -> Target:
    """bilm-tf's save directory: a TensorFlow checkpoint, whose checksums cover everything."""
    cells = {"W_P_0": "projection/kernel", "W_0": "kernel", "B": "bias"}
    arrays: Arrays = {}
    for name, array in (character_arrays() | softmax_arrays()).items():
        head, _, last = name.rpartition("/")
        if name.startswith("RNN"):
            layer = head.partition("Cell/Cell")[2][0]
            name = f"{name[:5]}/rnn/multi_rnn_cell/cell_{layer}/lstm_cell/{cells[last]}"
        arrays[f"lm/{name}"] = array
    (work / "bundle").mkdir()
    write_bundle(work / "bundle" / "model.ckpt-7", arrays)
    files: Files = {path.name: path.read_bytes() for path in (work / "bundle").iterdir()}
    files |= {"options.json": language_model_options(), "vocab.txt": vocabulary_bytes()}
    files |= {"checkpoint": b'model_checkpoint_path: "model.ckpt-7"\nall_model_checkpoint_paths: "model.ckpt-7"\n'}
    rewrite = partial(rewrite_bundle, arrays=arrays)
    return conversion("bundle", files, lambda files: arrays, LSTM_FIELDS, rewrite=rewrite)


def rewrite_bundle(files: Files, dice: Dice, arrays: Arrays) -> Files:
    """Writes the checkpoint anew with one entry changed and every checksum right."""
    names = list(arrays)
    changed, odd = dict(arrays), dice.choice(names)
    kind = dice.choose("array", "missing", "renamed", "extra", "entry", "entry", "header")
    if kind == "array":
        array = change_array(arrays[odd], dice)
        is_other = array.shape != arrays[odd].shape and array.dtype.name in DTYPE_NUMBERS
        changed[odd] = array if is_other else arrays[odd].astype(np.float64)
    elif kind == "missing":
        del changed[odd]
    elif kind in ("renamed", "extra"):
        array = changed.pop(odd) if kind == "renamed" else arrays[odd]
        changed[dice.choose("lm/unknown", "", "x" * 1000, "lm/é", "global_step", f"{odd}/Adagrad", odd[3:])] = array
    data, messages = b"", {"": header_message(*dice.choice([(1, 0), (2, 0), (0, 0), (1, 1), (10**6, 0)]))}
    if kind != "header":
        messages[""] = header_message()
    for name, array in changed.items():
        facts: dict[str, Any] = {"dtype": DTYPE_NUMBERS[str(array.dtype)], "shape": array.shape, "offset": len(data)}
        facts |= {"size": array.nbytes, "checksum": masked_crc(array.tobytes())}
        if kind == "entry" and name == odd:
            field = dice.choose(*facts, "shard")
            number = dice.choice([0, 1, 2**31] if field == "checksum" else [0, 1, 2**31, 2**62])
            facts[field] = dice.choice([(), (0,), (2**40,), (1, 1, 1)]) if field == "shape" else number
        messages[name] = tensor_message(**facts)
        data += array.tobytes()
    return files | {"model.ckpt-7.data-00000-of-00001": data, "model.ckpt-7.index": index_file(messages)}


def trained_files() -> dict[str, bytes]:
    """A trained AllenNLP model with two scalar mixes and its options."""
    arrays = character_arrays()
    state = archives.allennlp_state(arrays, [([2.1, 2.2, 2.3], 1.7), ([2.4, 2.5, 2.6], 1.8)])
    return {
        "config.json": archives.config_json(dropout=0.25, do_layer_norm=False),
        "weights.th": archives.state_bytes(state),
        "vocabulary/labels.txt": b"O\nI-PER\n",
        f"fta/{archives.OPTIONS_KEY}": json.dumps(OPTIONS).encode(),
    }


def trained(work: Path) -> Target:
    """The folder of a trained AllenNLP model."""
    return conversion("trained", trained_files(), read_torch_plainly, LSTM_FIELDS)


def state_dict(work: Path) -> Target:
    """A `.th` file alone, in torch's newer form, with `--options`."""
    state = torch.load(io.BytesIO(trained_files()["weights.th"]), weights_only=True)
    files = {"model.th": archives.state_bytes(state, as_zip=True), "options.json": json.dumps(OPTIONS).encode()}
    given = {"options": "options.json"}
    return conversion("state-dict", files, read_torch_plainly, LSTM_FIELDS, alone="model.th", given=given)


def manylangs_files() -> dict[str, bytes]:
    """ELMoForManyLangs' folder, its weights all different."""
    files = {name: content for name, content in archives.manylangs_files().items() if name != "sentences.json"}
    for seed, name in enumerate(("encoder.pkl", "token_embedder.pkl"), start=5):
        state = {key: value.numpy() for key, value in torch.load(io.BytesIO(files[name]), weights_only=True).items()}
        tensors = {key: torch.from_numpy(array) for key, array in distinct(state, seed).items()}
        files[name] = archives.state_bytes(tensors)
    return files


def manylangs(work: Path) -> Target:
    """ELMoForManyLangs' folder."""
    return conversion("manylangs", manylangs_files(), read_torch_plainly, MANYLANGS_FIELDS)


def zipped(work: Path) -> Target:
    """AllenNLP's files as the NLPL repository packs them."""
    files = {"model.hdf5": hdf5_bytes(work, character_arrays()), "options.json": json.dumps(OPTIONS).encode()}
    files |= {"meta.json": b'{"corpus": ["none"]}'}
    packed: Files = {"model.zip": archives.write_zip(work / "model.zip", files).read_bytes()}
    return conversion("zip", packed, unpacked(read_hdf5_plainly, "model.zip"), LSTM_FIELDS, alone="model.zip")


def tarred(work: Path) -> Target:
    """A trained AllenNLP model's archive."""
    packed: Files = {"model.tar.gz": archives.write_tar(work / "model.tar.gz", trained_files()).read_bytes()}
    return conversion("tar-gz", packed, unpacked(read_torch_plainly, "model.tar.gz"), LSTM_FIELDS, alone="model.tar.gz")


def tarred_bz2(work: Path) -> Target:
    """ELMoForManyLangs' files in another archive."""
    content = archives.write_tar(work / "many.tar.bz2", manylangs_files(), "bz2").read_bytes()
    read = unpacked(read_torch_plainly, "many.tar.bz2")
    return conversion("tar-bz2", {"many.tar.bz2": content}, read, MANYLANGS_FIELDS, alone="many.tar.bz2")


def write_back(work: Path) -> Target:
    """A saved folder, written as AllenNLP's files again."""
    model = tiny_lm()
    state = distinct({name: tensor.numpy() for name, tensor in model.state_dict().items() if "mixes" not in name})
    state["elmo.token_encoder.embedding.weight"][0] = 0  # the padding's, which the format has no place for
    model.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()}, strict=False)
    files = folder_files(work, model, tiny_tokenizer_of(model, work))
    learned: list[Places] = []

    def run(changed: Files) -> None:
        folder_to_allennlp(Path(INPUT), Path("out"))
        written = read_hdf5_plainly({path.name: path.read_bytes() for path in Path("out").glob("*.hdf5")})
        tensors = read_safetensors_plainly(changed)
        if not learned:
            learned.append(Places(tensors, written))
        # Another forget bias becomes part of the numbers.
        if json.loads(changed["config.json"] or b"{}").get("forget_bias", 1.0) == 1.0:
            learned[0].compare(tensors, written)

    return Target("write-back", files, run)


TARGETS = {
    "write-back": write_back,
    "allennlp": allennlp,
    "words": words,
    "dump": dump,
    "bundle": bundle,
    "trained": trained,
    "state-dict": state_dict,
    "manylangs": manylangs,
    "zip": zipped,
    "tar-gz": tarred,
    "tar-bz2": tarred_bz2,
}
