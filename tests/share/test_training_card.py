"""A Trainer run fills its card and pushes it with the model."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from checkpoints import run_online, run_python
from fresh_process import python_path
from huggingface_hub import ModelCard
from loopback_hub import LoopbackHub
from torch import Tensor
from transformers import DataCollatorWithPadding, TrainingArguments

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.share.training_card import ElmoTrainer

TEXTS = ["The ferry left.", "Yes.", "It isn't late, is it?"]


class MixTrainer(ElmoTrainer):
    """Trains the mix to equal the top layer, in place of a task."""

    def compute_loss(
        self, model: ElmoModel, inputs: dict[str, Tensor], return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        output = model(**inputs, output_hidden_states=True)
        loss = (output.last_hidden_state - output.hidden_states[-1].detach()).square().mean()
        return (loss, {"pooled": output.pooler_output}) if return_outputs else loss


def make_trainer(folder: Path, tiny_folder: Path, **arguments: Any) -> MixTrainer:
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder)
    data = [dict(tokenizer(text)) for text in TEXTS]
    return MixTrainer(
        ElmoModel.from_pretrained(tiny_folder),
        TrainingArguments(
            folder,
            max_steps=4,
            eval_strategy="steps",
            eval_steps=2,
            learning_rate=3e-5,
            per_device_train_batch_size=2,
            label_names=["attention_mask"],
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
            **arguments,
        ),
        train_dataset=data,
        eval_dataset=data,
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        compute_metrics=lambda prediction: {"mean_f1": 0.25},
    )


def rows_of(card: str) -> dict[str, str]:
    """The two-column tables of a card."""
    return dict(re.findall(r"^\| (.+?) \| (.+?) \|$", card, flags=re.MULTILINE))


def test_a_dataset_without_a_name_is_left_out(tiny_folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    trainer = make_trainer(tmp_path / "run", tiny_folder)
    trainer.train_dataset = datasets.Dataset.from_list(trainer.train_dataset)
    trainer.create_model_card()
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert card.data.datasets is None
    assert "None" not in card.text


def test_a_run_fills_hyper_parameters_scores_and_metadata(tiny_folder: Path, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "run", tiny_folder)
    trainer.train()
    trainer.create_model_card(
        language="en", license="mit", tags="ferries", dataset="three sentences", dataset_tags="org/sentences"
    )
    text = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    rows = rows_of(text)
    assert (rows["learning_rate"], rows["train_batch_size"], rows["training_steps"]) == ("3e-05", "2", "4")
    assert rows["Mean F1"] == "0.25"
    assert float(rows["Loss"]) > 0
    assert "| Training Loss | Epoch | Step | Validation Loss | Mean F1 |" in text.splitlines()
    assert "trained with `elmo-hf` " in text
    assert " on three sentences." in text
    data = ModelCard(text).data
    assert (data.language, data.license, data.datasets) == ("en", "mit", ["org/sentences"])
    assert data.tags == ["elmo", "bilm", "ferries", "generated_from_trainer"]
    (result,) = data.eval_results
    assert (result.task_type, result.dataset_type, result.dataset_name) == (
        "feature-extraction",
        "org/sentences",
        "three sentences",
    )
    assert (result.metric_type, result.metric_value) == ("mean_f1", 0.25)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["README.md"]


def test_the_snippet_of_a_run_loads_what_the_run_saved(tiny_folder: Path, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "run", tiny_folder)
    trainer.save_model()
    trainer.create_model_card()
    (snippet,) = re.findall(r"```python\n(.*?)```", (tmp_path / "run" / "README.md").read_text(), flags=re.DOTALL)
    assert run_python(snippet, tmp_path) == "torch.Size([2, 8, 16])\ntorch.Size([2, 16])\n"


def test_the_snippet_of_a_classifier_is_its_pipeline_and_a_folder_is_no_base_model(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    trainer = make_trainer(tmp_path / "run", tiny_folder)
    trainer.model.config.auto_map = {"AutoModelForTokenClassification": "modeling_elmo.ElmoModel"}
    trainer.create_model_card(finetuned_from="models/mine")
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert 'pipeline("token-classification", model="run", trust_remote_code=True)' in card.text
    assert card.data.pipeline_tag == "token-classification"
    assert "base_model" not in card.data.to_dict()


PUSH = """
import sys
from pathlib import Path
from elmo_hf import ElmoModel
from test_training_card import make_trainer

trainer = make_trainer(Path(sys.argv[2]), Path(sys.argv[1]), push_to_hub=True, hub_model_id="org/trained")
trainer.train()
trainer.push_to_hub(dataset_tags="org/sentences", finetuned_from="org/elmo-small")
print([weight.item() for weight in trainer.model.scalar_mixes[0].logits])
"""
LOAD = """
from transformers import AutoModel, AutoTokenizer, pipeline

model = AutoModel.from_pretrained("org/trained", trust_remote_code=True)
print([weight.item() for weight in model.scalar_mixes[0].logits])
assert pipeline(model="org/trained", trust_remote_code=True)("Yes.")
"""


def test_a_run_with_push_to_hub_pushes_model_tokenizer_and_card(
    hub: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    here = Path(__file__).parent
    path = {"PYTHONPATH": python_path(here, here.parent / "helpers")}
    trained = run_online(PUSH, hub, tmp_path / "home", tiny_folder, tmp_path / "run", **path).splitlines()[-1]
    assert len(set(json.loads(trained))) > 1
    assert run_online(LOAD, hub, tmp_path / "user", HF_TOKEN="").splitlines() == [trained]
    card = hub.files("org/trained")["README.md"].decode()
    assert rows_of(card)["Mean F1"] == "0.25"
    assert ModelCard(card).data.base_model == "org/elmo-small"
    assert "trained from [org/elmo-small](https://huggingface.co/org/elmo-small) with `elmo-hf`" in card
