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
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import safetensors.torch
import torch

from elmo_hf import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoPreTrainedModel,
    ElmoTokenizer,
)
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import FolderSettings, convert_source
from elmo_hf.conversion.options import Option
from elmo_hf.conversion.readers.hdf5_layout import CHAR_CNN_OPTIONS, LSTM_OPTIONS
from elmo_hf.conversion.readers.manylangs import CHARACTER_OPTIONS, ENCODER_OPTIONS
from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.text.sentences import storable
from tests.helpers import archives
from tests.helpers.archives import read_files
from tests.helpers.checkpoints import Arrays, random_options, write_datasets
from tests.helpers.commands import run as command
from tests.helpers.hostile_folders import HOSTILE_FOLDERS, INDEX, WEIGHTS, saved
from tests.helpers.language_models import random_language_model
from tests.helpers.task_models import LSTM, make_task_model
from tests.helpers.tensor_bundles import header_message, index_file, masked_crc, tensor_message, write_bundle
from tests.helpers.tiny_lm import SENTENCES as READ
from tests.helpers.tiny_lm import tiny_lm, tiny_word_lm

from .changes import Files, change_arrays, mutate
from .expected import Places, compare_fields, options_of, read_arrays, sentences_of
from .inputs import INPUT, Refusal, Target, Wrong
from .text_changes import Dice

SEED = 4
# What options say about fields of the config.
OPTIONS = (*LSTM_OPTIONS, *CHAR_CNN_OPTIONS)
MANYLANGS_OPTIONS = (*ENCODER_OPTIONS, *CHARACTER_OPTIONS)


def conversion(
    files: Files,
    options: Sequence[Option] = OPTIONS,
    read: Callable[[Files], Arrays] = read_arrays,
    source: str = "",
    given: dict[str, str] | None = None,
    rewrite: Callable[[Files, Dice], Files] | None = None,
) -> Target:
    """A target that converts its input: the folder, or its file `source`, with other files `given` by name."""
    learned: list[Places] = []

    def run(folder: Path, changed: Files) -> None:
        config = options_of(changed, options)
        others = {key: folder / INPUT / name for key, name in (given or {}).items()}
        is_checked = config != options_of(files, options) and not given and "embedding" not in changed
        convert_source(folder / INPUT / source, folder / "out", NamedFiles(**others), FolderSettings(check=is_checked))
        tensors = read_arrays(read_files(folder / "out"))
        try:
            arrays = read(changed)
        except Exception as error:  # of any library
            raise Wrong(f"read although a plain reader cannot: {type(error).__name__} {error}") from error
        if not learned:
            learned.append(Places(arrays, tensors))
        learned[0].compare(arrays, tensors)
        compare_fields(config, json.loads((folder / "out" / "config.json").read_text()))
        ElmoTokenizer.from_pretrained(folder / "out")

    return Target(files, run, rewrite)


