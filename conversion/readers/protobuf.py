"""Protobuf messages, as far as TensorFlow's checkpoints need them: numbers, bytes and messages, by field number."""


class Reader:
    """Takes bytes from the front; raises ValueError if there are too few."""

    def __init__(self, data: bytes) -> None:
        """Starts in front."""
        self.data = data
        self.place = 0

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self.place == len(self.data)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if not 0 <= size <= len(self.data) - self.place:
            raise ValueError(f"{size} bytes must follow, found {len(self.data) - self.place}")
        self.place += size
        return self.data[self.place - size : self.place]

    def varint(self) -> int:
        """A number in groups of seven bits, lowest first; a byte's highest bit says that more follow."""
        number = 0
        for shift in range(0, 64, 7):
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number has more than 64 bits")


class Message:
    """The fields of a protobuf message by number; an absent field is 0, as in protobuf."""

    def __init__(self, data: bytes) -> None:
        """Takes the fields apart; raises ValueError if they are damaged."""
        self._fields: dict[int, list[int | bytes]] = {}
        reader = Reader(data)
        while not reader.is_at_end:
            field, wire_type = divmod(reader.varint(), 8)
            value: int | bytes
            if wire_type == 0:
                value = reader.varint()
            elif wire_type == 2:
                value = reader.take(reader.varint())
            elif wire_type == 5:
                value = int.from_bytes(reader.take(4), "little")
            else:
                raise ValueError(f"a protobuf field has the unexpected wire type {wire_type}")
            self._fields.setdefault(field, []).append(value)

    def number(self, field: int) -> int:
        """The last number of a field."""
        value = self._fields.get(field, [0])[-1]
        if not isinstance(value, int):
            raise ValueError(f"protobuf field {field} must be a number")
        return value

    def parts(self, field: int) -> list[bytes]:
        """The bytes of a repeated field: messages or strings."""
        values = self._fields.get(field, [])
        parts = [value for value in values if isinstance(value, bytes)]
        if len(parts) != len(values):
            raise ValueError(f"protobuf field {field} must be a message")
        return parts

    def messages(self, field: int) -> list["Message"]:
        """The messages of a repeated field."""
        return [Message(part) for part in self.parts(field)]

    def text(self, field: int) -> str:
        """The last string of a field."""
        return self.parts(field)[-1].decode("utf-8") if self.parts(field) else ""
