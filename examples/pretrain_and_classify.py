"""Pretrain small ELMos on a task's own text, without its labels, and classify with them.

    python examples/pretrain_and_classify.py ag_news           # or sst2, sst5, trec

Two biLMs are pretrained: one reads words through a word embedding, one reads characters. Each is then frozen, and a
classifier is trained for each way of mixing its layers:

    learned weights     the paper's scalar mix
    random weights      a scalar mix with weights drawn once and fixed
    learned function    a linear layer over all layers side by side
"""

from pathlib import Path
from typing import Annotated, Any

import recipe
import torch
import typer
from datasets import DatasetDict
from task_data import label_names, load
from transformers import pipeline

from elmo_hf import ElmoForSequenceClassification, ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.training.corpora import count_words, make_vocabulary
from elmo_hf.training.run import new_language_model, pretrain
from elmo_hf.training.trainer import PretrainingArguments

INPUTS = {
    "words": {"token_encoder": "word_embedding"},
    "characters": {"char_filters": [[1, 16], [2, 16], [3, 32], [4, 64]], "num_highway_layers": 1},
}
SIZES = {"projection_size": 64, "cell_size": 256, "num_hidden_layers": 2}


def pretrain_on(data: DatasetDict, reads: str, folder: Path, epochs: float, seed: int) -> float:
    """Pretrains on the training texts into a folder; returns the perplexity of the validation texts."""
    split = ElmoTokenizer().tokenize
    sentences = {name: [split(text) for text in data[name]["text"]] for name in ("train", "validation")}
    vocabulary = folder.with_name("words.txt")
    words = make_vocabulary(count_words(sentences["train"]), max_size=20_000, min_count=2)
    vocabulary.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    torch.manual_seed(seed)
    language_model, tokenizer = new_language_model(vocabulary, **SIZES, **INPUTS[reads])
    corpora = {name: Corpus.from_sentences(texts, tokenizer) for name, texts in sentences.items()}
    arguments = PretrainingArguments(
        str(folder), num_train_epochs=epochs, per_device_train_batch_size=32, seed=seed, report_to=[]
    )
    trainer = pretrain(language_model, tokenizer, corpora["train"], corpora["validation"], arguments)
    return [entry["eval_perplexity"] for entry in trainer.state.log_history if "eval_perplexity" in entry][-1]


def classify_with(
    data: DatasetDict, elmo: Path, fields: dict[str, Any], output: Path, epochs: int, seed: int
) -> tuple[str, float]:
    """Trains and saves a classifier; returns the mix's weights as text, and the accuracy on the test set."""
    torch.manual_seed(seed)
    names, tokenizer = label_names(data), ElmoTokenizer.from_pretrained(elmo)
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    model = ElmoForSequenceClassification.from_pretrained(elmo, task_encoder="lstm", pooling="max", **labels, **fields)
    encoded = recipe.keep_layers(recipe.encode_texts(data, tokenizer), model, tokenizer, elmo / "layers")
    trainer = recipe.train(
        model,
        tokenizer,
        encoded,
        output,
        compute_metrics=recipe.text_metrics,
        best="accuracy",
        epochs=epochs,
        seed=seed,
    )
    trainer.save_model(str(output))
    recipe.plot_learning_curves(trainer, "accuracy", output / "learning_curves.png")
    mixes = model.scalar_mixes_of_all()
    weights = " ".join(f"{weight:.2f}" for weight in mixes[0].weights.tolist()) if mixes else "a matrix"
    return weights, trainer.predict(encoded["test"]).metrics["test_accuracy"]


def main(
    task: Annotated[str, typer.Argument(help="ag_news, sst2, sst5 or trec")],
    output: Annotated[Path, typer.Option(help="Folder for all models.")] = Path("own_elmo"),
    rows: recipe.Rows = None,
    pretraining_epochs: float = 10,
    epochs: int = 15,
    seed: int = 0,
) -> None:
    """Pretrain two biLMs, train three classifiers on each, and print one table."""
    data = load(task, rows)
    output.mkdir(parents=True, exist_ok=True)
    drawn = torch.rand(3, generator=torch.Generator().manual_seed(seed)).log()
    mixes: dict[str, dict[str, Any]] = {
        "learned weights": {},
        "random weights": {"scalar_mix_weights": (drawn / drawn.sum()).tolist(), "scalar_mix_trainable": False},
        "learned function": {"layer_mix": "linear"},
    }
    table = [["biLM reads", "perplexity", "mix", "weights of token, layer 1, layer 2", "accuracy"]]
    for reads in INPUTS:
        elmo = output / reads
        perplexity = pretrain_on(data, reads, elmo, pretraining_epochs, seed)
        for mix, fields in mixes.items():
            folder = output / f"{reads} {mix}".replace(" ", "_")
            weights, accuracy = classify_with(data, elmo, fields, folder, epochs, seed)
            table.append([reads, f"{perplexity:.1f}", mix, weights, f"{accuracy:.4f}"])
    classify = pipeline("text-classification", model=str(output / "characters_learned_weights"), trust_remote_code=True)
    for row in data["test"].select(range(3)):
        print(row["text"], "->", classify(row["text"])[0], "right:", label_names(data)[row["label"]])
    recipe.print_table(table)


if __name__ == "__main__":
    typer.run(main)
