"""A pretraining run from corpus to Hub folder, which goes on where it was killed.

    OUT/run.json             what the run was begun with: settings, architecture, fingerprint of the corpora
    OUT/checkpoint-N/        the Trainer's, with the LSTM state; the best one on held-out text and the newest are kept
    OUT/runs/                TensorBoard's events
    OUT/config.json, ...     the finished model: weights, tokenizer, code
    OUT/log.json, curve.png  its losses and held-out perplexities by step

Glossary: B rows of a process, T steps of a window.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from .configuration_elmo import ElmoConfig
from .corpus import Corpus
from .pretrainer import ElmoPretrainer, PretrainingArguments, last_complete_checkpoint
from .pretraining import ElmoForPreTraining
from .tokenization_elmo import ElmoTokenizer

# Settings that make another run of it; the others say how often to log, or where.
DECISIVE = (
    "seed",
    "data_seed",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "world_size",
    "unroll_steps",
    "scale_loss_by_steps",
    "reset_probability",
    "frozen_steps",
    "learning_rate",
    "lr_scheduler_type",
    "max_grad_norm",
    "optim",
    "adagrad_start",
    "num_train_epochs",
    "max_steps",
    "bf16",
    "fp16",
)


def new_language_model(vocabulary: Path, **fields: Any) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """A model with random weights and its tokenizer.

    Args:
        vocabulary: the file with the words of the softmax; with word input, of the word embedding too.
        **fields: of `ElmoConfig`; the vocabulary's size follows from the file.

    Raises:
        ValueError: naming the field, the legal values and the value found.
    """
    is_characters = fields.get("token_encoder", "char_cnn") == "char_cnn"
    if is_characters:
        tokenizer = ElmoTokenizer(
            max_word_length=fields.get("max_word_length", 50), word_splitter="ptb", words_file=str(vocabulary)
        )
    else:
        tokenizer = ElmoTokenizer(fields["token_encoder"], vocab_file=str(vocabulary))
    fields["num_softmax_words"] = tokenizer.num_word_classes
    if not is_characters:
        fields["vocab_size"] = tokenizer.num_word_classes + 1
    return ElmoForPreTraining(ElmoConfig(**fields)), tokenizer


def pretrain(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    train: Corpus,
    held_out: Corpus | None,
    args: PretrainingArguments,
) -> ElmoPretrainer:
    """Trains, or goes on with the run that `args.output_dir` holds, and writes the finished model there.

    Args:
        model: with random weights, or one to adapt; what it starts from is not looked at again when a run goes on.
        tokenizer: with the vocabulary of the softmax.
        train: the corpus.
        held_out: text to score at each checkpoint, by which the best one is chosen; None: the last one is it.
        args: settings.

    Returns:
        the trainer, whose `state.log_history` has every loss and perplexity.

    Raises:
        ValueError: if the folder holds a finished model, or a run with other settings or corpora.
    """
    output = Path(args.output_dir)
    if tokenizer.num_word_classes != model.config.num_softmax_words:
        raise ValueError(
            f"the vocabulary has {tokenizer.num_word_classes} words and the model's softmax "
            f"{model.config.num_softmax_words}; they must be as many."
        )
    if (output / "config.json").exists():
        raise ValueError(f"{output} holds a finished model; choose another folder.")
    trainer = ElmoPretrainer(model, args, train_dataset=train, eval_dataset=held_out, processing_class=tokenizer)
    checkpoint = last_complete_checkpoint(output)
    if trainer.is_world_process_zero():
        _begin(output, _description(model, train, held_out, args))
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if held_out is not None:
        trainer.evaluate()
    if trainer.is_world_process_zero():
        log = trainer.state.log_history
        (output / "log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
        draw_curve(log, output / "curve.png")
    trainer.save_model()
    if trainer.is_world_process_zero():
        trainer.create_model_card(model_name=output.resolve().name)
    return trainer


def draw_curve(log: list[dict[str, Any]], path: Path) -> None:
    """Draws training losses and held-out perplexities against steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    losses, perplexities = figure.subplots(1, 2)
    losses.set(title="Training loss", xlabel="step", ylabel="nats per prediction")
    perplexities.set(title="Held-out perplexity, full softmax", xlabel="step", yscale="log")
    for axes, names in (
        (losses, ("forward_loss", "backward_loss", "sampled_forward_loss", "sampled_backward_loss")),
        (
            perplexities,
            tuple(
                f"eval_{state}{direction}_perplexity"
                for direction in ("forward", "backward")
                for state in ("", "carried_")
            ),
        ),
    ):
        for name in names:
            points = [(entry["step"], entry[name]) for entry in log if name in entry]
            if points:
                label = name.removeprefix("eval_").replace("_", " ")
                axes.plot(*zip(*points, strict=True), label=label, linestyle="--" if "carried" in name else "-")
        if axes.lines:
            axes.legend()
    figure.savefig(path)


def _description(
    model: ElmoForPreTraining, train: Corpus, held_out: Corpus | None, args: PretrainingArguments
) -> dict[str, Any]:
    settings = {name: getattr(args, name) for name in DECISIVE}
    config = model.config.to_diff_dict()
    corpora = {"train": train, "held_out": held_out}
    return {
        "settings": {name: str(value) for name, value in settings.items()},
        "config": {name: str(config[name]) for name in sorted(config)},
        "corpora": {name: None if corpus is None else _fingerprint(corpus) for name, corpus in corpora.items()},
    }


def _fingerprint(corpus: Corpus) -> dict[str, Any]:
    digest = hashlib.sha256()
    for array in (corpus.rows, corpus.starts, corpus.ids, corpus.classes):
        digest.update(array.tobytes())
    return {"sentences": len(corpus), "words": corpus.num_words, "sha256": digest.hexdigest()}


def _begin(output: Path, description: dict[str, Any]) -> None:
    """Writes what the run is, or compares it with what is there."""
    path = output / "run.json"
    if not path.exists():
        output.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
        return
    begun = json.loads(path.read_text(encoding="utf-8"))
    differences = [
        f"{part}.{name} was {begun[part].get(name)}, now {description[part].get(name)}"
        for part in description
        for name in sorted({*begun[part], *description[part]})
        if begun[part].get(name) != description[part].get(name)
    ]
    if differences:
        raise ValueError(
            f"{output} holds a run that was begun otherwise ({'; '.join(differences)}). "
            "Give the same settings to go on with it, or choose another folder."
        )
