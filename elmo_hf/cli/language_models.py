"""The commands of language models: `elmo-hf vocab`, `elmo-hf pretrain` and `elmo-hf score`."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tqdm import tqdm
from typer import Argument, Option

from ..disk.whole_files import check_new_file, new_file
from ..folder.model_names import refuse_unknown
from ..text.first_look import Counted, beginning_of
from ..text.formats import Format
from ..text.installed import require_packages
from ..text.sentences import Sentence, read_sentences
from .arguments import Column, Encoding, InputFormat, ScoringModel, Splitter, check_new_table, load_on_gpu
from .errors import check_usage, counted, counted_sentences, refuse_alone, say
from .split_notes import (
    MOST_UNKNOWN,
    note_attached_marks,
    note_cut,
    note_lines,
    note_split_text,
    note_texts_of_rows,
    note_unknown,
    note_vocabulary,
    predicts_marks,
)

if TYPE_CHECKING:
    from ..language_model.corpus import Corpus
    from ..language_model.scoring import Scores
    from ..language_model.surprisal_table import PlacedSentence
    from ..language_model.word_rows import WordRows, WordTable
    from ..public import ElmoForPreTraining, ElmoTokenizer
    from ..training.trainer import PretrainingArguments

Corpora = Annotated[
    list[str],
    Argument(
        metavar="CORPUS...",
        help="Text, JSON lines, tables, Parquet, words in columns or FASTA, .gz too: files, patterns, Hub datasets.",
    ),
]
# For each optimiser, its name in the Trainer and its default learning rate.
OPTIMIZERS = {"adagrad": ("adagrad", 0.2), "adamw": ("adamw_torch_fused", 0.002)}


def vocab(
    corpora: Corpora,
    output: Annotated[Path, Option("--output", "-o", metavar="OUT", help="The vocabulary file to write.")],
    size: Annotated[int | None, Option(help="Most words, <S> </S> <UNK> included; default: all.", min=4)] = None,
    min_count: Annotated[int, Option(help="Least occurrences of a word.", min=1)] = 1,
    words: Annotated[Splitter, Option(help="How sentences are split into words.")] = "whitespace",
    encoding: Encoding = "utf-8",
    input_format: InputFormat = None,
    column: Column = None,
) -> None:
    """Make the vocabulary of a language model.

    The file has <S> </S> <UNK>, then the most frequent words of CORPUS, one a line: the words of the softmax.
    """
    check_new_file(output)
    from elmo_hf.language_model.surprisal_table import place_sentences
    from elmo_hf.model.tokenization_elmo import SPECIAL_WORDS
    from elmo_hf.training.corpora import make_vocabulary, read_sources

    texts, read = beginning_of(read_sources(corpora, encoding, column, input_format))
    sentences = place_sentences(read, words)
    counts = Counter[str]()
    for sentence in tqdm(sentences, unit=" sentences"):
        counts.update(sentence.words)
    if not counts:
        raise ValueError(f"there are no words in {', '.join(corpora)}.")
    vocabulary = make_vocabulary(counts, size, min_count)
    with new_file(output, replaces=False) as file:
        file.write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
    total = sum(counts.values())
    covered = sum(counts[word] for word in vocabulary[len(SPECIAL_WORDS) :])
    note_lines("the corpus", texts)
    note_split_text("the corpus", texts, words, "--words whitespace")
    note_attached_marks("the corpus", texts, words, "--words ptb splits marks off.")
    say(
        f"Wrote {len(vocabulary):,} words to {output}: {covered / total:.2%} of the corpus's {total:,} words "
        f"({len(counts):,} distinct) are among them."
    )


def pretrain(
    corpora: Corpora,
    output: Annotated[
        Path, Option("--output", "-o", metavar="OUT", help="The folder of the run and of the finished model.")
    ],
    vocabulary: Annotated[Path | None, Option(help="Words of the softmax, as `elmo-hf vocab` writes.")] = None,
    held_out: Annotated[list[str] | None, Option(help="Text that chooses the best checkpoint.")] = None,
    config: Annotated[
        Path | None,
        Option(help="JSON with fields of ElmoConfig, or options of bilm-tf; default: the original model."),
    ] = None,
    model: Annotated[str | None, Option(help="Start from this model: a folder, a Hub name, or a short name.")] = None,
    words: Annotated[
        Splitter | None,
        Option(help="How sentences are split into words; default: whitespace, or as in MODEL's training text."),
    ] = None,
    encoding: Encoding = "utf-8",
    input_format: InputFormat = None,
    column: Column = None,
    alphabet: Annotated[
        Literal["bytes", "code_points"] | None,
        Option(
            help="What a new model reads; code_points: one id a letter, of those in the vocabulary, which pays if a "
            "letter has several bytes, as in Hindi. Default: the config's, or bytes."
        ),
    ] = None,
    softmax: Annotated[Literal["full", "sampled"] | None, Option(help="Replaces the config's softmax.")] = None,
    samples: Annotated[
        int | None, Option(help="Words drawn for a sampled softmax; chooses this softmax too.", min=1)
    ] = None,
    epochs: Annotated[float, Option(help="Passes over the corpus.")] = 10,
    max_steps: Annotated[int | None, Option(help="Steps, in place of --epochs.", min=1)] = None,
    rows: Annotated[int, Option(help="Rows of a batch (bilm-tf's batch_size), for each process.", min=1)] = 128,
    unroll_steps: Annotated[int, Option(help="Words of a row in one step.", min=1)] = 20,
    optimizer: Annotated[
        Literal["adagrad", "adamw"], Option(help="adagrad is bilm-tf's; adamw learns more in a short run.")
    ] = "adagrad",
    learning_rate: Annotated[float | None, Option(help="Default: 0.2 with adagrad, 0.002 with adamw.", min=0)] = None,
    schedule: Annotated[
        Literal["constant", "linear"], Option(help="Of the learning rate; linear: falls to 0 at the last step.")
    ] = "constant",
    warmup_steps: Annotated[
        int, Option(help="First steps, in which the learning rate rises from 0; adamw needs some.", min=0)
    ] = 0,
    accumulate: Annotated[int, Option(help="Steps whose gradients are added up.", min=1)] = 1,
    reset_probability: Annotated[
        float, Option(help="Chance of a sentence to begin from the zero state.", min=0, max=1)
    ] = 0.1,
    frozen_steps: Annotated[int, Option(help="First steps in which only the softmax learns.", min=0)] = 0,
    bf16: Annotated[bool, Option("--bf16", help="Compute in bfloat16 where that is safe.")] = False,
    seed: Annotated[int, Option(help="Seed of weights, order of sentences, dropout and sampling.")] = 0,
    checkpoint_steps: Annotated[int, Option(help="Steps from checkpoint to checkpoint.", min=1)] = 1000,
    logging_steps: Annotated[int, Option(help="Steps from log to log.", min=1)] = 100,
) -> None:
    """Pretrain an ELMo on CORPUS, or adapt one, as bilm-tf does.

    Ctrl-C stops the run with a checkpoint, a second Ctrl-C at once. Give the same command again to continue a run that
    was stopped or killed; on a CPU the result is the same, bit for bit. Under `accelerate launch` or `torchrun` each
    process trains rows of its own.
    """
    is_complete = vocabulary is not None if model is None else config is None
    check_usage(is_complete, "give --vocabulary (and --config) for a new model, or --model to adapt one.")
    check_usage(model is None or alphabet is None, "--alphabet is for a new model; MODEL keeps its own.")
    check_usage(epochs > 0, "--epochs must be above 0.")
    check_usage(samples is None or softmax != "full", "--samples is for a sampled softmax.")
    _refuse_missing(vocabulary, model)
    require_packages("train", "accelerate", "matplotlib", "tensorboard")
    import torch
    from transformers import set_seed

    from elmo_hf.folder.loading import scoring_splitter
    from elmo_hf.folder.saved_json import read_json
    from elmo_hf.training import run
    from elmo_hf.training.record import Start
    from elmo_hf.training.trainer import PretrainingArguments

    run.check_output(output)
    settings = {} if config is None else read_json(config)
    fields = _config_fields(config, settings, softmax, samples, alphabet)
    optim, default_rate = OPTIMIZERS[optimizer]
    args = PretrainingArguments(
        str(output),
        # By default the Trainer allows bfloat16 on GPUs only.
        use_cpu=not (torch.cuda.is_available() or torch.backends.mps.is_available()),
        num_train_epochs=epochs,
        max_steps=max_steps or -1,
        optim=optim,
        learning_rate=default_rate if learning_rate is None else learning_rate,
        lr_scheduler_type=_scheduler_type(schedule, warmup_steps),
        warmup_steps=warmup_steps,
        per_device_train_batch_size=rows,
        unroll_steps=unroll_steps,
        gradient_accumulation_steps=accumulate,
        reset_probability=reset_probability,
        frozen_steps=frozen_steps,
        bf16=bf16,
        seed=seed,
        logging_steps=logging_steps,
        save_steps=checkpoint_steps,
        save_total_limit=2,
        eval_strategy="steps" if held_out else "no",
        eval_steps=checkpoint_steps,
        load_best_model_at_end=bool(held_out),
        metric_for_best_model="eval_perplexity" if held_out else None,
        greater_is_better=False,
        report_to="tensorboard",
    )
    if config is not None and args.process_index == 0:
        _note_settings(config, settings, args)
    reading = _Reading(encoding, input_format, column)
    held_out_text = _Text.begun("held-out text", held_out, reading) if held_out else None
    training_text = _Text.begun("training text", corpora, reading)
    set_seed(args.seed)
    lm, tokenizer = _model_to_train(model, vocabulary, words, config, fields, training_text)
    splitter = scoring_splitter(lm.config, tokenizer)
    has_bar = args.process_index == 0
    if has_bar:
        _note_words_of_softmax(training_text, splitter, tokenizer, is_new=vocabulary is not None)
    # The shorter text comes first, because its errors are found sooner.
    scored = _read_corpus(held_out_text, tokenizer, splitter, has_bar) if held_out_text is not None else None
    train = _read_corpus(training_text, tokenizer, splitter, has_bar)
    start = None if model is None else Start(model, has_new_softmax=vocabulary is not None)
    trainer = run.pretrain(lm, tokenizer, train, scored, args, started_from=start)
    if trainer.is_world_process_zero():
        _say_perplexities(trainer.scores_of_weights)
        say(f"Wrote {output}.")


@dataclass(frozen=True)
class _Reading:
    """How the texts of `pretrain`, and the input of `score`, are read."""

    encoding: str
    input_format: Format | None
    column: str | None


@dataclass(frozen=True)
class _Text:
    """A text of `pretrain`, of which the first sentences have been read."""

    name: str  # such as `training text`
    sources: list[str]
    reading: _Reading
    beginning: list[str]  # the beginnings of its first sentences
    sentences: Iterator[Sentence]  # all of them, to be read once

    @classmethod
    def begun(cls, name: str, sources: list[str], reading: _Reading) -> "_Text":
        """Reads the first sentences, so that what is wrong there is found before a model is loaded."""
        from elmo_hf.training.corpora import read_sources

        read = read_sources(sources, reading.encoding, reading.column, reading.input_format)
        beginning, sentences = beginning_of(read)
        return cls(name, sources, reading, beginning, sentences)

    def vocab_command(self, splitter: str) -> str:
        """The command that writes the words of this text, which it reads and splits in the same way, to WORDS."""
        arguments = ["elmo-hf", "vocab", *self.sources, "-o", "WORDS", "--words", splitter]
        if self.reading.encoding != "utf-8":
            arguments += ["--encoding", self.reading.encoding]
        if self.reading.input_format is not None:
            arguments += ["--input-format", self.reading.input_format]
        if self.reading.column is not None:
            arguments += ["--column", self.reading.column]
        return shlex.join(arguments)


def _model_to_train(
    model: str | None,
    vocabulary: Path | None,
    words: Splitter | None,
    config: Path | None,
    fields: dict[str, Any],
    text: _Text,
) -> tuple["ElmoForPreTraining", "ElmoTokenizer"]:
    """The model of --model, or a new one, and its tokenizer."""
    if model is not None:
        return _model_to_adapt(model, vocabulary, words, fields, text)
    assert vocabulary is not None
    return _new_language_model(vocabulary, words, config, fields)


def _model_to_adapt(
    model: str, vocabulary: Path | None, words: Splitter | None, fields: dict[str, Any], text: _Text
) -> tuple["ElmoForPreTraining", "ElmoTokenizer"]:
    """The model of --model and its tokenizer; if it has no softmax, the error has the command for the words of one."""
    from elmo_hf.folder.loading import NoSoftmaxError, load_for_pretraining, splitter_of_training

    try:
        return load_for_pretraining(model, vocabulary, words, **fields)
    except NoSoftmaxError as error:
        command = text.vocab_command(words or splitter_of_training(model))
        raise ValueError(f"{error} `{command}` makes this file.") from error


def _note_words_of_softmax(text: _Text, splitter: str, tokenizer: "ElmoTokenizer", is_new: bool) -> None:
    """Prints a note if the words of the softmax, with or without the training text, look like raw text at blanks.

    Args:
        text: the training text.
        splitter: its word splitter.
        tokenizer: the one that knows the words of the softmax.
        is_new: whether the softmax is new. One that was trained on such words before may go on with them.
    """
    command = text.vocab_command("ptb")
    note_vocabulary(splitter, tokenizer, command)
    if is_new and predicts_marks(tokenizer):
        advice = f"--words ptb splits marks off, and `{command}` writes the vocabulary for it."
        note_attached_marks(f"the {text.name}", text.beginning, splitter, advice)


def _config_fields(
    config: Path | None, settings: dict[str, Any], softmax: str | None, samples: int | None, alphabet: str | None
) -> dict[str, Any]:
    """Fields of the config: those of a file with these settings, ours or bilm-tf's, and those that options replace."""
    from elmo_hf.folder.saved_config import refuse_large

    fields = dict(settings)
    if config is not None and _is_of_bilm_tf(fields):
        from elmo_hf.conversion.readers.hdf5_layout import fields_for_training

        fields = fields_for_training(fields, config)
    if softmax is not None:
        fields["softmax"] = softmax
    if samples is not None:
        fields |= {"softmax": "sampled", "num_softmax_samples": samples}
    if alphabet is not None:
        fields["alphabet"] = alphabet
    with _naming_config(config):
        refuse_large(fields)
    return fields


