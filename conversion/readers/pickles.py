"""Pickles as data: reads the operations by which torch.save names its tensors, and runs none of them.

A pickle is a program for a machine with a stack, a memo and calls of any Python function. Here a function is only a
name, and the call of one is a record (`Call`); so reading costs no more than the pickle is long. Whatever a state dict
does not need is refused: other names, other operations, keys that are no text.
"""

import pickletools
from dataclasses import dataclass
from typing import Any, BinaryIO

from ..errors import shortened

ORDERED_DICT = "collections.OrderedDict"
CALLS = {f"torch._utils._rebuild_{name}" for name in ("tensor", "tensor_v2", "parameter")}
VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
ARGUMENTS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING"}
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
MARK = object()


class ForeignName(ValueError):
    """A pickle names something that is not a tensor."""


@dataclass(frozen=True, eq=False)
class Name:
    """What a pickle wants to import."""

    dotted: str


@dataclass(frozen=True, eq=False)
class Call:
    """What a pickle wants to call."""

    function: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Stored:
    """What a pickle says is stored elsewhere."""

    key: Any


def read_pickle(file: BinaryIO) -> Any:
    """Reads one pickle, and leaves the file after its end.

    Args:
        file: a bounded piece of memory, because a pickle may claim any length.

    Returns:
        a tree of Python's own values with `Name`, `Call` and `Stored` in it.

    Raises:
        ForeignName: if the pickle names anything but tensors.
        ValueError: if it is damaged, or does what no state dict does.
    """
    machine = _Machine()
    try:
        for operation, argument, _ in pickletools.genops(file):
            machine.run(operation.name, argument)
        (value,) = machine.stack
    except ForeignName:
        raise
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError("it is no pickle of tensors alone") from error
    return value


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """Runs one operation."""
        if name in ("PROTO", "STOP"):
            return
        if name in ARGUMENTS:
            self.stack.append(argument)
        elif name in VALUES:
            self.stack.append(VALUES[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name == "GLOBAL":
            self.stack.append(_checked_name(argument))
        else:
            self.build(name)

    def build(self, name: str) -> None:
        """Runs an operation that puts values together."""
        if name == "MARK":
            self.stack.append(MARK)
        elif name in TUPLES:
            self.stack.append(self.pop(TUPLES[name]))
        elif name == "TUPLE":
            self.stack.append(self.pop_to_mark())
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            self.stack.append({} if name == "EMPTY_DICT" else [])
        elif name in ("SETITEM", "SETITEMS"):
            self.fill(self.pop(2) if name == "SETITEM" else self.pop_to_mark())
        elif name in ("APPEND", "APPENDS"):
            items = self.pop(1) if name == "APPEND" else self.pop_to_mark()
            _expect(list, self.stack[-1]).extend(items)
        elif name == "BINPERSID":
            self.stack.append(Stored(self.stack.pop()))
        elif name == "REDUCE":
            function, arguments = self.pop(2)
            self.stack.append(_call(_expect(Name, function).dotted, _expect(tuple, arguments)))
        elif name == "BUILD":
            self.stack.pop()  # attributes of a dictionary: the versions of its modules
            _expect(dict, self.stack[-1])
        else:
            raise ValueError(f"the operation {name}")

    def pop(self, count: int) -> tuple[Any, ...]:
        """Takes values from the top of the stack."""
        items = tuple(self.stack[len(self.stack) - count :])
        if len(items) != count or MARK in items:
            raise IndexError("the stack is empty")
        del self.stack[len(self.stack) - count :]
        return items

    def pop_to_mark(self) -> tuple[Any, ...]:
        """Takes all values above the last mark."""
        items = []
        while (item := self.stack.pop()) is not MARK:
            items.append(item)
        return tuple(reversed(items))

    def fill(self, items: tuple[Any, ...]) -> None:
        """Puts keys and values into the dictionary on top of the stack."""
        target = _expect(dict, self.stack[-1])
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_expect((str, int), key)] = value


def _checked_name(argument: str) -> Name:
    dotted = argument.replace(" ", ".")
    is_storage = dotted.startswith(("torch.", "torch.cuda.")) and dotted.endswith("Storage")
    if dotted != ORDERED_DICT and dotted not in CALLS and not is_storage:
        raise ForeignName(shortened(dotted))
    return Name(dotted)


def _call(function: str, arguments: tuple[Any, ...]) -> Any:
    if function == ORDERED_DICT and arguments == ():
        return {}
    if function not in CALLS:
        raise ValueError(f"a call of {function}")
    return Call(function, arguments)


def _expect(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} where {kind} must be")
    return value
