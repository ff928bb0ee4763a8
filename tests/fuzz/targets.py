"""The kinds of input: for each a valid one, how it is opened, and what the result must be.

convert   a foreign checkpoint      the model holds the numbers that a plain reader finds, in their places
open      a saved model folder      tensors and fields are those of its files; it runs, with its tokenizer
read      a text                    each sentence has its vectors, or all words are listed
go on     interrupted work          the result is that of an undisturbed run
"""

import gzip
import io
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import archives
import h5py
import numpy as np
import safetensors.torch
import torch
from checkpoints import Arrays, random_checkpoint, random_options, write_datasets
from commands import run as command
from hostile_folders import HOSTILE_FOLDERS, INDEX, WEIGHTS
from language_models import LANGUAGE_MODEL_OPTIONS, WORDS
from task_models import LSTM, make_task_model
from tensor_bundles import header_message, index_file, masked_crc, tensor_message, write_bundle
from tiny_lm import SENTENCES as READ
from tiny_lm import tiny_lm, tiny_word_lm, tokenizer_of

from elmo_hf import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoPreTrainedModel,
    ElmoTokenizer,
)
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.text.sentences import storable

from .changes import TEXTS, Dice, Files, mutate
from .expected import (
    Places,
    Reader,
    compare_fields,
    distinct,
    options_of,
    read_hdf5,
    read_safetensors,
    read_torch,
    sentences_of,
    unpacked,
)
from .inputs import INPUT, Refusal, Target, Wrong, read_files

# --- convert ---------------------------------------------------------------------------------------------------------

# All sizes and both clips differ.
OPTIONS, _ = random_options(4)
OPTIONS["lstm"] |= {"proj_clip": 2.5}
SIZE = OPTIONS["lstm"]["projection_dim"]
# Where options have what a field of the config must be.
LSTM_FIELDS = {
    "projection_size": "lstm.projection_dim",
    "cell_size": "lstm.dim",
    "num_hidden_layers": "lstm.n_layers",
    "cell_clip": "lstm.cell_clip",
    "projection_clip": "lstm.proj_clip",
    "use_skip_connections": "lstm.use_skip_connections",
    "char_embedding_size": "char_cnn.embedding.dim",
    "char_filters": "char_cnn.filters",
    "num_highway_layers": "char_cnn.n_highway",
    "char_activation": "char_cnn.activation",
    "max_word_length": "char_cnn.max_characters_per_token",
}
MANYLANGS_FIELDS = {
    field: path.replace("lstm", "encoder").replace("char_cnn", "token_embedder")
    for field, path in LSTM_FIELDS.items()
    if field not in ("use_skip_connections", "char_embedding_size")
}


def conversion(files: Files, read: Reader, fields: dict[str, str] = LSTM_FIELDS, **options: Any) -> Target:
    """A target that converts its input: the folder, or the file `alone`, with other files `given` by name."""
    alone, given, rewrite = options.get("alone", ""), options.get("given", {}), options.get("rewrite")
    learned: list[Places] = []

    def run(folder: Path, changed: Files) -> None:
        source, config = folder / INPUT, options_of(changed, fields)
        is_checked = config != options_of(files, fields) and not given and "embedding" not in changed
        others = {key: source / name for key, name in given.items()}
        convert_source(source / alone, folder / "out", Given(**others), check=is_checked)
        tensors = read_safetensors(read_files(folder / "out"))
        try:
            arrays = read(changed)
        except Exception as error:  # of any library
            raise Wrong(f"read although a plain reader cannot: {type(error).__name__} {error}") from error
        if not learned:
            learned.append(Places(arrays, tensors))
        learned[0].compare(arrays, tensors)
        compare_fields(config, json.loads((folder / "out" / "config.json").read_text()))
        ElmoTokenizer.from_pretrained(folder / "out")

    return Target(files, run, rewrite=rewrite)


def character_arrays() -> Arrays:
    """A small biLM that reads characters."""
    return distinct(random_checkpoint(OPTIONS, 4, cell_projection=True, char_projection=True))


def softmax_arrays() -> Arrays:
    """Its softmax."""
    return distinct({"softmax/W": (len(WORDS), SIZE), "softmax/b": (len(WORDS),)}, seed=2)


def hdf5_bytes(work: Path, arrays: Arrays) -> bytes:
    """An hdf5 file."""
    return write_datasets(work / "arrays.hdf5", arrays).read_bytes()


OPTIONS_FILE = json.dumps(OPTIONS).encode()
LANGUAGE_MODEL_FILES: Files = {
    "options.json": json.dumps(OPTIONS | LANGUAGE_MODEL_OPTIONS).encode(),
    "vocab.txt": "".join(f"{word}\n" for word in WORDS).encode(),
}


