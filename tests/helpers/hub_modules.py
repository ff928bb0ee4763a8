"""TF-Hub modules for tests: a golden case's arrays as Google's or DeepPavlov's variables, in any packing."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.helpers.checkpoints import BASE, Arrays, read_datasets
from tests.helpers.tensor_bundles import object_graph, write_bundle

LOGITS, SCALE = np.array([0.3, -0.4, 0.8], np.float32), np.float32(1.7)
LEAVES = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}


def variables_of(style: str) -> Arrays:
    """The variables of a module, `"google"` or `"deeppavlov"`, which has states too."""
    arrays = read_datasets(BASE / "weights.hdf5")
    table = arrays.pop("char_embed")
    variables = {"bilm/char_embed": np.concatenate([np.zeros_like(table[:1]), table])}
    for name, array in arrays.items():
        leaf = re.search(r"LSTMCell/(.*)", name)
        cell = name if leaf is None else name.replace(leaf[0], f"rnn/lstm_cell/{LEAVES[leaf[1]]}")
        variables[f"bilm/{cell}"] = array
    if style == "google":
        return variables | {"aggregation/weights": LOGITS, "aggregation/scaling": np.array(SCALE)}
    mix = "aggregation/elmo_output_ELMo_"
    variables |= {f"{mix}W": LOGITS, f"{mix}gamma": np.array([SCALE])}
    for scope in ("bilm", "bilm_1"):
        variables |= {f"{scope}/Variable{end}": np.ones((5, 8), np.float32) for end in ("", "_1", "_2", "_3")}
    return variables


def write_module(folder: Path, variables: Mapping[str, np.ndarray | bytes], *, num_shards: int = 1) -> Path:
    """A module's folder, whose program is none."""
    (folder / "variables").mkdir(parents=True)
    (folder / "assets").mkdir()
    (folder / "saved_model.pb").write_bytes(b"\x08\x01")
    (folder / "tfhub_module.pb").write_bytes(b"\x08\x03")
    write_bundle(folder / "variables" / "variables", variables, num_shards=num_shards)
    return folder


def saved_by_tensorflow_2(variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray | bytes]:
    """The variables under the keys of TensorFlow 2, with the graph that names them."""
    keys = {f"variables/{number}/.ATTRIBUTES/VARIABLE_VALUE": name for number, name in enumerate(variables)}
    arrays: dict[str, np.ndarray | bytes] = {key: variables[name] for key, name in keys.items()}
    return arrays | {"_CHECKPOINTABLE_OBJECT_GRAPH": object_graph(keys)}
