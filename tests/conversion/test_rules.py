"""The conversion engine: each operation in both directions, and the arrays that `import_arrays` refuses."""

import numpy as np
import pytest

from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.rules import (
    ArrayOp,
    DropLeadingAxis,
    PrependZeroRow,
    Rule,
    SplitRows,
    SwapMiddleGates,
    Transpose,
    export_arrays,
    import_arrays,
)

# Operation, foreign arrays, our arrays; no array has two equal sizes.
OPERATIONS = {
    "transpose matrix": (Transpose(), [[[1, 2, 3], [4, 5, 6]]], [[[1, 4], [2, 5], [3, 6]]]),
    "transpose kernel": (
        Transpose(),
        [[[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], [[13, 14, 15, 16], [17, 18, 19, 20], [21, 22, 23, 24]]]],
        [[[[1, 13], [5, 17], [9, 21]], [[2, 14], [6, 18], [10, 22]], [[3, 15], [7, 19], [11, 23]],
          [[4, 16], [8, 20], [12, 24]]]],
    ),
    "transpose each of two": (Transpose(), [[[1, 2]], [[3], [4], [5]]], [[[1], [2]], [[3, 4, 5]]]),
    "drop leading axis": (DropLeadingAxis(), [[[[1, 2, 3], [4, 5, 6]]]], [[[1, 2, 3], [4, 5, 6]]]),
    "swap gates of a bias": (SwapMiddleGates(), [[1, 2, 3, 4, 5, 6, 7, 8]], [[1, 2, 5, 6, 3, 4, 7, 8]]),
    "swap gates of a kernel": (
        SwapMiddleGates(),
        [[[1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16], [17, 18, 19, 20, 21, 22, 23, 24]]],
        [[[1, 2, 5, 6, 3, 4, 7, 8], [9, 10, 13, 14, 11, 12, 15, 16], [17, 18, 21, 22, 19, 20, 23, 24]]],
    ),
    "split rows": (
        SplitRows(),
        [[[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]],
        [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]],
    ),
    "prepend zero row": (PrependZeroRow(), [[[1, 2, 3], [4, 5, 6]]], [[[0, 0, 0], [1, 2, 3], [4, 5, 6]]]),
}  # fmt: skip
KERNEL_OPS = (SwapMiddleGates(), SplitRows(), Transpose())


def arrays_of(values: list) -> list[np.ndarray]:
    return [np.array(value, dtype=np.float32) for value in values]