def conversions(work: Path) -> dict[str, Target]:
    """A target for each format of a checkpoint."""
    # All sizes and both clips differ.
    lstm = random_options(SEED)[0]["lstm"] | {"proj_clip": 2.5}
    _, _, arrays = random_language_model(SEED, work / "model", lstm=lstm)
    model = read_files(work / "model")
    options, vocabulary = model["options.json"], model["vocab.txt"]
    layers = {name: array for name, array in arrays.items() if name.startswith("RNN")}
    word_vectors = {"embedding": arrays["softmax/W"]}
    nlpl = {"model.hdf5": model["weights.hdf5"], "options.json": options, "meta.json": b'{"corpus": ["none"]}'}
    state = archives.allennlp_state(arrays, [([2.1, 2.2, 2.3], 1.7), ([2.4, 2.5, 2.6], 1.8)])
    trained = {
        "config.json": archives.config_json(dropout=0.25, do_layer_norm=False),
        "weights.th": archives.state_bytes(state),
        "vocabulary/labels.txt": b"O\nI-PER\n",
        f"fta/{archives.OPTIONS_KEY}": options,
    }
    manylangs = {name: content for name, content in archives.manylangs_files().items() if name != "sentences.json"}
    return {
        # with a softmax and its vocabulary
        "allennlp": conversion(model),
        # a biLM that reads words
        "words": conversion(
            {
                "options.json": json.dumps({"lstm": lstm}).encode(),
                "weights.hdf5": hdf5_bytes(layers | word_vectors),
                "vocab.txt": vocabulary,
            }
        ),
        # bilm-tf's dump of token vectors in place of the characters
        "dump": conversion(
            {
                "options.json": options,
                "weights.hdf5": model["weights.hdf5"],
                "words.txt": vocabulary,
                "tokens.dump": hdf5_bytes(word_vectors),
            },
            LSTM_OPTIONS,
            given={"token_embeddings": "tokens.dump", "vocabulary": "words.txt"},
        ),
        "bundle": bundle({"options.json": options, "vocab.txt": vocabulary}, arrays, work / "bundle"),
        "trained": conversion(trained),
        # a file alone, in torch's newer form
        "state-dict": conversion(
            {"model.th": archives.state_bytes(state, as_zip=True), "options.json": options},
            source="model.th",
            given={"options": "options.json"},
        ),
        "manylangs": conversion(manylangs, MANYLANGS_OPTIONS),
        "zip": packed(archives.write_zip(work / "model.zip", nlpl)),
        "tar-gz": packed(archives.write_tar(work / "model.tar.gz", trained)),
        "tar-bz2": packed(archives.write_tar(work / "many.tar.bz2", manylangs, "bz2"), MANYLANGS_OPTIONS),
    }


def hdf5_bytes(arrays: Arrays) -> bytes:
    content = io.BytesIO()
    write_datasets(content, arrays)
    return content.getvalue()


def packed(archive: Path, options: Sequence[Option] = OPTIONS) -> Target:
    return conversion({archive.name: archive.read_bytes()}, options, source=archive.name)


PREFIX = "model.ckpt-7"


def bundle(files: Files, ours: Arrays, work: Path) -> Target:
    """A target of bilm-tf's save directory: a TensorFlow checkpoint, whose checksums cover everything."""
    cells = {"W_P_0": "projection/kernel", "W_0": "kernel", "B": "bias"}
    arrays: Arrays = {}
    for name, array in ours.items():
        head, _, last = name.rpartition("/")
        if name.startswith("RNN"):
            layer = head.partition("Cell/Cell")[2][0]
            name = f"{name[:5]}/rnn/multi_rnn_cell/cell_{layer}/lstm_cell/{cells[last]}"
        arrays[f"lm/{name}"] = array
    work.mkdir()
    write_bundle(work / PREFIX, arrays)
    record = f'model_checkpoint_path: "{PREFIX}"\nall_model_checkpoint_paths: "{PREFIX}"\n'.encode()
    saved_files = files | read_files(work) | {"checkpoint": record}
    written = [arrays]  # the last are those of the input
    return conversion(saved_files, read=lambda _: written[-1], rewrite=partial(rewrite_bundle, written=written))


def rewrite_bundle(files: Files, dice: Dice, written: list[Arrays]) -> Files:
    """Writes the checkpoint anew: changes arrays, header or one entry, not checksums; adds the arrays to `written`."""
    arrays = written[0]
    kind, name = dice.choose("arrays", "arrays", "entry", "entry", "header"), dice.choose(*arrays)
    changed = change_arrays(arrays, dice) if kind == "arrays" else arrays
    with tempfile.TemporaryDirectory() as folder:
        messages = write_bundle(Path(folder, PREFIX), changed)
        files |= read_files(Path(folder))
    written.append(changed)
    if kind == "header":
        messages[""] = header_message(*dice.choice([(1, 0), (2, 0), (0, 0), (1, 1), (10**6, 0)]))
    elif kind == "entry":
        array, before = arrays[name], [*arrays.values()][: [*arrays].index(name)]
        facts = {"dtype": 1, "shape": array.shape, "offset": sum(each.nbytes for each in before), "size": array.nbytes}
        facts |= {"shard": 0, "checksum": masked_crc(array.tobytes())}
        field = dice.choose(*facts)
        most = 2**32 - 1 if field == "checksum" else 2**62  # that the format holds
        facts[field] = dice.choice([(), (0,), (2**40,), (1, 1, 1)] if field == "shape" else [0, 1, 2**31, most])
        messages[name] = tensor_message(**facts)
    return files | {f"{PREFIX}.index": index_file(messages)}


