"""The conversion engine: each operation in both directions, and the arrays that `import_arrays` refuses."""

import numpy as np
import pytest
from checkpoints import bits

from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.rules import (
    ArrayOp,
    DropLeadingAxis,
    PrependZeroRow,
    Rule,
    SplitRows,
    SwapMiddleGates,
    Transpose,
    import_arrays,
)

# Operation, foreign arrays, our arrays; no array has two equal sizes.
OPERATIONS = {
    "transpose each of two": (Transpose(), [[[1, 2]], [[3], [4], [5]]], [[[1], [2]], [[3, 4, 5]]]),
    "transpose kernel": (
        Transpose(),
        [np.arange(24).reshape(4, 2, 3)],
        [[[[0, 6, 12, 18], [3, 9, 15, 21]], [[1, 7, 13, 19], [4, 10, 16, 22]], [[2, 8, 14, 20], [5, 11, 17, 23]]]],
    ),
    "drop leading axis": (DropLeadingAxis(), [[[[1, 2, 3], [4, 5, 6]]]], [[[1, 2, 3], [4, 5, 6]]]),
    "swap gates": (
        SwapMiddleGates(),
        [[1, 2, 3, 4, 5, 6, 7, 8], [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]],
        [[1, 2, 5, 6, 3, 4, 7, 8], [[1, 3, 2, 4], [5, 7, 6, 8], [9, 11, 10, 12]]],
    ),
    "split rows": (
        SplitRows(),
        [[[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]],
        [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]],
    ),
    "prepend zero row": (PrependZeroRow(), [[[1, 2, 3], [4, 5, 6]]], [[[0, 0, 0], [1, 2, 3], [4, 5, 6]]]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("op", "theirs", "ours"), OPERATIONS.values(), ids=OPERATIONS)
def test_operation_moves_each_number_to_its_place(op: ArrayOp, theirs: list, ours: list, dtype: type) -> None:
    for change, source, target in ((op.apply, theirs, ours), (op.invert, ours, theirs)):
        found = change([np.array(values, dtype) for values in source])
        assert bits(dict(enumerate(found))) == bits({k: np.array(values, dtype) for k, values in enumerate(target)})


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_are_rounded_to_float32_and_every_fault_is_listed(dtype: type) -> None:
    array = np.array([[0.1, -65504.0, 6e-8], [1 / 3, 2.0, -0.0]], dtype=dtype)
    rules = [Rule(name, (2, 3), (f"our.{name}",)) for name in ("W", "gone", "turned")]
    assert bits(import_arrays(rules[:1], {"W": array}, "weights.hdf5")) == bits({"our.W": array.astype(np.float32)})
    with pytest.raises(ConversionError) as caught:
        import_arrays(rules, {"W": array + np.inf, "turned": array.T, "stray": array}, "weights.hdf5")
    assert all(name in str(caught.value) for name in ("`W`", "`gone`", "`turned`", "`stray`"))