def allennlp(work: Path) -> Target:
    """`options.json` and hdf5 files, with a softmax and its vocabulary."""
    arrays = {"weights.hdf5": character_arrays(), "softmax.hdf5": softmax_arrays()}
    return conversion(LANGUAGE_MODEL_FILES | {name: hdf5_bytes(work, each) for name, each in arrays.items()}, read_hdf5)


def words(work: Path) -> Target:
    """A biLM that reads words."""
    arrays = {name: array.shape for name, array in character_arrays().items() if name.startswith("RNN")}
    weights = distinct(arrays | {"embedding": (len(WORDS), SIZE)}, seed=3)
    files = LANGUAGE_MODEL_FILES | {"options.json": json.dumps({"lstm": OPTIONS["lstm"]}).encode()}
    return conversion(files | {"weights.hdf5": hdf5_bytes(work, weights)}, read_hdf5)


def dump(work: Path) -> Target:
    """A biLM that reads characters, and bilm-tf's dump of token vectors in their place."""
    files = {"options.json": OPTIONS_FILE, "words.txt": LANGUAGE_MODEL_FILES["vocab.txt"]}
    files |= {"weights.hdf5": hdf5_bytes(work, character_arrays())}
    files |= {"tokens.dump": hdf5_bytes(work, distinct({"embedding": (len(WORDS), SIZE)}, seed=4))}
    fields = {field: path for field, path in LSTM_FIELDS.items() if path.startswith("lstm")}
    return conversion(files, read_hdf5, fields, given={"token_embeddings": "tokens.dump", "vocabulary": "words.txt"})


PREFIX = "model.ckpt-7"


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
    write_bundle(work / "bundle" / PREFIX, arrays)
    files = LANGUAGE_MODEL_FILES | read_files(work / "bundle")
    files |= {"checkpoint": b'model_checkpoint_path: "model.ckpt-7"\nall_model_checkpoint_paths: "model.ckpt-7"\n'}
    return conversion(files, lambda files: arrays, rewrite=partial(rewrite_bundle, arrays=arrays))


def rewrite_bundle(files: Files, dice: Dice, arrays: Arrays) -> Files:
    """Writes the checkpoint anew with one entry changed and every checksum right."""
    changed, name = dict(arrays), dice.choice(list(arrays))
    array = changed.pop(name)
    kind = dice.choose("array", "missing", "renamed", "entry", "entry", "entry", "header")
    if kind == "array":
        changed[name] = dice.choice([array[None], array.astype(np.float64), array.astype(np.int32), array[:0]])
    elif kind != "missing":
        changed[dice.choose(*TEXTS, "global_step", f"{name}/Adagrad", name[3:]) if kind == "renamed" else name] = array
    with tempfile.TemporaryDirectory() as folder:
        messages = write_bundle(Path(folder, PREFIX), changed)
        files |= read_files(Path(folder))
    if kind == "header":
        messages[""] = header_message(*dice.choice([(1, 0), (2, 0), (0, 0), (1, 1), (10**6, 0)]))
    elif kind == "entry":  # of the last array
        offset = sum(each.nbytes for each in changed.values()) - array.nbytes
        facts = {"dtype": 1, "shape": array.shape, "offset": offset, "size": array.nbytes, "shard": 0}
        facts["checksum"] = masked_crc(array.tobytes())
        field = dice.choose(*facts)
        numbers = [0, 1, 2**31] if field == "checksum" else [0, 1, 2**31, 2**62]
        facts[field] = dice.choice([(), (0,), (2**40,), (1, 1, 1)] if field == "shape" else numbers)
        messages[name] = tensor_message(**facts)
    return files | {f"{PREFIX}.index": index_file(messages)}


def trained_files() -> dict[str, bytes]:
    """A trained AllenNLP model with two scalar mixes and its options."""
    state = archives.allennlp_state(character_arrays(), [([2.1, 2.2, 2.3], 1.7), ([2.4, 2.5, 2.6], 1.8)])
    return {
        "config.json": archives.config_json(dropout=0.25, do_layer_norm=False),
        "weights.th": archives.state_bytes(state),
        "vocabulary/labels.txt": b"O\nI-PER\n",
        f"fta/{archives.OPTIONS_KEY}": OPTIONS_FILE,
    }


def state_dict(work: Path) -> Target:
    """A `.th` file alone, in torch's newer form, with `--options`."""
    state = torch.load(io.BytesIO(trained_files()["weights.th"]), weights_only=True)
    files: Files = {"model.th": archives.state_bytes(state, as_zip=True), "options.json": OPTIONS_FILE}
    return conversion(files, read_torch, alone="model.th", given={"options": "options.json"})


