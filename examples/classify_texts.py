"""Classify texts, or pairs of texts, with frozen ELMo features: questions, sentiment, news, entailment.

    python examples/classify_texts.py MODEL trec            # or sst2, sst5, ag_news, sick
    python examples/classify_texts.py MODEL reviews.csv --column text=review --column label=stars

The paper's recipe (Peters et al. 2018, §3.3): a frozen biLM, layers mixed with learned weights, ELMo at the input and
the output of a bidirectional LSTM, dropout 0.5. The biLM runs once, and a file keeps its layers for all epochs.
`--learn layer_2` also fine-tunes a part of the biLM, and `--learn layer_1,layer_2` two; this is slow, because the biLM
then runs in every epoch. The table also has the accuracy of the label that is commonest in training. MODEL is a folder,
a Hub name, or a short name, such as `tiny` or `original`; `own_files.py` lists the files of your own that can be read.
"""

from itertools import islice
from pathlib import Path
from typing import Annotated

import recipe
import torch
import typer
from own_files import TEXTS, OwnData
from seeds import check_settings, contents_of, say_interval
from task_data import label_names, load, own_files
from transformers import pipeline

from elmo_hf import ElmoConfig, ElmoForSequenceClassification, ElmoTokenizer
from elmo_hf.cli.arguments import split_values


def main(
    name: recipe.Model,
    task: Annotated[str, typer.Argument(help="trec, sst2, sst5, ag_news, sick, or your own file or folder")],
    output: recipe.Output = Path("classifier"),
    rows: recipe.Rows = None,
    epochs: int = 20,
    seed: int = 0,
    learn: Annotated[
        list[str] | None, typer.Option(callback=split_values, help="Parts of the biLM that learn, such as layer_2.")
    ] = None,
    column: recipe.Columns = None,
    validation: recipe.Validation = None,
    test: recipe.Test = None,
    input_format: recipe.InputFormat = None,
    encoding: recipe.Encoding = "utf-8",
) -> None:
    """Train, test, save, reload, and show the results."""
    torch.manual_seed(seed)
    source = recipe.check_model(name)
    options = OwnData(column, validation, test, input_format, encoding)
    data = load(task, rows, (TEXTS,), options)
    tokenizer = ElmoTokenizer.from_pretrained(source)
    recipe.check_words(data, tokenizer, source)
    settings = {"model": name, "task": task, "rows": rows, "epochs": epochs, "seed": seed, **options.settings()}
    parts = ElmoConfig.from_pretrained(source).bilm_parts
    recipe.check_known("--learn", learn or (), parts)
    contents = contents_of(own_files([task], options), source)
    check_settings(output, contents, recipe="classify_texts", learn=learn, **settings)
    names = label_names(data)
    model = ElmoForSequenceClassification.from_pretrained(
        source,
        freeze_bilm=[part for part in parts if part not in (learn or [])],
        text_pairs="text_pair" in data["train"].column_names,
        task_encoder="lstm",
        num_output_representations=2,
        pooling="max",
        classifier_dropout=0.2,
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    encoded = recipe.keep_layers(recipe.encode_texts(data, tokenizer), model, tokenizer, output / "layers")
    trainer = recipe.train(
        model,
        tokenizer,
        encoded,
        output,
        compute_metrics=recipe.text_metrics,
        best="accuracy",
        epochs=epochs,
        seed=seed,
        rates={"elmo.token_encoder": 1e-4, "elmo.bilm": 1e-4},
    )
    tested = trainer.predict(encoded["test"])

    trainer.save_model(str(output))
    classify = pipeline("text-classification", model=str(output), trust_remote_code=True)
    for row in islice(data["test"], 3):
        text = {key: row[key] for key in ("text", "text_pair") if key in row}
        answer = classify(text if len(text) == 2 else row["text"])
        print(text, "->", answer if isinstance(answer, dict) else answer[0], "right:", names[row["label"]])

    found = [names[label] for label in tested.predictions.argmax(axis=-1)]
    recipe.plot_confusions([names[label] for label in tested.label_ids], found, output / "confusions.png")
    recipe.plot_learning_curves(trainer, "accuracy", output / "learning_curves.png")
    recipe.plot_mix_weights(model, output / "mix_weights.png")
    scores = (
        recipe.share_of_commonest(data, "label"),
        *(tested.metrics[f"test_{metric}"] for metric in ("accuracy", "macro_f1")),
    )
    table = [["task", "test texts", "commonest label", "accuracy", "macro F1"]]
    table.append([Path(task).name, str(len(found)), *(f"{score:.4f}" for score in scores)])
    recipe.print_table(table)
    say_interval(Path(task).name, tested.metrics["test_accuracy"], len(found))
    recipe.write_card(trainer, name, task, table)
    recipe.say_where_model_is(output)


if __name__ == "__main__":
    recipe.run(main, recipe.STARTS_AGAIN)
