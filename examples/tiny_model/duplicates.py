"""Finds documents that are nearly equal, by MinHash (Broder 1997) with locality-sensitive hashing."""

import zlib
from collections.abc import Iterable
from itertools import islice

import numpy as np
from datasketch import MinHash, MinHashLSH

SHINGLE = 5  # words
PERMUTATIONS = 64
SEED = 1
SCHEME = "affine32"
SIMILARITY = 0.7  # Jaccard's, of the sets of shingles
LARGEST = 2_000  # words of a document that are compared, its first


def sketch_of(words: Iterable[str]) -> list[int]:
    """The MinHash of a document's shingles."""
    first = [word.lower() for word in islice(words, LARGEST)]
    shingles = {" ".join(first[start : start + SHINGLE]) for start in range(max(1, len(first) - SHINGLE + 1))}
    minhash = MinHash(num_perm=PERMUTATIONS, seed=SEED, scheme=SCHEME, hashfunc=zlib.crc32)
    minhash.update_batch([shingle.encode("utf-8") for shingle in shingles])
    return [int(value) for value in minhash.hashvalues]


class Duplicates:
    """Remembers documents, and finds new documents that are nearly equal to an earlier one."""

    def __init__(self) -> None:
        """Starts without any."""
        self._index = MinHashLSH(threshold=SIMILARITY, num_perm=PERMUTATIONS)
        self._sketches: list[MinHash] = []

    def is_new(self, sketch: list[int]) -> bool:
        """Whether no earlier document is nearly equal; remembers the document then."""
        minhash = MinHash(num_perm=PERMUTATIONS, seed=SEED, scheme=SCHEME, hashvalues=np.array(sketch, dtype=np.uint64))
        if any(minhash.jaccard(self._sketches[key]) >= SIMILARITY for key in self._index.query(minhash)):
            return False
        self._index.insert(len(self._sketches), minhash)
        self._sketches.append(minhash)
        return True