def manylangs_files() -> dict[str, bytes]:
    """ELMoForManyLangs' folder, its weights all different."""
    files = {name: content for name, content in archives.manylangs_files().items() if name != "sentences.json"}
    for seed, name in enumerate(("encoder.pkl", "token_embedder.pkl"), start=5):
        state = {key: value.numpy() for key, value in torch.load(io.BytesIO(files[name]), weights_only=True).items()}
        tensors = {key: torch.from_numpy(array) for key, array in distinct(state, seed).items()}
        files[name] = archives.state_bytes(tensors)
    return files


def zipped(work: Path) -> Target:
    """AllenNLP's files as the NLPL repository packs them."""
    files = {"model.hdf5": hdf5_bytes(work, character_arrays()), "options.json": OPTIONS_FILE}
    content = archives.write_zip(work / "model.zip", files | {"meta.json": b'{"corpus": ["none"]}'}).read_bytes()
    return conversion({"model.zip": content}, unpacked(read_hdf5, "model.zip"), alone="model.zip")


def tarred(name: str, make_files: Callable[[], dict[str, bytes]], fields: Any, work: Path) -> Target:
    """Files in an archive."""
    content = archives.write_tar(work / name, make_files(), name.rpartition(".")[2]).read_bytes()
    return conversion({name: content}, unpacked(read_torch, name), fields, alone=name)


# --- open ------------------------------------------------------------------------------------------------------------

SENTENCES = ["the ferry left", "naïve 日本語 extraordinarily unseen"]
MOST_BYTES = 16 << 20
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "words.txt")
# Fields of the config that loading resolves: they may differ from what the file says.
RESOLVED = {"scalar_mix_weights", "hidden_size", "char_projection", "cell_projection", "bos_token_id", "eos_token_id"}


def folder_files(work: Path, model: ElmoPreTrainedModel, **saving: Any) -> Files:
    """What a saved folder holds, without code."""
    is_task = isinstance(model, ElmoForTokenClassification)
    tokenizer = ElmoTokenizer(max_word_length=11) if is_task else tokenizer_of(model)  # type: ignore[arg-type]
    for part in (model, tokenizer):
        part.save_pretrained(work / "saved", **saving)
    return {name: each for name, each in read_files(work / "saved").items() if not name.endswith((".py", ".md"))}


def opening(make: Callable[[], ElmoPreTrainedModel], model_class: type[ElmoPreTrainedModel], work: Path) -> Target:
    """A target that loads a folder and its tokenizer by the package's one door, and embeds."""
    files = folder_files(work, make(), max_shard_size="4KB" if model_class is ElmoForPreTraining else "1GB")
    learned: list[tuple[list, np.ndarray]] = []

    def run(folder: Path, changed: Files) -> None:
        tokenizer = load_tokenizer(folder / INPUT)
        inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
        tokenizer.decode(inputs["input_ids"][0])
        if tokenizer.num_word_classes is not None:
            tokenizer.class_words(tokenizer.word_classes(["the", "<S>", "unseen"]).tolist())
        ids = inputs["input_ids"].tolist()
        if learned and ids != learned[0][0] and all(changed.get(key) == files.get(key) for key in TOKENIZER_FILES):
            raise Wrong("other ids although the tokenizer's files are the same")
        model = load_complete(folder / INPUT, model_class)
        compare_tensors(model, changed)
        said = {key: each for key, each in json.loads(changed["config.json"]).items() if key not in RESOLVED}
        compare_fields({key: said[key] for key in said.keys() & ElmoConfig.__annotations__.keys()}, model.config)
        with torch.no_grad():
            result = model(**inputs, **({"output_logits": True} if model_class is ElmoForPreTraining else {}))
        top = next(value for value in result.to_tuple() if isinstance(value, torch.Tensor)).numpy()
        learned.append((ids, top))
        if changed == files and not np.array_equal(top, learned[0][1]):
            raise Wrong("other vectors of the same files")

    return Target(files, run, rewrite=rewrite_folder)