def assert_equal_arrays(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert [array.dtype for array in found] == [array.dtype for array in expected]
    assert [array.tolist() for array in found] == [array.tolist() for array in expected]


@pytest.mark.parametrize(("op", "theirs", "ours"), OPERATIONS.values(), ids=OPERATIONS)
def test_operation_moves_each_number_to_its_place(op: ArrayOp, theirs: list, ours: list) -> None:
    assert_equal_arrays(op.apply(arrays_of(theirs)), arrays_of(ours))


@pytest.mark.parametrize(("op", "theirs", "ours"), OPERATIONS.values(), ids=OPERATIONS)
def test_inverse_moves_each_number_back(op: ArrayOp, theirs: list, ours: list) -> None:
    assert_equal_arrays(op.invert(arrays_of(ours)), arrays_of(theirs))


def test_prepended_row_keeps_the_dtype_of_the_table() -> None:
    (table,) = PrependZeroRow().apply([np.ones((2, 3), dtype=np.float16)])
    assert table.dtype == np.float16


def test_a_padding_row_that_is_not_zero_has_no_place_in_the_format() -> None:
    table = np.array([[0, 1e-30], [1, 2], [3, 4]], dtype=np.float32)
    with pytest.raises(ConversionError, match=r"row 0 of the embedding must be zero: .* no place for a padding vector"):
        PrependZeroRow().invert([table])


def test_lstm_kernel_comes_apart_by_gate_and_by_input_and_recurrent_rows() -> None:
    size, cell = 2, 3
    kernel = np.arange(2 * size * 4 * cell, dtype=np.float32).reshape(2 * size, 4 * cell)
    rule = Rule("W_0", kernel.shape, ("input", "recurrent"), KERNEL_OPS)
    imported = import_arrays([rule], {"W_0": kernel}, "weights.hdf5")
    assert imported["input"].shape == imported["recurrent"].shape == (4 * cell, size)
    # Positions of torch's gates i, f, g, o among TensorFlow's i, j, f, o.
    for ours, theirs in enumerate((0, 2, 1, 3)):
        for unit in range(cell):
            for row in range(size):
                assert imported["input"][ours * cell + unit, row] == kernel[row, theirs * cell + unit]
                assert imported["recurrent"][ours * cell + unit, row] == kernel[size + row, theirs * cell + unit]


def test_export_is_the_inverse_of_import_bit_by_bit() -> None:
    generator = np.random.default_rng(7)
    source = {
        "W_0": generator.normal(size=(4, 12)).astype(np.float32),
        "B": generator.normal(size=12).astype(np.float32),
        "W_cnn": generator.normal(size=(1, 2, 3, 5)).astype(np.float32),
        "char_embed": generator.normal(size=(7, 3)).astype(np.float32),
    }
    rules = [
        Rule("W_0", (4, 12), ("input", "recurrent"), KERNEL_OPS),
        Rule("B", (12,), ("bias",), (SwapMiddleGates(),)),
        Rule("W_cnn", (1, 2, 3, 5), ("convolution",), (DropLeadingAxis(), Transpose())),
        Rule("char_embed", (7, 3), ("embedding",), (PrependZeroRow(),)),
    ]
    imported = import_arrays(rules, source, "weights.hdf5")
    assert {name: array.shape for name, array in imported.items()} == {
        "input": (12, 2),
        "recurrent": (12, 2),
        "bias": (12,),
        "convolution": (5, 3, 2),
        "embedding": (8, 3),
    }
    exported = export_arrays(rules, imported)
    assert list(exported) == list(source)
    for name, array in source.items():
        assert (exported[name].dtype, exported[name].shape) == (array.dtype, array.shape)
        assert exported[name].tobytes() == array.tobytes()
        assert exported[name].flags.c_contiguous


def test_imported_tensors_are_contiguous_float32() -> None:
    rule = Rule("W", (2, 3), ("weight",), (Transpose(),))
    imported = import_arrays([rule], {"W": np.ones((2, 3), dtype=np.float32)}, "weights.hdf5")
    assert imported["weight"].dtype == np.float32
    assert imported["weight"].flags.c_contiguous


def test_float16_arrays_are_read_exactly() -> None:
    half = np.array([[0.1, -65504.0, 6e-8], [1 / 3, 2.0, -0.0]], dtype=np.float16)
    imported = import_arrays([Rule("W", (2, 3), ("weight",))], {"W": half}, "weights.hdf5")
    assert imported["weight"].dtype == np.float32
    assert imported["weight"].tobytes() == half.astype(np.float32).tobytes()
    assert imported["weight"].astype(np.float16).tobytes() == half.tobytes()


def test_float64_arrays_are_rounded_to_float32() -> None:
    double = np.array([[0.1, -1e30, 1e-30], [1 / 3, 2.0, -0.0]])
    imported = import_arrays([Rule("W", (2, 3), ("weight",))], {"W": double}, "weights.hdf5")
    assert imported["weight"].dtype == np.float32
    assert imported["weight"].tobytes() == double.astype(np.float32).tobytes()


@pytest.mark.filterwarnings("error")
def test_import_lists_every_fault_at_once() -> None:
    names = ["gone", "absent", "long", "double", "whole", "nan", "infinite", "good"]
    rules = [Rule(name, (2, 3), (f"our.{name}",)) for name in names]
    source = {
        "good": np.ones((2, 3), dtype=np.float32),
        "long": np.ones((3, 2), dtype=np.float32),
        "double": np.array([[1, 2, 3], [4, 5, 1e300]], dtype=np.float64),
        "whole": np.ones((2, 3), dtype=np.int64),
        "nan": np.array([[1, 2, 3], [4, np.nan, 6]], dtype=np.float32),
        "infinite": np.array([[1, 2, 3], [4, 5, -np.inf]], dtype=np.float16),
        "stray": np.ones(5, dtype=np.float32),
        "other": np.ones((1, 4), dtype=np.float32),
    }
    with pytest.raises(ConversionError) as caught:
        import_arrays(rules, source, "some/weights.hdf5")
    assert str(caught.value) == (
        "some/weights.hdf5 does not hold the arrays that its options describe:\n"
        "  missing: `gone` (2, 3)\n"
        "  missing: `absent` (2, 3)\n"
        "  unknown: `stray` (5,)\n"
        "  unknown: `other` (1, 4)\n"
        "  shape: `long` must be (2, 3), found (3, 2)\n"
        "  values: `double` holds NaN or infinite numbers\n"
        "  type: `whole` must be float32, found int64\n"
        "  values: `nan` holds NaN or infinite numbers\n"
        "  values: `infinite` holds NaN or infinite numbers\n"
        "Check that the options file belongs to these weights."
    )


def test_export_needs_every_tensor_of_the_table() -> None:
    with pytest.raises(KeyError, match="recurrent"):
        export_arrays([Rule("W_0", (4, 12), ("input", "recurrent"), KERNEL_OPS)], {"input": np.ones((12, 2))})