SENTENCES = ["the ferry left", "naïve 日本語 extraordinarily unseen"]
MOST_BYTES = 16 << 20
TOKENIZER_FILES = {"tokenizer.json", "tokenizer_config.json", "words.txt"}
# Fields of the config that loading resolves: they may differ from what the file says.
RESOLVED = {"scalar_mix_weights", "hidden_size", "char_projection", "cell_projection", "bos_token_id", "eos_token_id"}


def opening(make: Callable[[], ElmoPreTrainedModel], model_class: type[ElmoPreTrainedModel]) -> Target:
    """A target that loads a folder and its tokenizer by the package's one door, and embeds."""
    files = saved(make, max_shard_size="4KB" if model_class is ElmoForPreTraining else "1GB")
    learned: list[list] = []

    def run(folder: Path, changed: Files) -> None:
        tokenizer = load_tokenizer(folder / INPUT)
        inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
        tokenizer.decode(inputs["input_ids"][0])
        if tokenizer.num_word_classes is not None:
            tokenizer.class_words(tokenizer.word_classes(["the", "<S>", "unseen"]).tolist())
        learned.append(inputs["input_ids"].tolist())
        if learned[-1] != learned[0] and all(changed.get(key) == files[key] for key in TOKENIZER_FILES & files.keys()):
            raise Wrong("other ids although the tokenizer's files are the same")
        model = load_complete(folder / INPUT, model_class)
        compare_tensors(model, changed)
        said = {key: each for key, each in json.loads(changed["config.json"]).items() if key not in RESOLVED}
        compare_fields({key: said[key] for key in said.keys() & ElmoConfig.__annotations__.keys()}, model.config)
        with torch.no_grad():
            model(**inputs, **({"output_logits": True} if model_class is ElmoForPreTraining else {}))

    return Target(files, run, rewrite_folder)


def compare_tensors(model: ElmoPreTrainedModel, files: Files) -> None:
    """Raises `Wrong` if a tensor is not what the folder's files hold under its name."""
    names = {WEIGHTS} if WEIGHTS in files else {*json.loads(files[INDEX])["weight_map"].values()}
    odd = [name for name in names if not re.fullmatch(r"[^/\\]+\.safetensors", name)]
    if odd:
        raise Wrong(f"loaded weights from {odd[0]!r}, which is no name of a safetensors file")
    tensors = [safetensors.torch.load(files[name]).items() for name in names]
    held = {key.removeprefix("elmo."): tensor for each in tensors for key, tensor in each}
    for name, tensor in model.state_dict().items():
        found = held.get(name.removeprefix("elmo."))
        if found is None and "scalar_mixes." in name:  # a mix that is not there starts anew
            continue
        if found is None or not torch.allclose(found.to(tensor.dtype), tensor, rtol=0, atol=0, equal_nan=True):
            raise Wrong(f"tensor {name} is not what the folder's files hold")


def rewrite_folder(files: Files, dice: Dice) -> Files:
    """Changes the folder as a row of the table of hostile folders does, where it can, and then at random."""
    change, _ = HOSTILE_FOLDERS[dice.choose(*HOSTILE_FOLDERS)]
    with tempfile.TemporaryDirectory() as work:
        folder = archives.write_files(Path(work, INPUT), files)
        change(folder)
        if sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES:
            files = read_files(folder)
    return mutate(files, dice)


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
    "csv": "id,text\n" + "".join(f'{number},"{" ".join(words)}"\n' for number, words in enumerate(READ)),
    "fasta": ">a first\nMKV\nlt*\n>b\nGX-\n>c\n>d last\nAAAAAAAAAAAA\n",
}


