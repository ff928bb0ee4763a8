"""The commands of language models: `elmo-hf vocab`, `elmo-hf pretrain` and `elmo-hf score`."""

import json
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

Corpora = Annotated[
    list[str],
    typer.Argument(metavar="CORPUS...", help="Text or JSON lines, .gz too: files, patterns, or Hub datasets."),
]


class SplitWords(str, Enum):
    """How the sentences of a corpus are split into words."""

    whitespace = "whitespace"
    ptb = "ptb"


class SoftmaxKind(str, Enum):
    """How training computes the loss over all words."""

    full = "full"
    sampled = "sampled"
    adaptive = "adaptive"


def vocab(
    corpora: Corpora,
    output: Annotated[Path, typer.Option("--output", "-o", help="The vocabulary file to write.")],
    size: Annotated[int | None, typer.Option(help="Most words, <S> </S> <UNK> included; default: all.", min=4)] = None,
    min_count: Annotated[int, typer.Option(help="Least occurrences of a word.", min=1)] = 1,
    words: Annotated[SplitWords, typer.Option(help="How sentences are split into words.")] = SplitWords.whitespace,
) -> None:
    """Count the words of CORPUS and write the most frequent ones, one a line, <S> </S> <UNK> first.

    The file is the vocabulary of the softmax, in bilm-tf's form.
    """
    need("datasets")
    from tqdm import tqdm

    from elmo_hf.training.corpora import SPECIAL_WORDS, count_words, make_vocabulary, read_corpora

    try:
        counts = count_words(tqdm(read_corpora(corpora, word_splitter=words.value), unit=" sentences"))
        vocabulary = make_vocabulary(counts, size, min_count)
        partial = output.with_name(f".{output.name}.partial")
        partial.write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
        partial.replace(output)
    except (ValueError, OSError) as error:
        fail(error)
    total = sum(counts.values())
    covered = sum(counts[word] for word in vocabulary[len(SPECIAL_WORDS) :])
    typer.echo(
        f"Wrote {len(vocabulary):,} words to {output}: {covered / total:.2%} of the corpus's {total:,} words "
        f"({len(counts):,} distinct) are among them."
    )