def _new_language_model(
    vocabulary: Path, words: Splitter | None, config: Path | None, fields: dict[str, Any]
) -> tuple["ElmoForPreTraining", "ElmoTokenizer"]:
    """A model with random weights and fields of its config, and its tokenizer; errors name the file that is wrong."""
    from elmo_hf.model.tokenization_elmo import VocabularyCodec
    from elmo_hf.training.run import new_language_model

    VocabularyCodec.of_file(str(vocabulary))  # its errors name the vocabulary, and must not name the config
    with _naming_config(config):
        return new_language_model(vocabulary, words or "whitespace", **fields)


def _naming_config(config: Path | None) -> AbstractContextManager[None]:
    """Names the file with a new model's settings in errors about them, if there is one."""
    from elmo_hf.folder.saved_json import naming

    return nullcontext() if config is None else naming(f"no model can be made with {config}")


def _is_of_bilm_tf(options: dict[str, Any]) -> bool:
    """Whether a JSON file has options of bilm-tf, whose LSTMs are an object, and not fields of `ElmoConfig`."""
    return "lstm" in options


def _note_settings(config: Path, options: dict[str, Any], args: "PretrainingArguments") -> None:
    """Prints a note on the settings of a training in bilm-tf's options that differ from those of this run."""
    if not _is_of_bilm_tf(options):
        return
    settings = {
        "batch_size": ("--rows", args.per_device_train_batch_size),
        "unroll_steps": ("--unroll-steps", args.unroll_steps),
        "learning_rate": ("--learning-rate", args.learning_rate),
    }
    if args.max_steps < 0:
        settings["n_epochs"] = ("--epochs", args.num_train_epochs)
    others = []
    for name, (option, value) in settings.items():
        if options.get(name, value) != value:
            others.append(f"{name} is {options[name]}, {option} {value}")
    if others:
        say(
            f"Note: the model and its softmax are those of {config}, but these training settings differ: "
            f"{'; '.join(others)}.",
            is_error=True,
        )