SPECIAL = ["<S>", "</S>", "<UNK>"]
UNLISTED = {*SPECIAL, "<pad>", "!!!MAXTERMID"}
WORD = re.compile(r"\S([^\r\n]*\S)?")


def call(*arguments: object) -> None:
    """Runs a command in this process; its `Error: ...` becomes a `Refusal`, any other error is raised as it is."""
    result = command(*arguments)
    if result.exit_code == 0:
        return
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    raise Refusal(result.stderr.rpartition("Error: ")[2].strip())


def reading(kind: str, model: Path) -> Target:
    """A target that embeds a text with a saved model and lists its words."""
    content = CONTENTS[kind.removesuffix(".gz")].encode()
    file = f"x.{kind}"
    files: Files = {file: gzip.compress(content) if kind.endswith(".gz") else content}
    known: dict[tuple[str, ...], np.ndarray] = {}

    def run(folder: Path, changed: Files) -> None:
        out, text = folder / "out.hdf5", folder / INPUT / file
        call("embed", model, text, "-o", out, "--split-into-words", "--layers", "average")
        lists = [each.split() if isinstance(each, str) else each for each in sentences_of(kind, changed[file])]
        with h5py.File(out) as found:
            # Beside the numbers there are names, of proteins.
            numbers = {name for name in found if name.isdecimal()}
            if numbers != {str(index) for index in range(len(lists))}:
                raise Wrong(f"{len(numbers)} vectors of {len(lists)} sentences")
            for index, words in enumerate(lists):
                vectors = found[str(index)][()]
                expected = known.setdefault(tuple(words), vectors)  # by the first run or an equal sentence
                is_whole = len(vectors) == len(words) and np.isfinite(vectors).all()
                if not is_whole or not np.allclose(vectors, expected, rtol=0, atol=1e-5):
                    raise Wrong(f"other vectors of sentence {index}")
        out.unlink()
        call("vocab", text, "-o", folder / "out.txt")
        # What a vocabulary file can hold.
        counts = Counter(word for words in lists for word in words if WORD.fullmatch(word) and storable(word) == word)
        listed = sorted(counts.keys() - UNLISTED, key=lambda word: (-counts[word], word))
        if (folder / "out.txt").read_bytes().decode().split("\n") != [*SPECIAL, *listed, ""]:
            raise Wrong("other words than the file's")

    return Target(files, run)


def carding(model: Path) -> Target:
    """A target that describes a folder by its card, and changes the card."""
    files = {"README.md": b"---\nlicense: mit\nlanguage:\n- en\nx: [1, a]\n---\n# Title\n\nText.\n"}

    def run(folder: Path, changed: Files) -> None:
        copy = archives.write_files(folder / "out", read_files(model) | changed)
        try:
            call("info", copy)
            call("card", copy, "--license", "cc0-1.0")
            if "README.md" in changed and "license: cc0-1.0" not in (copy / "README.md").read_text("utf-8"):
                raise Wrong("the card lacks its licence")
        finally:
            shutil.rmtree(copy)

    return Target(files, run)


def make_targets(work: Path) -> dict[str, Target]:
    """All targets by name; what they need is in the folder."""
    model = archives.write_files(work / "saved", saved())
    return {
        **conversions(work),
        "card": carding(model),
        "char-model": opening(lambda: tiny_lm().elmo, ElmoModel),
        "word-model": opening(lambda: tiny_word_lm().elmo, ElmoModel),
        "language-model": opening(tiny_lm, ElmoForPreTraining),
        "task-model": opening(lambda: make_task_model("crf", **LSTM), ElmoForTokenClassification),
        **{
            f"text-{kind}": reading(kind, model)
            for kind in ("txt", "jsonl", "conllu", "csv", "fasta", "txt.gz", "jsonl.gz", "csv.gz", "fasta.gz")
        },
    }
