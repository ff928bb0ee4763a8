"""What a run was started with: the record `run.json`, which a resumed run must agree with.

The record has, as text,

    settings that change the result     the fields of `PretrainingArguments` in `DECISIVE` and `OF_THE_BEST`
    the architecture                    `config.NAME` of each field that is not the default, and `dtype`
    the corpora                         `train`, `held_out`: sizes, and a digest of sentences, input ids and classes
    the tokenizer                       `words` (of the softmax), `word_splitter`, `tokenizer` (all else)
    the weights at the start            `start_weights`: a digest of the adapted model's, or "random"
    facts                               `started_from`, `torch`, `transformers`, `device`

Contents are compared, so a folder may be moved, or given by another path. Random weights follow from the seed and the
architecture. Facts are not compared: `started_from` names the adapted model, and the others change no more than the
last bits of the result, so a run that goes on in other surroundings prints a warning. Each checkpoint has a copy of the
record, which shows to which run it belongs.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from ..disk.checksums import sha256_of_model
from ..folder.saved_json import read_json
from ..language_model.corpus import Corpus
from ..public import ElmoForPreTraining, ElmoTokenizer
from .checkpoints import RECORD, checkpoint_folders, complete_checkpoints
from .trainer import PretrainingArguments

logger = logging.getLogger(__name__)
# Settings that change the result of a run; others only change the logs.
DECISIVE = (
    "seed",
    "data_seed",
    "world_size",
    "num_train_epochs",
    "max_steps",
    "frozen_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "unroll_steps",
    "reset_probability",
    "optim",
    "optim_args",
    "adagrad_start",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "weight_decay",
    "learning_rate",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "scale_loss_by_steps",
    "max_grad_norm",
    "bf16",
    "fp16",
    "load_best_model_at_end",
)
# Settings that decide which checkpoint is the best, for a run that ends with the best one.
OF_THE_BEST = (
    "metric_for_best_model",
    "greater_is_better",
    "eval_strategy",
    "eval_steps",
    "eval_delay",
    "save_strategy",
    "save_steps",
)
SURROUNDINGS = ("torch", "transformers", "device")
FACTS = ("started_from", *SURROUNDINGS)
# Names that the records of version 0.1.0 lack.
ADDED = ("dtype", "load_best_model_at_end", *OF_THE_BEST, "start_weights", "tokenizer", "word_splitter", "words")


class Start(NamedTuple):
    """The model that a run adapts.

    Attributes:
        name: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"`.
        has_new_softmax: whether the weights of the softmax are not the model's but random ones.
    """

    name: str
    has_new_softmax: bool = False


def describe_run(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    train: Corpus,
    held_out: Corpus | None,
    args: PretrainingArguments,
    start: Start | None,
) -> dict[str, str]:
    """The record of a run that starts with these arguments of `pretrain`."""
    config = model.config.to_diff_dict()
    config.pop("transformers_version", None)
    settings = [*DECISIVE, *OF_THE_BEST] if args.load_best_model_at_end else DECISIVE
    words = tokenizer.predicted_words or []
    record = {name: str(getattr(args, name)) for name in settings}
    record |= {f"config.{name}": str(config[name]) for name in sorted(config)}
    record |= {
        "dtype": str(model.dtype),
        "train": _digest_of_corpus(train),
        "held_out": "none" if held_out is None else _digest_of_corpus(held_out),
        "words": f"{len(words)} words, {_digest_of_lines(words)}",
        "word_splitter": tokenizer.word_splitter,
        "tokenizer": _digest_of_tokenizer(tokenizer),
        "start_weights": "random" if start is None else _digest_of_weights(model, start),
    }
    if start is not None:
        record["started_from"] = _name_of(start)
    record |= {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": _name_of_device(args.device),
    }
    return record


def check_folder(output: Path, planned: set[str]) -> None:
    """Raises ValueError if a folder without a record has checkpoints, or files that the run would replace.

    Args:
        output: the folder of the run.
        planned: names of files that the run writes.
    """
    if (output / RECORD).exists():
        return
    if checkpoint_folders(output):
        raise ValueError(
            f"{output} has checkpoints but no {RECORD}, which says how their run was started. Choose another folder; "
            f"or put {RECORD} back: each checkpoint of elmo-hf has a copy of it."
        )
    taken = sorted(planned & {path.name for path in output.glob("*")})
    if taken:
        raise ValueError(
            f"{output} has {', '.join(taken)} but no {RECORD}, so it is not the folder of a run, which would replace "
            "these files. Choose another folder."
        )


def resumed_record(output: Path, description: Mapping[str, str]) -> dict[str, str]:
    """The record of the run in a folder, if a run of this description may go on with its checkpoints.

    Raises:
        OSError: if the record cannot be read.
        ValueError: if the run was started in another way, or if a checkpoint is of another run.
    """
    path = output / RECORD
    record = read_json(path)
    differing = _differing(record, description)
    if "start_weights" in differing:
        differing.append("started_from")  # says which models they are
    if differing:
        differences = [f"{name} was {record.get(name)}, now {description.get(name)}" for name in differing]
        raise ValueError(
            f"{output} holds a run that was started with different settings. Give the same to resume it, or "
            f"choose another folder: {'; '.join(differences)}."
        )
    for checkpoint in complete_checkpoints(output).values():
        _check_origin(checkpoint, record, path)
    missing = [name for name in ADDED if name in description and name not in record]
    if missing:
        logger.warning(
            "%s is of an earlier version and lacks %s; whether these are the same as at the start is not checked.",
            path,
            ", ".join(missing),
        )
    changed = [name for name in SURROUNDINGS if record.get(name, description[name]) != description[name]]
    if changed:
        changes = "; ".join(f"{name} was {record[name]}, now {description[name]}" for name in changed)
        logger.warning(
            "The run in %s goes on in other surroundings than it began in, so its result may differ from that of an "
            "uninterrupted run: %s.",
            output,
            changes,
        )
    return record


def _differing(record: Mapping[str, str], description: Mapping[str, str]) -> list[str]:
    """The names of what differs, except facts and what the record is too old to have."""
    unknown = {name for name in ADDED if name not in record}
    names = sorted({*record, *description} - {*FACTS} - unknown)
    return [name for name in names if record.get(name) != description.get(name)]


def _check_origin(checkpoint: Path, record: Mapping[str, str], path: Path) -> None:
    """Raises ValueError if the checkpoint's copy of the record is not that of the run."""
    problem = ""
    if (checkpoint / RECORD).exists():
        differing = _differing(record, read_json(checkpoint / RECORD))
        if differing:
            problem = f"its {RECORD} differs in {', '.join(differing)}"
    elif "start_weights" in record:  # earlier versions made no copies
        problem = f"it has no {RECORD}"
    if problem:
        raise ValueError(
            f"{checkpoint} is not a checkpoint of the run that {path} describes: {problem}. Move this checkpoint out "
            "of the folder."
        )