def _scheduler_type(schedule: str, warmup_steps: int) -> str:
    """The Trainer's name of a schedule."""
    if schedule == "constant" and warmup_steps > 0:
        return "constant_with_warmup"
    return schedule


def score(
    model: ScoringModel,
    source: Annotated[
        Path, Argument(metavar="INPUT", help="Text, JSON lines, a table, Parquet, words in columns or FASTA; or .gz.")
    ],
    words: Annotated[
        Splitter | None, Option(help="How sentences are split into words; default: as MODEL's training text.")
    ] = None,
    encoding: Encoding = "utf-8",
    input_format: InputFormat = None,
    column: Column = None,
    by: Annotated[
        list[str] | None,
        Option(
            metavar="COLUMN",
            help="INPUT is a table with one word a row, in --column: rows that agree in this column, such as item, are "
            "one text; may be repeated, such as --by item --by sentence.",
        ),
    ] = None,
    rows: Annotated[int, Option(help="Rows read side by side when the state is carried.", min=1)] = 32,
    per_word: Annotated[
        Path | None, Option(help="Write each word's surprisal to this new file: .parquet, .csv or, with tabs, .tsv.")
    ] = None,
    carry_state: Annotated[
        bool, Option("--carry-state", help="With --per-word: carry the state; default: from zero.")
    ] = False,
    documents: Annotated[
        bool, Option("--documents", help="Carry the state through each document; blank lines separate them.")
    ] = False,
    unit: Annotated[
        Literal["bits", "nats"] | None, Option(help="With --per-word: unit of the surprisals; default: bits.")
    ] = None,
    skip_unknown: Annotated[
        bool, Option("--skip-unknown", help="With --per-word: leave surprisals of unknown words empty.")
    ] = False,
    regions: Annotated[
        bool, Option("--regions", help="With --per-word: one row for each text between blanks, such as `river.`")
    ] = False,
) -> None:
    """Measure the perplexity of INPUT and the surprisal of its words.

    INPUT has one sentence a line, or with --by one word a row; --per-word then writes the rows of INPUT with their
    surprisals. Perplexities are forward, backward and their geometric mean, by the exact softmax.
    From the zero state, each sentence is read by itself, as ELMo is used. Carried, the state passes from sentence to
    sentence, as in bilm-tf's test, or with --documents within each document. MODEL needs its softmax; `elmo-hf info`
    shows whether it has one.
    """
    for_tables = {"carry_state": carry_state, "unit": unit, "skip_unknown": skip_unknown, "regions": regions}
    refuse_alone("--per-word OUT", per_word is not None, **for_tables)
    refuse_alone("--column NAME", column is not None, by=by)
    check_usage(not (by and regions), "--by writes the rows of INPUT, so leave out --regions.")
    if per_word is not None:
        check_new_table("--per-word", per_word)
    refuse_unknown(model)
    from elmo_hf.disk.tables import save_table
    from elmo_hf.folder.loading import scoring_splitter
    from elmo_hf.language_model.scoring import score_carried, score_from_zero
    from elmo_hf.language_model.surprisal_table import surprisal_table
    from elmo_hf.language_model.word_rows import word_rows_table

    # Before the model is loaded, so that what is wrong with INPUT, or with its beginning, is found at once.
    split_input = _open_input(source, _Reading(encoding, input_format, column), by or [])
    language_model, tokenizer = load_on_gpu(model)
    splitter = scoring_splitter(language_model.config, tokenizer) if words is None else words
    text = split_input(splitter)
    note_vocabulary(splitter, tokenizer, "elmo-hf vocab CORPUS -o WORDS --words ptb")
    corpus, summary = _corpus(str(source), text.sentences, tokenizer, text.beginning, splitter, text.look)
    _refuse_empty(corpus, str(source))
    with tqdm(total=2 * corpus.num_predictions, unit=" words") as bar:
        zero = score_from_zero(language_model, corpus, bar.update)
        carried = score_carried(language_model, corpus, rows, bar.update, text.documents if documents else None)
        bar.total = bar.n  # carried scoring leaves out sentences that are unfinished when the first row ends
    if per_word is not None:
        scores = carried if carry_state or documents else zero
        if text.rows is None:
            table = surprisal_table(text.sentences, scores, tokenizer, unit or "bits", skip_unknown, regions)
        else:
            table = word_rows_table(text.rows, scores, tokenizer, unit or "bits", skip_unknown)
        save_table(per_word, table)
    say(f"{text.count}, {summary}")
    for state, state_scores in (("from zero state", zero), ("state carried", carried)):
        _say_scores(state, state_scores, language_model.config.bidirectional, corpus.num_predictions)
    _explain_perplexities(corpus, tokenizer, rows, documents)
    if per_word is not None:
        say(f"Wrote {per_word}.")