def pretrain(
    corpora: Corpora,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the run and of the finished model.")],
    vocabulary: Annotated[Path | None, typer.Option(help="Words of the softmax, as `elmo-hf vocab` writes.")] = None,
    held_out: Annotated[
        list[str] | None, typer.Option(help="Text to score at each checkpoint, to choose the best one by.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="JSON with fields of ElmoConfig; default: the original 93.6M-parameter model.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Start from this model: a folder, or a Hub name.")] = None,
    words: Annotated[SplitWords, typer.Option(help="How sentences are split into words.")] = SplitWords.whitespace,
    softmax: Annotated[SoftmaxKind | None, typer.Option(help="In place of what the config says.")] = None,
    samples: Annotated[int | None, typer.Option(help="Words drawn for a sampled softmax.", min=1)] = None,
    epochs: Annotated[float, typer.Option(help="Passes over the corpus.")] = 10,
    max_steps: Annotated[int, typer.Option(help="Steps, in place of --epochs.")] = -1,
    rows: Annotated[int, typer.Option(help="Rows of a batch (bilm-tf's batch_size), for each process.", min=1)] = 128,
    unroll_steps: Annotated[int, typer.Option(help="Words of a row in one step.", min=1)] = 20,
    learning_rate: Annotated[float, typer.Option(help="Of Adagrad.")] = 0.2,
    accumulate: Annotated[int, typer.Option(help="Steps whose gradients are added up.", min=1)] = 1,
    reset_probability: Annotated[
        float, typer.Option(help="Chance of a sentence to begin from the zero state.", min=0, max=1)
    ] = 0.1,
    frozen_steps: Annotated[int, typer.Option(help="First steps in which only the softmax learns.", min=0)] = 0,
    bf16: Annotated[bool, typer.Option("--bf16", help="Compute in bfloat16 where that is safe.")] = False,
    seed: Annotated[int, typer.Option(help="Of weights, order of sentences, dropout and sampling.")] = 0,
    checkpoint_steps: Annotated[int, typer.Option(help="Steps from checkpoint to checkpoint.", min=1)] = 1000,
    logging_steps: Annotated[int, typer.Option(help="Steps from log to log.", min=1)] = 100,
) -> None:
    """Pretrain an ELMo on CORPUS, or adapt one, as bilm-tf does.

    The same command given again goes on with a run that was killed, bit for bit on a CPU. Under `accelerate launch` or
    `torchrun` each process trains rows of its own.
    """
    need("accelerate", "datasets", "matplotlib", "tensorboard")
    import torch
    from tqdm import tqdm
    from transformers import set_seed

    from elmo_hf.language_model.corpus import Corpus
    from elmo_hf.loading import load_for_pretraining
    from elmo_hf.training.corpora import read_corpora
    from elmo_hf.training.run import new_language_model
    from elmo_hf.training.run import pretrain as run
    from elmo_hf.training.trainer import PretrainingArguments

    if (model is None and vocabulary is None) or (model is not None and config is not None):
        raise typer.BadParameter("give --vocabulary (and --config) for a new model, or --model to adapt one.")
    fields: dict[str, Any] = {} if softmax is None else {"softmax": softmax.value}
    if samples is not None:
        fields["num_softmax_samples"] = samples
    try:
        args = PretrainingArguments(
            str(output),
            num_train_epochs=epochs,
            max_steps=max_steps,
            per_device_train_batch_size=rows,
            unroll_steps=unroll_steps,
            learning_rate=learning_rate,
            gradient_accumulation_steps=accumulate,
            reset_probability=reset_probability,
            frozen_steps=frozen_steps,
            bf16=bf16,
            seed=seed,
            # Otherwise the Trainer takes bfloat16 to be for GPUs.
            use_cpu=not (torch.cuda.is_available() or torch.backends.mps.is_available()),
            logging_steps=logging_steps,
            save_strategy="steps",
            save_steps=checkpoint_steps,
            save_total_limit=2,
            eval_strategy="steps" if held_out else "no",
            eval_steps=checkpoint_steps,
            load_best_model_at_end=bool(held_out),
            metric_for_best_model="eval_perplexity" if held_out else None,
            greater_is_better=False,
            report_to="tensorboard",
        )
        set_seed(seed)
        if model is not None:
            lm, tokenizer = load_for_pretraining(model, vocabulary, **fields)
        else:
            assert vocabulary is not None
            lm, tokenizer = new_language_model(vocabulary, **(_read_config(config) | fields))
        read = {
            name: Corpus.from_sentences(
                tqdm(
                    read_corpora(sources, word_splitter=words.value),
                    desc=name,
                    unit=" sentences",
                    disable=args.process_index > 0,
                ),
                tokenizer,
            )
            for name, sources in (("training text", corpora), ("held-out text", held_out))
            if sources
        }
        for name, corpus in read.items() if args.process_index == 0 else ():
            unknown = corpus.share_of_class(int(tokenizer.word_classes(["<UNK>"])[0]))
            typer.echo(f"{name}: {len(corpus):,} sentences, {corpus.num_words:,} words, {unknown:.2%} unknown.")
        trainer = run(lm, tokenizer, read["training text"], read.get("held-out text"), args)
    except (ValueError, OSError) as error:
        fail(error)
    if trainer.is_world_process_zero():
        scored = [entry for entry in trainer.state.log_history if "eval_perplexity" in entry]
        chosen = [entry for entry in scored if entry["step"] == trainer.state.best_global_step] or scored
        for state, prefix in (("from zero state", "eval_"), ("state carried", "eval_carried_")) if chosen else ():
            names = ("forward_perplexity", "backward_perplexity", "perplexity")
            typer.echo(_perplexities(state, *(chosen[-1][prefix + name] for name in names)))
        typer.echo(f"Wrote {output}.")


def score(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder or a Hub name, with its softmax.")],
    source: Annotated[Path, typer.Argument(metavar="FILE", help="Text, .jsonl or .conllu, plain or .gz.")],
    words: Annotated[SplitWords, typer.Option(help="How sentences are split into words.")] = SplitWords.whitespace,
    rows: Annotated[int, typer.Option(help="Rows read side by side where the state is carried.", min=1)] = 32,
    per_word: Annotated[
        Path | None, typer.Option(help="Write each word's surprisal in bits to this .tsv or .parquet file.")
    ] = None,
    carry_state: Annotated[
        bool, typer.Option("--carry-state", help="With --per-word: carry the state; default: from zero.")
    ] = False,
) -> None:
    """Perplexity of FILE, one sentence a line: forward, backward and their geometric mean, by the exact softmax.

    From the zero state each sentence stands on its own, as ELMo is used; carried, the state goes from sentence to
    sentence, as in bilm-tf's test.
    """
    import torch
    from tqdm import tqdm

    from elmo_hf.embedding.sentences import read_sentences
    from elmo_hf.embedding.word_tables import check_table, write_table
    from elmo_hf.language_model.corpus import Corpus
    from elmo_hf.language_model.pretraining import ElmoForPreTraining
    from elmo_hf.language_model.scoring import score_carried, score_from_zero
    from elmo_hf.loading import load_complete, model_folder
    from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer
    from elmo_hf.tokenizer.word_splitter import make_word_splitter

    splitter = make_word_splitter(words.value)
    try:
        if per_word is not None:
            check_table(per_word)
        language_model = load_complete(model, ElmoForPreTraining)
        tokenizer = ElmoTokenizer.from_pretrained(model_folder(model))
        sentences = [
            [word for word, _ in splitter.pre_tokenize_str(sentence)] if isinstance(sentence, str) else sentence
            for sentence in read_sentences(source)
        ]
        numbers = [number for number, sentence in enumerate(sentences) if sentence]
        corpus = Corpus.from_sentences([sentences[number] for number in numbers], tokenizer)
        if len(corpus) == 0:
            raise ValueError(f"{source} has no sentences.")
        if torch.cuda.is_available():
            language_model = language_model.cuda()
        with tqdm(total=2 * corpus.num_predictions, unit=" words") as bar:
            zero = score_from_zero(language_model, corpus, bar.update)
            carried = score_carried(language_model, corpus, rows, bar.update)
        if per_word is not None:
            chosen = carried if carry_state else zero
            write_table(per_word, [(number, sentences[number]) for number in numbers], chosen, tokenizer)
    except (ValueError, OSError) as error:
        fail(error)
    unknown = corpus.share_of_class(int(tokenizer.word_classes(["<UNK>"])[0]))
    typer.echo(f"{len(corpus):,} sentences, {corpus.num_words:,} words, {unknown:.2%} unknown.")
    for state, scores in (("from zero state", zero), ("state carried", carried)):
        typer.echo(
            _perplexities(state, scores.forward_perplexity, scores.backward_perplexity, scores.perplexity)
            + f"   {scores.num_scored:,} of {corpus.num_predictions:,} predictions"
        )
    if per_word is not None:
        typer.echo(f"Wrote {per_word}.")


def need(*packages: str) -> None:
    """Ends the command where packages are not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        fail(ImportError(f"this needs {', '.join(missing)}, not installed here: pip install 'elmo-hf[train]'"))


def fail(error: Exception) -> NoReturn:
    """Says what is wrong and ends the command."""
    typer.echo(f"Error: {error}", err=True)
    raise typer.Exit(1)


def _read_config(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{path} must hold one JSON object with fields of `ElmoConfig`.")
    return fields


def _perplexities(state: str, forward: float, backward: float, mean: float) -> str:
    return f"perplexity {state:>16}   forward {forward:10.2f}   backward {backward:10.2f}   mean {mean:10.2f}"
