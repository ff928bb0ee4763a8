"""The warning of bfloat16 on a processor that does not multiply it: once a process, wherever it is computed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import run
from newcomer import SMALL, write_files
from tiny_inputs import random_inputs
from transformers import AutoModel, Trainer, TrainingArguments
from transformers.utils import logging

from elmo_hf import ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
from elmo_hf.scan.kernels import using
from elmo_hf.scan.processor_kernels import ProcessorKernels

WARNING = (
    "This processor does not multiply bfloat16, so bfloat16 is many times slower than float32: load the model with "
    "dtype=torch.float32, and train without bf16."
)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "bfloat16" in record.message]


@pytest.fixture(autouse=True)
def _nothing_was_logged() -> None:
    logging.warning_once.cache_clear()


def load_and_embed(folder: Path, work: Path) -> None:
    model = AutoModel.from_pretrained(folder).eval()
    assert model.dtype == torch.bfloat16
    for _ in range(2):
        model(**random_inputs(model.config, [4, 2]))


def embed(folder: Path, work: Path) -> None:
    (work / "text.txt").write_text("The ferry left.\n")
    result = run("embed", folder, work / "text.txt", "-o", work / "vectors.hdf5", "--device", "cpu")
    assert result.exit_code == 0, result.output


def pretrain(folder: Path, work: Path) -> None:
    write_files(work)
    new = ("--vocabulary", work / "words.txt", "--config", work / "config.json")
    result = run("pretrain", work / "corpus.txt", "-o", work / "lm", *new, "--max-steps", 2, "--bf16", *SMALL)
    assert result.exit_code == 0, result.output


def train(folder: Path, work: Path) -> None:
    model = ElmoForSequenceClassification.from_pretrained(folder, dtype="float32")
    inputs = random_inputs(model.config, [4, 2])
    rows = [{"input_ids": ids, "labels": label} for label, ids in enumerate(inputs["input_ids"])]
    arguments = TrainingArguments(str(work), max_steps=2, bf16=True, use_cpu=True, report_to="none", save_strategy="no")
    Trainer(model, arguments, train_dataset=rows).train()


@pytest.mark.parametrize("multiplies", [False, True])
@pytest.mark.parametrize("compute", [load_and_embed, embed, pretrain, train])
def test_every_way_of_computing_in_bfloat16_warns_once_where_it_is_slow(
    compute: Callable[[Path, Path], None],
    multiplies: bool,
    tiny_folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ElmoModel.from_pretrained(tiny_folder).bfloat16().save_pretrained(tmp_path / "half")
    ElmoTokenizer.from_pretrained(tiny_folder).save_pretrained(tmp_path / "half")
    (tmp_path / "work").mkdir()
    with using(ProcessorKernels(multiplies_bfloat16=multiplies)):
        compute(tmp_path / "half", tmp_path / "work")
    assert warnings_in(caplog) == ([] if multiplies else [WARNING])


def test_float32_gives_no_warning(tiny_model: ElmoModel, caplog: pytest.LogCaptureFixture) -> None:
    tiny_model(**random_inputs(tiny_model.config, [4, 2]))
    assert warnings_in(caplog) == []
