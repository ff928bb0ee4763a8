"""TensorFlow's checkpoints: every bit of them is read, damage is refused, and variables become arrays of hdf5 files."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from elmo_hf.conversion.readers.bilm_tf import read_variables
from elmo_hf.conversion.readers.tensor_bundle import TensorBundle, find_index
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.sources import files_in
from tests.helpers.checkpoints import FIXTURES, bits, read_datasets, shared
from tests.helpers.tensor_bundles import write_bundle

ARRAYS = {
    "lm/CNN/W_cnn_0": np.arange(30, dtype=np.float32).reshape(1, 2, 3, 5),
    "lm/CNN/W_cnn_0/Adagrad": np.full((1, 2, 3, 5), 1.5, dtype=np.float32),
    "lm/CNN/b_cnn_0": np.array([np.nan, -0.0, np.inf, 1e-45, 3], dtype=np.float32),
    "lm/RNN_0/rnn/kernel": np.arange(14, dtype=np.float64).reshape(2, 7),
    "lm/empty": np.zeros((0, 4), dtype=np.float32),
    "lm/half": np.array([1, 65504], dtype=np.float16),
    "global_step": np.array(6, dtype=np.float32),
    "steps": np.array([2**40, -7], dtype=np.int64),
    "ids": np.array([[3], [-2]], dtype=np.int32),
}


@pytest.mark.parametrize("num_shards", [1, 3])
def test_every_tensor_is_read_bit_by_bit(num_shards: int, tmp_path: Path) -> None:
    write_bundle(tmp_path / "model.ckpt-6", ARRAYS, num_shards=num_shards)
    bundle = TensorBundle(tmp_path / "model.ckpt-6")
    assert bits(bundle.read(bundle.entries)) == bits(ARRAYS)


def test_a_damaged_index_is_refused_or_read_as_it_was(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    write_bundle(prefix, {"a": np.ones(4, np.float32), "b/c": np.ones((2, 3), np.float32)})
    path = tmp_path / "model.ckpt-1.index"
    content, entries, harmless = path.read_bytes(), TensorBundle(prefix).entries, set[int]()

    def is_read(changed: bytes) -> bool:
        path.write_bytes(changed)
        try:
            bundle = TensorBundle(prefix)
            bundle.read(bundle.entries)
        except ConversionError:
            return False
        return True

    assert not any(is_read(content[:size]) for size in range(len(content)))
    for place, mask in product(range(len(content)), (1, 128)):
        if is_read(content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]):
            assert TensorBundle(prefix).entries == entries
            harmless.add(place)
    # The zeros that fill the footer have no meaning, nor has a zero appended to the number before them.
    last = len(content) - 48 + len(content[-48:-8].rstrip(b"\0")) - 1
    assert harmless == set(range(last, len(content) - 8))


RECORDS: dict[str, tuple[str | None, str]] = {
    "none": (None, "model.ckpt-100"),
    "plain": ('model_checkpoint_path: "model.ckpt-20"\nall_model_checkpoint_paths: "x"\n', "model.ckpt-20"),
    "path of another machine": ('model_checkpoint_path: "/home/matt/../model.ckpt-3"', "model.ckpt-3"),
    "path of Windows": ('model_checkpoint_path: "C:\\\\elmo\\\\model.ckpt-3"', "model.ckpt-3"),
    "another order": ('all_model_checkpoint_paths: "x"\n model_checkpoint_path:"model.ckpt-3"', "model.ckpt-3"),
}


@pytest.mark.parametrize(("record", "expected"), RECORDS.values(), ids=RECORDS)
def test_the_checkpoint_is_that_of_the_record_or_of_the_highest_step(
    record: str | None, expected: str, tmp_path: Path
) -> None:
    for name in ("model.ckpt-3", "model.ckpt-20", "model.ckpt-100", "model.ckpt"):
        (tmp_path / f"{name}.index").touch()
    if record is not None:
        (tmp_path / "checkpoint").write_text(record, encoding="utf-8")
    assert find_index(files_in(tmp_path, "*")) == tmp_path / f"{expected}.index"


# Variables and their names in hdf5 files; a cell that is no LSTM keeps its name, which the tables refuse.
NAMES = {
    "lm/CNN/b_cnn_0": "CNN/b_cnn_0",
    "lm/softmax/b": "softmax/b",
    "lm/RNN_1/rnn/multi_rnn_cell/cell_12/lstm_cell/bias": "RNN_1/RNN/MultiRNNCell/Cell12/LSTMCell/B",
    "lm/rnn/lstm_cell/projection/kernel": "rnn/LSTMCell/projection/kernel",
    "lm/RNN_0/rnn/multi_rnn_cell/cell_0/gru_cell/kernel": "RNN_0/rnn/multi_rnn_cell/cell_0/gru_cell/kernel",
}


def test_variables_have_the_names_of_the_hdf5_file_and_what_is_no_weight_is_not_read(tmp_path: Path) -> None:
    weights = {name: np.full((2, 3), number, np.float32) for number, name in enumerate(NAMES)}
    others = ("lm/CNN/b_cnn_0/Adagrad", "global_step", "train_perplexity", "lm/softmax/b/Adagrad")
    arrays = weights | dict.fromkeys(others, np.ones((2, 3), np.float32))
    write_bundle(tmp_path / "model.ckpt-6", arrays, num_shards=len(arrays))
    for shard in range(len(weights), len(arrays)):
        (tmp_path / f"model.ckpt-6.data-{shard:05d}-of-{len(arrays):05d}").unlink()
    assert bits(read_variables(tmp_path / "model.ckpt-6")) == bits({NAMES[name]: weights[name] for name in NAMES})


EXPORTS = {
    "bilm_tf_edges/bi_char_1layer": "w.hdf5",
    "bilm_tf_edges/bi_char_noproj": "w.hdf5",
    "bilm_tf_edges/bi_word_2": "w.hdf5",
    "bilm_tf_edges/uni_char_2": "w.hdf5",
    "bilm_tf_edges/bi_word_shared": "w.hdf5",
    "bilm_tf_lm_tiny": "weights.hdf5",
    "bilm_tf_trained": "lm_weights.hdf5",
}


@pytest.mark.parametrize("folder", EXPORTS)
def test_a_checkpoint_is_what_bilm_tf_exports_and_the_softmax(folder: str) -> None:
    carried = FIXTURES / folder
    source = carried if (carried / "checkpoint").is_file() else shared("fixtures", *folder.split("/"))
    arrays = read_variables(find_index(files_in(source, "*")).with_suffix(""))
    softmax = [name for name in arrays if name.startswith("softmax/")]
    assert softmax == (["softmax/b"] if folder.endswith("shared") else ["softmax/W", "softmax/b"])
    exported = {name: array for name, array in arrays.items() if name not in softmax}
    assert bits(exported) == bits(read_datasets(source / EXPORTS[folder]))
