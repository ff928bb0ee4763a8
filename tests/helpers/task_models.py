"""Small models for each task and batches for them."""

from typing import Any

import torch
from torch import Tensor

from elmo_hf import (
    ElmoConfig,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoTokenizer,
)
from elmo_hf.model.heads_elmo import ElmoTaskModel
from tests.helpers.tiny_inputs import TINY

C = TINY["max_word_length"]
TOKENIZER = ElmoTokenizer(max_word_length=C, word_splitter="whitespace")
FIRST = ["The ferry left at noon .", "Yes", "We waited on the quay ."]
SECOND = ["It left early", "He said no , twice , and went", "All day"]
IOB_LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}

# What a task needs of its config, by a name for test ids.
TASKS: dict[str, tuple[type[ElmoTaskModel], dict[str, Any]]] = {
    "classification": (ElmoForSequenceClassification, {"num_labels": 3}),
    "pairs": (ElmoForSequenceClassification, {"num_labels": 3, "text_pairs": True}),
    "labelling": (ElmoForTokenClassification, {"id2label": IOB_LABELS}),
    "crf": (ElmoForTokenClassification, {"id2label": IOB_LABELS, "use_crf": True}),
    "questions": (ElmoForQuestionAnswering, {}),
}
LSTM = {"task_encoder": "lstm", "task_hidden_size": 6, "num_output_representations": 2}


def make_task_model(task: str, seed: int = 0, **fields: Any) -> ElmoTaskModel:
    """A model in evaluation mode with weights so large that logits differ; no two sizes are equal."""
    model_class, needed = TASKS[task]
    torch.manual_seed(seed)
    model = model_class(ElmoConfig(**TINY | needed | fields)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("elmo."):
                torch.nn.init.normal_(parameter, std=0.7)
            elif "bilm" in name:
                parameter.mul_(3)
    return model


def make_batch(
    task: str, padding_side: str = "right", rows: slice = slice(None), tokenizer: ElmoTokenizer = TOKENIZER
) -> dict[str, Tensor]:
    """Ids, mask and what the task is to learn."""
    texts = (FIRST[rows], SECOND[rows]) if task in ("pairs", "questions") else (FIRST[rows],)
    encoded = tokenizer(*texts, padding=True, padding_side=padding_side, return_tensors="pt")
    batch = dict(encoded)
    if task in ("classification", "pairs"):
        batch["labels"] = torch.tensor([2, 0, 1])[rows]
    elif task == "questions":
        firsts = [encoded.word_to_tokens(row, 1, 1).start for row in range(len(texts[0]))]
        batch["start_positions"] = torch.tensor(firsts)
        batch["end_positions"] = batch["start_positions"] + torch.tensor([1, 3, 0])[rows]
    else:
        batch["labels"] = torch.full(batch["attention_mask"].shape, -100)
        for row in range(len(texts[0])):
            words = [place for place, number in enumerate(encoded.word_ids(row)) if number is not None]
            batch["labels"][row, words] = torch.tensor([1, 2, 0, 3, 4, 4])[: len(words)]
    return batch


def logits_of(output: Any) -> Tensor:
    """`(B, classes)` for texts, or `(B, T, ...)` for words."""
    return torch.stack([output.start_logits, output.end_logits], dim=-1) if "start_logits" in output else output.logits