def _say_scores(state: str, scores: "Scores", is_bidirectional: bool, num_predictions: int) -> None:
    """Prints the perplexities of scores, and how many of the predictions were scored."""
    backward = scores.backward_perplexity if is_bidirectional else None
    line = _perplexities(state, scores.forward_perplexity, backward, scores.perplexity)
    say(f"{line}   {scores.num_scored:,} of {num_predictions:,} predictions")


def _meaning_of_carried(num_rows: int, by_document: bool) -> str:
    """A sentence that says how the text was read for the perplexity of the carried state."""
    meaning = "State carried: each sentence is read after those before it"
    if by_document:
        return f"{meaning} in its document."
    if num_rows == 1:
        return f"{meaning}."
    return f"{meaning}, in {num_rows} rows side by side, until the first row ends."


@dataclass(frozen=True)
class _Input:
    """What `score` reads: sentences, the first raw texts, how many sentences there are; and rows, with --by."""

    sentences: list["PlacedSentence"]
    beginning: list[str]
    count: str
    rows: "WordRows | None" = None

    @property
    def documents(self) -> list[int]:
        """The number of each sentence's document."""
        return [sentence.document for sentence in self.sentences]

    def look(self, name: str, texts: list[str]) -> None:
        """Prints the notes on how the first raw texts, of the input of this name, are read."""
        if self.rows is None:
            note_lines(name, texts, join="In a table, --by COLUMN joins the rows of a text.")
        else:
            note_texts_of_rows(name, texts)