def compare_tensors(model: ElmoPreTrainedModel, files: Files) -> None:
    """Raises `Wrong` if a tensor is not, bit by bit, what the folder's files hold under its name."""
    names = {WEIGHTS} if WEIGHTS in files else {*json.loads(files[INDEX])["weight_map"].values()}
    odd = [name for name in names if not re.fullmatch(r"[^/\\]+\.safetensors", name)]
    if odd:
        raise Wrong(f"loaded weights from {odd[0]!r}, which is no name of a safetensors file")
    held = {
        key.removeprefix("elmo."): tensor
        for name in names
        for key, tensor in safetensors.torch.load(files[name]).items()
    }
    for name, tensor in model.state_dict().items():
        found = held.get(name.removeprefix("elmo."))
        is_new = found is None and "scalar_mixes." in name  # a mix that is not there starts anew
        if not is_new and (found is None or not bits(found.to(tensor.dtype)).equal(bits(tensor))):
            raise Wrong(f"tensor {name} is not what the folder's files hold")


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes, and its shape."""
    return tensor.contiguous()[..., None].view(torch.uint8)


def rewrite_folder(files: Files, dice: Dice) -> Files:
    """Changes the folder as a row of the table of hostile folders does, where it can, and then at random."""
    change, _ = HOSTILE_FOLDERS[dice.choose(*HOSTILE_FOLDERS)]
    with tempfile.TemporaryDirectory() as work, suppress(KeyError, OSError):  # of a row for another model
        folder = archives.write_files(Path(work, INPUT), files)
        change(folder)
        if sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES:
            files = read_files(folder)
    return mutate(files, dice)


# --- read ------------------------------------------------------------------------------------------------------------

EMPTY = "\t_" * 8 + "\n"  # the other columns of a word
CONTENTS = {
    "txt": "".join(f"{' '.join(words)}\n" for words in READ),
    "jsonl": "".join(
        json.dumps({"words": words} if len(words) > 3 else {"text": " ".join(words)}) + "\n" for words in READ
    ),
    "conllu": "".join(
        "# sent_id = 1\n1-2\tdámelo"
        + EMPTY
        + "".join(f"{number}\t{word}" + EMPTY for number, word in enumerate(words, 1))
        + f"1.1\tgone{EMPTY}\n"
        for words in READ
        if words
    ),
}


# What a vocabulary file can hold.
WORD = re.compile(r"(?!.*[\ud800-\udfff\r\n])\S(.*\S)?", re.DOTALL)
SPECIAL = ["<S>", "</S>", "<UNK>"]


def call(*arguments: object) -> None:
    """Runs a command in this process; its `Error: ...` becomes a `Refusal`, any other error is raised as it is."""
    result = command(*arguments)
    if result.exit_code == 0:
        return
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    raise Refusal(result.stderr.rpartition("Error: ")[2].strip())


def reading(kind: str, work: Path) -> Target:
    """A target that embeds a text and lists its words."""
    content = CONTENTS[kind.removesuffix(".gz")].encode()
    file = f"x.{kind}"
    files: Files = {file: gzip.compress(content) if kind.endswith(".gz") else content}
    folder_files(work, tiny_lm())
    known: dict[tuple[str, ...], np.ndarray] = {}

    def run(folder: Path, changed: Files) -> None:
        out, text = folder / "out.hdf5", folder / INPUT / file
        call("embed", work / "saved", text, "-o", out, "--split-into-words", "--layers", "average")
        lists = [each.split() if isinstance(each, str) else each for each in sentences_of(kind, changed[file])]
        with h5py.File(out) as found:
            if len(found) - 1 != len(lists):
                raise Wrong(f"{len(found) - 1} vectors of {len(lists)} sentences")
            for index, words in enumerate(lists):
                vectors = found[str(index)][()]
                expected = known.setdefault(tuple(words), vectors)  # by the first run or an equal sentence
                is_whole = len(vectors) == len(words) and np.isfinite(vectors).all()
                if not is_whole or not np.allclose(vectors, expected, rtol=0, atol=1e-5):
                    raise Wrong(f"other vectors of sentence {index}")
        out.unlink()
        call("vocab", text, "-o", folder / "out.txt")
        counts = Counter(
            word
            for words in lists
            for word in words
            if re.fullmatch(r"\S([^\r\n]*\S)?", word) and storable(word) == word
        )
        for special in (*SPECIAL, "<pad>", "!!!MAXTERMID"):
            counts.pop(special, None)
        listed = [word for _, word in sorted((-count, word) for word, count in counts.items())]
        if (folder / "out.txt").read_bytes().decode().split("\n") != [*SPECIAL, *listed, ""]:
            raise Wrong("other words than the file's")

    return Target(files, run)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "allennlp": allennlp,
    "words": words,
    "dump": dump,
    "bundle": bundle,
    "trained": lambda work: conversion(dict(trained_files()), read_torch),
    "state-dict": state_dict,
    "manylangs": lambda work: conversion(dict(manylangs_files()), read_torch, MANYLANGS_FIELDS),
    "zip": zipped,
    "tar-gz": partial(tarred, "model.tar.gz", trained_files, LSTM_FIELDS),
    "tar-bz2": partial(tarred, "many.tar.bz2", manylangs_files, MANYLANGS_FIELDS),
    "char-model": partial(opening, lambda: tiny_lm().elmo, ElmoModel),
    "word-model": partial(opening, lambda: tiny_word_lm().elmo, ElmoModel),
    "language-model": partial(opening, tiny_lm, ElmoForPreTraining),
    "task-model": partial(opening, lambda: make_task_model("crf", **LSTM), ElmoForTokenClassification),
    **{f"text-{kind}": partial(reading, kind) for kind in ("txt", "jsonl", "conllu", "txt.gz", "jsonl.gz")},
}
