"""A pretraining run from corpus to Hub folder, which can be resumed after it was killed or stopped.

OUT/run.json             how the run was started (`record.py`)
OUT/checkpoint-N/        the Trainer's checkpoint, with the LSTM state, a copy of run.json and checksums
                         (`checkpoints.py`); the newest and the best are kept
OUT/runs/                TensorBoard's events
OUT/config.json, ...     the finished model: weights, tokenizer, code
OUT/log.json, curve.png  its losses and held-out perplexities by step

A run that was stopped and resumed writes the same weights and tokenizer as an undisturbed one, byte for byte on a CPU.
"""

import dataclasses
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from transformers import ProgressCallback, TrainerCallback

from ..disk.checksums import write_sums
from ..disk.whole_files import (
    move_into_place,
    named_if_full,
    new_file,
    only_writer,
    refuse_file_in_place,
    remove_leftovers,
)
from ..folder.listed_files import MODEL_FILES
from ..language_model.corpus import Corpus
from ..language_model.scoring import check_vocabulary
from ..model.language_model_elmo import DIRECTIONS
from ..model.tokenization_elmo import VocabularyCodec
from ..public import ElmoConfig, ElmoForPreTraining, ElmoTokenizer
from ..share.saved_card import CARD
from .checkpoints import RECORD, newest_checkpoint
from .corpora import make_alphabet
from .interruption import StopSignals
from .record import Start, check_folder, describe_run, resumed_record
from .trainer import LOSSES, ElmoPretrainer, PretrainingArguments

LOG = "log.json"
CURVE = "curve.png"
# Keys of a config.json that are not fields of `ElmoConfig`.
CONFIG_KEYS = {"model_type", "auto_map", "custom_pipelines"}