def _open_input(source: Path, reading: _Reading, keys: list[str]) -> Callable[[str], _Input]:
    """Reads the first sentences of INPUT; or all its rows, if they are told apart by the columns `keys`.

    Returns:
        a function of a word splitter that reads the rest, and splits all texts into words.
    """
    from elmo_hf.language_model.word_rows import read_word_table

    if keys:
        assert reading.column is not None, "--by needs --column."
        table = read_word_table(source, reading.column, keys, reading.encoding, reading.input_format)
        return partial(_split_rows, table)
    beginning, sentences = beginning_of(read_sentences(source, reading.encoding, reading.column, reading.input_format))
    return partial(_split_sentences, beginning, sentences)


def _split_sentences(beginning: list[str], sentences: Iterator[Sentence], splitter: str) -> _Input:
    """The rest of an input with a sentence a line, of which the beginning was read."""
    from elmo_hf.language_model.surprisal_table import place_sentences

    all_sentences = Counted(sentences)
    placed = list(place_sentences(all_sentences, splitter))
    return _Input(placed, beginning, counted_sentences(all_sentences.count))


def _split_rows(table: "WordTable", splitter: str) -> _Input:
    """An input that is a table with a word a row."""
    rows = table.split(splitter)
    return _Input(rows.sentences, rows.texts, counted(len(rows.sentences), "sentence"), rows)


