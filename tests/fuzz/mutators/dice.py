"""The random decisions of one input, with notes of what they did."""

import random
from typing import TypeVar

Choice = TypeVar("Choice", bound=str)


class Dice(random.Random):
    """Seeded by the run's seed, the target and the input's number.

    Attributes:
        notes: what was changed, for the report.
    """

    def __init__(self, seed: str) -> None:
        """Takes any string."""
        super().__init__(seed)
        self.notes: list[str] = []

    def choose(self, *names: Choice) -> Choice:
        """Chooses one of some names, and notes it."""
        name = self.choice(names)
        self.notes.append(name)
        return name

    def span(self, size: int) -> tuple[int, int]:
        """A range within `size` bytes, short or long: its start and its end."""
        start = self.randrange(size + 1)
        return start, min(size, start + int(2 ** self.uniform(0, 12)))
