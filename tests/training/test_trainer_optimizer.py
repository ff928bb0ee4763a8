"""Which way of computing the optimiser of language models takes, by device and by who made it."""

from pathlib import Path

import pytest
import torch
from pretraining_runs import make_arguments, make_corpus, make_model, make_tokenizer

from elmo_hf.training.trainer import ElmoPretrainer, PretrainingArguments


@pytest.mark.parametrize(("device", "fused"), [("cpu", True), ("cuda", None)])
def test_adagrad_takes_one_pass_on_cpus_and_torchs_own_way_elsewhere(
    device: str, fused: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PretrainingArguments, "device", torch.device(device))
    optimizer_class, settings = ElmoPretrainer.get_optimizer_cls_and_kwargs(make_arguments(tmp_path))
    assert optimizer_class is torch.optim.Adagrad
    assert settings["fused"] is fused


@pytest.mark.parametrize("settings", [{}, {"fused": False}, {"foreach": True}], ids=str)
def test_an_optimiser_that_is_given_computes_as_it_was_made(settings: dict[str, bool], tmp_path: Path) -> None:
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), **settings)
    (before,) = ({key: group[key] for key in ("fused", "foreach")} for group in optimizer.param_groups)
    arguments = make_arguments(tmp_path, max_steps=1)
    corpus = make_corpus(make_tokenizer(tmp_path))
    ElmoPretrainer(model, arguments, train_dataset=corpus, optimizers=(optimizer, None)).train()
    (after,) = ({key: group[key] for key in ("fused", "foreach")} for group in optimizer.param_groups)
    assert after == before