def _digest_of_corpus(corpus: Corpus) -> str:
    digest = hashlib.sha256()
    for array in (corpus.words, corpus.starts, corpus.ids, corpus.classes):
        digest.update(array.tobytes())
    return f"{len(corpus)} sentences, {corpus.num_words} words, sha256 {digest.hexdigest()}"


def _digest_of_tokenizer(tokenizer: ElmoTokenizer) -> str:
    """A digest of all that a tokenizer saves except the words of the softmax and the splitter."""
    form = (tokenizer.token_encoder, tokenizer.alphabet, tokenizer.max_word_length, tokenizer.add_boundaries)
    ids = sorted((number, name) for name, number in tokenizer.get_vocab().items())
    vector_words = [] if tokenizer.vector_codec is None else tokenizer.vector_codec.lines
    return _digest_of_lines([*map(str, form), *map(str, ids), *vector_words])


def _digest_of_weights(model: ElmoForPreTraining, start: Start) -> str:
    loaded = model.elmo if start.has_new_softmax else model
    weights: dict[str, Any] = loaded.state_dict()
    return f"sha256 {sha256_of_model(' '.join(weights), weights.values())}"


def _digest_of_lines(lines: Iterable[str]) -> str:
    text = "".join(f"{line}\n" for line in lines)
    return f"sha256 {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _name_of(start: Start) -> str:
    """A Hub name or `"tiny"` as it is; of a folder its last name, because a path changes when the folder is moved."""
    folder = Path(start.name)
    return folder.resolve().name if folder.exists() else start.name


def _name_of_device(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"cpu, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    return device.type
