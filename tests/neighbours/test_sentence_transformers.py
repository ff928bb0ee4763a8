"""A saved `ElmoModel` in sentence-transformers: `encode` gives `pooler_output`, with no code but the folder's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
