"""A saved `ElmoModel` in sentence-transformers: `encode` gives `pooler_output`, with no code but the folder's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import ElmoForSequenceClassification, ElmoTokenizer
from tests.helpers.checkpoints import run_python
from tests.helpers.fresh_process import without
from tests.helpers.neighbours import TEXTS, each_pooling, pooled


def library() -> Any:
    return pytest.importorskip("sentence_transformers")


def open_folder(folder: Path) -> Any:
    return library().SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")


@each_pooling
def test_encode_gives_the_pooler_output_exactly(folder: Path) -> None:
    model = open_folder(folder)
    assert model.get_embedding_dimension() == 16
    for text in TEXTS:  # alone, because a sum over another padding has other last bits
        np.testing.assert_array_equal(model.encode([text]), pooled(folder, [text]))
    together = model.encode(TEXTS, batch_size=2)
    np.testing.assert_allclose(together, pooled(folder, TEXTS), atol=1e-6, rtol=0)


def test_training_moves_the_mix_alone_if_the_rest_is_frozen(folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("accelerate")
    model = open_folder(folder)
    model.requires_grad_(False)
    model[0].model.scalar_mixes.requires_grad_(True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rows = datasets.Dataset.from_dict({"anchor": ["A ferry", "No", "Yes"], "positive": ["The ferry", "no", "yes"]})
    arguments = library().SentenceTransformerTrainingArguments(
        tmp_path, num_train_epochs=2, learning_rate=0.05, report_to="none", save_strategy="no", use_cpu=True
    )
    loss = library().sentence_transformer.losses.MultipleNegativesRankingLoss(model)
    library().SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=loss).train()
    moved = {name for name, tensor in model.state_dict().items() if not tensor.equal(before[name])}
    assert moved == {name for name in before if "scalar_mixes" in name}


WITHOUT_THE_PACKAGE = f"""{without("elmo_hf", "conversion")}
import numpy as np
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(sys.argv[1], trust_remote_code=True, device="cpu")
model.save("again")
again = SentenceTransformer("again", trust_remote_code=True, device="cpu")
np.save("found.npy", [each.encode([sys.argv[2]])[0] for each in (model, again)])
"""


@pytest.mark.same_rounding
def test_the_folders_own_code_is_enough(folder: Path, tmp_path: Path) -> None:
    library()
    run_python(WITHOUT_THE_PACKAGE, tmp_path, folder, TEXTS[0])
    expected = pooled(folder, TEXTS[:1])[0]
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), np.stack([expected, expected]))


@torch.no_grad()
def test_a_cross_encoder_compares_pairs_if_the_config_says_so(folder: Path, tmp_path: Path) -> None:
    pairs = ElmoForSequenceClassification.from_pretrained(folder, text_pairs=True, num_labels=3).eval()
    pairs.save_pretrained(tmp_path)
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(tmp_path)
    encoder = library().CrossEncoder(
        str(tmp_path), trust_remote_code=True, device="cpu", config_kwargs={"text_pairs": True}
    )
    found = encoder.predict([(TEXTS[0], TEXTS[2])], convert_to_tensor=True)
    expected = pairs(**tokenizer([TEXTS[0]], [TEXTS[2]], return_tensors="pt")).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_a_limit_of_the_length_cuts_texts_and_is_on_the_card(folder: Path, tmp_path: Path) -> None:
    model = open_folder(folder)
    model.max_seq_length = 6
    model.save(str(tmp_path))
    assert "**Maximum Sequence Length:** 6 tokens" in (tmp_path / "README.md").read_text(encoding="utf-8")
    whole = model.encode(["one two three four"])
    for limited in (model, open_folder(tmp_path)):
        assert limited.max_seq_length == 6
        np.testing.assert_allclose(limited.encode(["one two three four five"]), whole, atol=1e-6)


def test_a_prompt_fails_and_gives_no_vectors_as_the_page_says(folder: Path) -> None:
    model = open_folder(folder)
    model.prompts = {"query": "query: "}
    for arguments in ({"prompt": "query: "}, {"prompt_name": "query"}):
        with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
            model.encode(TEXTS, **arguments)
