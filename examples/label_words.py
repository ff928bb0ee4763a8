"""Label words with frozen ELMo features: named entities with a CRF, or parts of speech.

    python examples/label_words.py MODEL wnut17            # or ewt
    python examples/label_words.py MODEL train.conll --test test.conll --column words=0 --column labels=3

The paper's recipe (Peters et al. 2018, §3.3 and §4): a frozen biLM, layers mixed with learned weights, ELMo at the
input of a bidirectional LSTM, dropout 0.5; for entities a CRF on top, which allows no I- without its B-. The biLM runs
once, and a file keeps its layers for all epochs. The CRF needs labels in the IOB2 scheme; `own_files.py` converts other
schemes, and lists the files of your own that can be read. The table also has the accuracy of the label that is
commonest in training. MODEL is a folder, a Hub name, or a short name, such as `tiny` or `original`.
"""

from itertools import chain
from pathlib import Path
from typing import Annotated

import recipe
import torch
import typer
from own_files import WORDS, OwnData
from seeds import check_settings, contents_of
from seqeval.metrics import classification_report
from task_data import label_names, load, own_files
from transformers import pipeline

from elmo_hf import ElmoForTokenClassification, ElmoTokenizer


def main(
    name: recipe.Model,
    task: Annotated[str, typer.Argument(help="wnut17, ewt, or your own file or folder")],
    output: recipe.Output = Path("labeller"),
    rows: recipe.Rows = None,
    epochs: int = 20,
    seed: int = 0,
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
    data = load(task, rows, (WORDS,), options)
    tokenizer = ElmoTokenizer.from_pretrained(source)
    recipe.check_words(data, tokenizer, source)
    settings = {"model": name, "task": task, "rows": rows, "epochs": epochs, "seed": seed, **options.settings()}
    contents = contents_of(own_files([task], options), source)
    check_settings(output, contents, recipe="label_words", **settings)
    names = label_names(data)
    has_entities = "O" in names
    best = "entity_f1" if has_entities else "accuracy"
    model = ElmoForTokenClassification.from_pretrained(
        source,
        task_encoder="lstm",
        use_crf=has_entities,
        classifier_dropout=0.2,
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    encoded = recipe.keep_layers(recipe.encode_words(data, tokenizer), model, tokenizer, output / "layers")
    metrics = recipe.word_metrics(names)
    trainer = recipe.train(
        model, tokenizer, encoded, output, compute_metrics=metrics, best=best, epochs=epochs, seed=seed
    )
    tested = trainer.predict(encoded["test"])
    found, right = recipe.words_of(tested, names)

    trainer.save_model(str(output))
    label = pipeline(
        "token-classification",
        model=str(output),
        trust_remote_code=True,
        aggregation_strategy="simple" if has_entities else "none",
    )
    for words in data["test"]["words"][:3]:
        text = " ".join(words)
        print(text, "->", [(text[e["start"] : e["end"]], e.get("entity_group", e.get("entity"))) for e in label(text)])

    if has_entities:
        print(classification_report(right, found, digits=4, zero_division=0))
    recipe.plot_confusions(list(chain(*right)), list(chain(*found)), output / "confusions.png")
    recipe.plot_learning_curves(trainer, best, output / "learning_curves.png")
    recipe.plot_mix_weights(model, output / "mix_weights.png")
    measures = ["accuracy"]
    if has_entities:
        measures.append("entity_f1")
    scores = [recipe.share_of_commonest(data, "labels")]
    scores += [tested.metrics[f"test_{measure}"] for measure in measures]
    table = [["task", "test texts", "test words", "commonest label", *measures]]
    table.append([Path(task).name, str(len(right)), str(sum(map(len, right))), *(f"{score:.4f}" for score in scores)])
    recipe.print_table(table)
    recipe.write_card(trainer, name, task, table)
    recipe.say_where_model_is(output)


if __name__ == "__main__":
    recipe.run(main, recipe.STARTS_AGAIN)
