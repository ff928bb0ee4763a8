"""Torch's files of weights are what torch reads, in both of its forms."""

from pathlib import Path

import numpy as np
import pytest
import torch
from archives import state_bytes

from elmo_hf.conversion.readers.torch_files import read_state_dict


@pytest.mark.parametrize("as_zip", [False, True], ids=["older form", "newer form"])
def test_every_tensor_is_what_torch_reads(as_zip: bool, tmp_path: Path) -> None:
    table = torch.arange(24.0).reshape(4, 6) / 7
    types = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8)
    state = {str(kind): table.to(kind) for kind in (*types, torch.uint8, torch.bool)}
    state |= {"turned": table.T, "part": table[1:3, ::2], "number": torch.tensor(3.5), "empty": torch.zeros(0, 3)}
    state |= {"again": table, "parameter": torch.nn.Parameter(table[0])}
    path = tmp_path / "task.th"
    path.write_bytes(state_bytes(state, as_zip=as_zip))
    found, expected = read_state_dict(path), torch.load(path, weights_only=True)
    assert list(found) == list(expected)
    for name, value in expected.items():
        known = (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
        assert (found[name].dtype, found[name].shape) == (known.dtype, known.shape), name
        np.testing.assert_array_equal(found[name], known)


def test_weights_of_a_gpu_are_read(tmp_path: Path) -> None:
    content = state_bytes({"w": torch.ones(9)})
    assert content.count(b"ctorch\nFloatStorage\n") == 1
    moved = content.replace(b"ctorch\nFloatStorage\n", b"ctorch.cuda\nFloatStorage\n").replace(b"cpu", b"gpu")
    (tmp_path / "task.th").write_bytes(moved)
    np.testing.assert_array_equal(read_state_dict(tmp_path / "task.th")["w"], np.ones(9, np.float32))
