"""Which rows a step sees: a function of the seed and the step, so that nothing of it needs to be saved."""

from __future__ import annotations

import random
from collections.abc import Iterator


class Order:
    """Batches over a table: each epoch sees every row once, in an order of its own; the rows of a batch follow one another."""

    def __init__(self, num_rows: int, batch_size: int, seed: int) -> None:
        if num_rows < 1 or batch_size < 1:
            raise ValueError(f"num_rows, batch_size: expected numbers > 0, got {num_rows}, {batch_size}")
        self._num_rows, self._batch_size, self._seed = num_rows, batch_size, seed
        self._epochs: dict[int, list[int]] = {}

    def batch(self, step: int) -> list[int]:
        """The rows of a step."""
        return list(self._rows(step * self._batch_size))

    def _rows(self, first: int) -> Iterator[int]:
        for i in range(first, first + self._batch_size):
            epoch, place = divmod(i, self._num_rows)
            if epoch not in self._epochs:
                rows = random.Random(f"{self._seed}/epoch {epoch}").sample(range(self._num_rows), self._num_rows)
                self._epochs = {e: kept for e, kept in self._epochs.items() if e == epoch - 1} | {epoch: rows}
            yield self._epochs[epoch][place]