def new_language_model(
    vocabulary: Path, word_splitter: str = "ptb", **fields: Any
) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """A model with random weights and its tokenizer.

    Args:
        vocabulary: the file with the words of the softmax, with word input also of the word embedding.
        word_splitter: how the tokenizer splits raw text, `"whitespace"` or `"ptb"`: as the corpus is split.
        **fields: fields of `ElmoConfig`; the file determines the vocabulary's size, and with `alphabet="code_points"`
            which code points are known.

    Raises:
        ValueError: if a field is illegal; the message has the field, the legal values and the value found.
    """
    known = {field.name for field in dataclasses.fields(ElmoConfig)} | CONFIG_KEYS
    encoder = fields.get("token_encoder", "char_cnn")
    alphabet = fields.get("alphabet", "bytes")
    fixed: dict[str, Any] = {"num_input_words": 0}
    if encoder != "char_cnn":
        fixed["alphabet"] = "bytes"
    wrong = fields.keys() - known
    wrong |= {name for name, value in fixed.items() if fields.get(name, value) != value}
    if wrong:
        names = ", ".join(f"`{name}`" for name in sorted(wrong))
        values = " and ".join(f"`{name}` is {value!r}" for name, value in fixed.items())
        raise ValueError(
            f"a new model cannot have {names}: it has the fields of `ElmoConfig`; with {encoder!r}, {values}."
        )
    options: dict[str, Any] = {}
    if encoder == "char_cnn":
        options["words_file"] = str(vocabulary)
    else:
        options["vocab_file"] = str(vocabulary)
    if alphabet == "code_points":
        codec = VocabularyCodec.of_file(str(vocabulary))
        assert codec is not None
        options["vocab"] = make_alphabet(codec.symbols)
    size = fields.get("max_word_length", 50)
    tokenizer = ElmoTokenizer(encoder, size, word_splitter, alphabet=alphabet, **options)
    # They replace those of a saved config.json, which depend on its own tokenizer.
    decided = {
        "num_softmax_words": tokenizer.num_word_classes,
        "vocab_size": 1 + max(tokenizer.get_vocab().values()),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    return ElmoForPreTraining(ElmoConfig(**fields | decided)), tokenizer


def check_output(output: Path) -> None:
    """Checks the folder of a run before a model is loaded for it; only the names of its files are read.

    Beside a finished model it removes what a killed process left.

    Raises:
        NotADirectoryError: as in `refuse_file_in_place`.
        ValueError: if it holds a finished model, or files of another program.
    """
    if _is_finished(output):
        remove_leftovers(output)
    _check_files(output)


def _check_files(output: Path) -> None:
    """Raises the errors of `check_output`."""
    refuse_file_in_place(output)
    if _is_finished(output):
        raise ValueError(f"{output} holds a finished model; choose another folder.")
    check_folder(output, {LOG, CURVE, CARD})


def _is_finished(output: Path) -> bool:
    """Whether the folder of a run holds the model that the run makes in the end."""
    return (output / "config.json").exists()


def pretrain(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    train: Corpus,
    held_out: Corpus | None,
    args: PretrainingArguments,
    started_from: Start | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> ElmoPretrainer:
    """Trains, or resumes the run in `args.output_dir`, and writes the finished model there.

    On Ctrl-C or SIGTERM the run finishes its step and writes a checkpoint; a second Ctrl-C stops it at once.

    Args:
        model: a model with random weights, or one to adapt; a resumed run replaces its weights.
        tokenizer: a tokenizer with the vocabulary of the softmax.
        train: the corpus.
        held_out: text that is scored at each checkpoint to choose the best checkpoint; None keeps the last one.
        args: settings.
        started_from: the model whose weights `model` has; None if they are random. The card names it, and a run can
            only be resumed from the same weights.
        callbacks: further callbacks of the Trainer.

    Returns:
        the trainer, whose `state.log_history` has every loss and perplexity.

    Raises:
        BlockingIOError: if another run works in the folder.
        NotADirectoryError: as in `check_output`.
        OSError: if there is no room on the disk.
        ValueError: if the folder holds a finished model, files of another program, a run that was started in another
            way, a checkpoint of another run, or a damaged checkpoint.
        KeyboardInterrupt: after a signal, with a sentence for the user (empty in all processes except the first) and
            the exit code, 128 plus the number of the signal.
    """
    output = Path(args.output_dir)
    check_vocabulary(model, tokenizer)
    refuse_file_in_place(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    is_first = args.process_index == 0
    # The first process alone writes the finished model, into a folder beside the run until it is complete.
    folder = only_writer(output) if is_first else nullcontext(output)
    with folder as partial, named_if_full(output):
        _check_files(output)
        description = describe_run(model, tokenizer, train, held_out, args, started_from)
        checkpoint = newest_checkpoint(output)
        record = description if checkpoint is None else resumed_record(output, description)
        trainer = ElmoPretrainer(
            model,
            args,
            record=record,
            callbacks=[*callbacks],
            train_dataset=train,
            eval_dataset=held_out,
            processing_class=tokenizer,
        )
        trainer.get_train_dataloader()  # refuses a corpus that is too small before anything is written
        if checkpoint is None and is_first:
            _write_json(output / RECORD, record)
        _train(trainer, checkpoint, output)
        if held_out is not None and not trainer.scores_of_weights:
            trainer.evaluate()
        if trainer.is_world_process_zero():
            _write_log(trainer, output)
            # A record of an earlier version does not name the model.
            start = record.get("started_from", description.get("started_from"))
            trainer.create_model_card(model_name=output.resolve().name, finetuned_from=start)
            trainer.model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            write_sums(partial, MODEL_FILES)
            # The file that marks the model as finished comes last.
            for path in sorted(partial.glob("[!.]*"), key=lambda path: path.name == "config.json"):
                move_into_place(path, output / path.name)
        return trainer


def _train(trainer: ElmoPretrainer, checkpoint: Path | None, output: Path) -> None:
    """Trains until the end; raises KeyboardInterrupt if a signal came before the end."""
    is_first = trainer.is_world_process_zero()
    with StopSignals(is_first) as signals:
        trainer.add_callback(signals)
        try:
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        finally:
            progress = trainer.pop_callback(ProgressCallback)
            if progress is not None and progress.training_bar is not None:
                progress.training_bar.close()  # the Trainer leaves its line open when training fails
    state = trainer.state
    if signals.number and state.global_step < state.max_steps:
        sentence = ""
        if is_first:
            _write_log(trainer, output)
            place = f"step {state.global_step} of {state.max_steps}"
            sentence = f"Stopped after {place}, with a checkpoint in {output}. The same command goes on from there."
        raise KeyboardInterrupt(sentence, 128 + signals.number)


def _write_log(trainer: ElmoPretrainer, output: Path) -> None:
    """Writes the losses and perplexities."""
    _write_json(output / LOG, trainer.state.log_history)
    draw_curve(trainer.state.log_history, output / CURVE)


def draw_curve(log: list[dict[str, Any]], path: Path) -> None:
    """Draws training losses and held-out perplexities against steps."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    figure = Figure(figsize=(9, 4), layout="constrained")
    losses, perplexities = figure.subplots(1, 2)
    losses.set(title="Training loss", xlabel="step", ylabel="nats per prediction")
    perplexities.set(title="Held-out perplexity, full softmax", xlabel="step", yscale="log")
    perplexities.yaxis.set(major_formatter=LogFormatter(), minor_formatter=LogFormatter())  # 90, not 9 x 10^1
    scores = []
    for direction in DIRECTIONS:
        scores += [f"eval_{direction}_perplexity", f"eval_carried_{direction}_perplexity"]
    for axes, names in ((losses, LOSSES), (perplexities, scores)):
        for name in names:
            entries = [entry for entry in log if name in entry]
            if entries:
                steps = [entry["step"] for entry in entries]
                values = [entry[name] for entry in entries]
                label = name.removeprefix("eval_").replace("_", " ")
                axes.plot(steps, values, label=label, linestyle="--" if "carried" in name else "-")
        if axes.lines:
            axes.legend()
    figure.savefig(path)


def _write_json(path: Path, value: Any) -> None:
    with new_file(path) as partial:
        partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
