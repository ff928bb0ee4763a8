"""bilm-tf's training checkpoints: how variables become arrays, and which are left out."""

from pathlib import Path

import numpy as np
import pytest
from checkpoints import FIXTURES, bits, read_datasets, shared
from tensor_bundles import write_bundle

from elmo_hf.conversion.readers.bilm_tf import array_name, read_variables
from elmo_hf.conversion.readers.tensor_bundle import TensorBundle, find_index
from elmo_hf.conversion.sources import files_in

NAMES = {
    "lm/char_embed": "char_embed",
    "lm/embedding": "embedding",
    "lm/CNN/W_cnn_10": "CNN/W_cnn_10",
    "lm/CNN_high_1/b_carry": "CNN_high_1/b_carry",
    "lm/CNN_proj/W_proj": "CNN_proj/W_proj",
    "lm/RNN_0/rnn/multi_rnn_cell/cell_0/lstm_cell/kernel": "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0",
    "lm/RNN_1/rnn/multi_rnn_cell/cell_12/lstm_cell/bias": "RNN_1/RNN/MultiRNNCell/Cell12/LSTMCell/B",
    "lm/RNN_1/rnn/multi_rnn_cell/cell_1/lstm_cell/projection/kernel": "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0",
    "lm/RNN_0/rnn/lstm_cell/kernel": "RNN_0/RNN/LSTMCell/W_0",
    "lm/RNN_1/rnn/lstm_cell/projection/kernel": "RNN_1/RNN/LSTMCell/W_P_0",
    "lm/rnn/multi_rnn_cell/cell_0/lstm_cell/kernel": "rnn/MultiRNNCell/Cell0/LSTMCell/kernel",
    "lm/rnn/lstm_cell/projection/kernel": "rnn/LSTMCell/projection/kernel",
    "lm/softmax/W": "softmax/W",
    "lm/softmax/b": "softmax/b",
    "lm/RNN_0/rnn/multi_rnn_cell/cell_0/gru_cell/kernel": "RNN_0/rnn/multi_rnn_cell/cell_0/gru_cell/kernel",
    "beta1_power": "beta1_power",
}


@pytest.mark.parametrize(("variable", "name"), NAMES.items(), ids=NAMES)
def test_a_variable_has_the_name_of_the_hdf5_file(variable: str, name: str) -> None:
    assert array_name(variable) == name


def test_what_is_no_weight_is_not_read(tmp_path: Path) -> None:
    ones = np.ones((2, 3), np.float32)
    arrays = {
        "global_step": np.array(6, np.float32),
        "lm/CNN/b_cnn_0": ones,
        "lm/CNN/b_cnn_0/Adagrad": ones + 1,
        "lm/softmax/b": ones + 2,
        "lm/softmax/b/Adagrad": ones + 3,
        "train_perplexity": np.array(0, np.float32),
    }
    write_bundle(tmp_path / "model.ckpt-6", arrays, num_shards=len(arrays))
    for shard in (0, 2, 4, 5):
        (tmp_path / f"model.ckpt-6.data-{shard:05d}-of-00006").unlink()
    assert bits(read_variables(tmp_path / "model.ckpt-6")) == bits({"CNN/b_cnn_0": ones, "softmax/b": ones + 2})


EXPORTS = {
    "one layer": ("bilm_tf_edges/bi_char_1layer", "w.hdf5"),
    "no projection": ("bilm_tf_edges/bi_char_noproj", "w.hdf5"),
    "word input": ("bilm_tf_edges/bi_word_2", "w.hdf5"),
    "one direction": ("bilm_tf_edges/uni_char_2", "w.hdf5"),
    "shared softmax": ("bilm_tf_edges/bi_word_shared", "w.hdf5"),
    "language model": ("bilm_tf_lm_tiny", "weights.hdf5"),
    "trained": ("bilm_tf_trained", "lm_weights.hdf5"),
}  # fmt: skip


@pytest.mark.parametrize(("folder", "export"), EXPORTS.values(), ids=EXPORTS)
def test_a_checkpoint_is_what_bilm_tf_exports_and_the_softmax(folder: str, export: str) -> None:
    carried = FIXTURES / folder
    source = carried if (carried / "checkpoint").is_file() else shared("fixtures", *folder.split("/"))
    prefix = find_index(files_in(source, "*"), source).with_suffix("")
    arrays = read_variables(prefix)
    softmax = {name: arrays.pop(name) for name in ("softmax/W", "softmax/b") if name in arrays}
    assert bits(arrays) == bits(read_datasets(source / export))
    variables = TensorBundle(prefix)
    assert bits(softmax) == bits({name: variables.read(f"lm/{name}") for name in softmax})
    assert list(softmax) == (["softmax/b"] if folder.endswith("shared") else ["softmax/W", "softmax/b"])