def _refuse_missing(vocabulary: Path | None, model: str | None) -> None:
    """Raises ValueError if a vocabulary or a model is named that does not exist."""
    if model is not None:
        refuse_unknown(model)
    if vocabulary is not None and not vocabulary.exists():
        raise ValueError(f"there is no file {vocabulary}; `elmo-hf vocab CORPUS -o {vocabulary}` writes one.")


def _read_corpus(text: _Text, tokenizer: "ElmoTokenizer", splitter: str, has_bar: bool) -> "Corpus":
    """A text of `pretrain` as a corpus; the process that has the progress bar also prints notes and counts."""
    from elmo_hf.language_model.surprisal_table import place_sentences

    all_sentences = Counted(text.sentences)
    placed = place_sentences(all_sentences, splitter)
    bar = tqdm(placed, desc=text.name, unit=" sentences", disable=not has_bar)
    noted = text.beginning if has_bar else []
    corpus, summary = _corpus(f"the {text.name}", bar, tokenizer, noted, splitter)
    _refuse_empty(corpus, f"the {text.name}, {', '.join(text.sources)},")
    if has_bar:
        say(f"{text.name}: {counted_sentences(all_sentences.count)}, {summary}")
    return corpus


def _corpus(
    name: str,
    sentences: Iterable["PlacedSentence"],
    tokenizer: "ElmoTokenizer",
    texts: list[str],
    splitter: str,
    look: Callable[[str, list[str]], None] = note_lines,
) -> tuple["Corpus", str]:
    """The sentences as a corpus, and its words in a sentence; prints a note if the first texts seem wrongly split."""
    from elmo_hf.language_model.corpus import Corpus

    words: Iterable[Sequence[str]] = (sentence.words for sentence in sentences)
    if texts:
        words = note_cut(words, tokenizer)
    corpus = Corpus.from_sentences(words, tokenizer)
    look(name, texts)
    note_unknown(name, texts, splitter, tokenizer)
    return corpus, f"{counted(corpus.num_words, 'word')}, {_share_unknown(corpus, tokenizer):.2%} unknown."


