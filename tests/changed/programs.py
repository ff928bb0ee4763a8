"""Programs of users that call the library, as further commands: they end and refuse like those of `elmo-hf`."""

from pathlib import Path
from typing import Annotated

import datasets
import numpy as np
from typer import Option

import elmo_hf
from elmo_hf import ElmoForSequenceClassification
from elmo_hf.cli.app import app
from elmo_hf.cli.errors import Command
from elmo_hf.embedding.feature_cache import add_bilm_layers
from elmo_hf.training.checkpoints import newest_checkpoint
from elmo_hf.training.trainer import ElmoPretrainer
from tests.helpers.pretraining_runs import VOCABULARY, make_arguments, make_corpus, make_model
from tests.helpers.tiny_lm import tokenizer_with


def keep_layers(model: Path, corpus: Path, output: Path, dtype: Annotated[str, Option()] = "float32") -> None:
    """Keeps the layers of the biLM for each line of a text."""
    bilm, tokenizer = elmo_hf.load(model)
    classifier = ElmoForSequenceClassification(bilm.config).eval()
    classifier.elmo.load_state_dict(bilm.state_dict())
    ids = [tokenizer(line)["input_ids"] for line in corpus.read_text(encoding="utf-8").splitlines()]
    dataset = datasets.Dataset.from_dict({"input_ids": ids})
    layers = add_bilm_layers(dataset, classifier, tokenizer, dtype=dtype, folder=output)
    total = sum(float(np.abs(row["bilm_layers"]).sum()) for row in layers)
    print(f"Wrote the layers of {len(layers)} texts, {total:.4f} in all.")  # noqa: T201


def train_on(output: Path) -> None:
    """Trains language models with the Trainer itself, from the newest checkpoint if there is one."""
    trainer = ElmoPretrainer(
        make_model(lm_dropout=0.3),
        make_arguments(output, max_steps=5, save_strategy="steps", save_steps=2, save_total_limit=2),
        train_dataset=make_corpus(),
        processing_class=tokenizer_with(tuple(VOCABULARY)),
    )
    trainer.train(resume_from_checkpoint=newest_checkpoint(output) is not None)
    trainer.save_model()
    loss = trainer.state.log_history[-1]["train_loss"]
    print(f"Trained to a mean loss of {loss:.6f}.")  # noqa: T201


def register() -> None:
    """Adds the programs to the commands of this process."""
    for program in (keep_layers, train_on):
        app.command(cls=Command)(program)