def _share_unknown(corpus: "Corpus", tokenizer: "ElmoTokenizer") -> float:
    """The share of a text's words that the softmax does not know."""
    from elmo_hf.model.tokenization_elmo import UNKNOWN_WORD

    (unknown_class,) = tokenizer.word_classes([UNKNOWN_WORD])
    return corpus.share_of_class(int(unknown_class))


def _explain_perplexities(corpus: "Corpus", tokenizer: "ElmoTokenizer", rows: int, by_document: bool) -> None:
    """Prints how a text was read for the carried state, and that perplexities count unknown words if many are."""
    say(_meaning_of_carried(min(rows, len(corpus)), by_document))
    share = _share_unknown(corpus, tokenizer)
    if share > MOST_UNKNOWN:
        num_unknown = round(share * corpus.num_words)
        say(
            f"{num_unknown:,} of {counted(corpus.num_words, 'word')} are not in the softmax's vocabulary. Each counts "
            "as <UNK>, whichever word it is, so the perplexities cannot be compared with those of a text whose words "
            "are known."
        )


def _refuse_empty(corpus: "Corpus", name: str) -> None:
    """Raises ValueError if a text has no sentences; `name` has the files of the text."""
    if len(corpus) == 0:
        raise ValueError(f"{name} has no sentences; give a file that has sentences.")


def _say_perplexities(scores: dict[str, float]) -> None:
    """Prints the perplexities in an entry of the Trainer's log, if it has any."""
    if not scores:
        return
    for state, prefix in (("from zero state", "eval_"), ("state carried", "eval_carried_")):
        names = ("forward_perplexity", "backward_perplexity", "perplexity")
        forward, backward, mean = (scores.get(prefix + name) for name in names)
        say(_perplexities(state, forward, backward, mean))


def _perplexities(state: str, forward: float | None, backward: float | None, mean: float | None) -> str:
    """A line with the forward and the backward perplexity and their mean, or the forward one alone."""
    line = f"perplexity {state:>16}"
    for name, value in (("forward", forward), ("backward", backward), ("mean", mean)):
        if value is not None:
            line += f"   {name} {value:10.2f}"
    return line
