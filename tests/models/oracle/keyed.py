# SPDX-License-Identifier: Apache-2.0
"""Philox, the keyed bijection and the vertex sampler, from their descriptions; see oracle.py."""

import numpy as np

MASK32, MASK64 = 2**32 - 1, 2**64 - 1
DROPOUT, SAMPLING = 2, 3  # runtime::Purpose


def philox4x32(counter, key, num_rounds=10):
    c0, c1, c2, c3 = counter
    k0, k1 = key & MASK32, key >> 32
    for _ in range(num_rounds):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


def philox2x64(counter, key, num_rounds):
    c0, c1 = counter
    for _ in range(num_rounds):
        p = 0xD2B74407B1CE6E93 * c0
        c0, c1 = (p >> 64) ^ key ^ c1, p & MASK64
        key = (key + 0x9E3779B97F4A7C15) & MASK64
    return c0, c1


# The published known answers of Philox for counter 0 and key 0.
assert philox4x32((0, 0, 0, 0), 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
assert philox2x64((0, 0), 0, 10) == (0xCA00A0459843D731, 0x66C24222C9A845B5)


def stream_key(seed, purpose, step, layer):
    w = philox4x32((step & MASK32, step >> 32, purpose, layer), seed)
    return w[0] | w[1] << 32


def dropout_mask(seed, step, layer, vertices, width, probability):
    """0 with that probability, else 1 / (1 - p); [vertices x width]."""
    key, threshold = stream_key(seed, DROPOUT, step, layer), int(probability * 2**32 + 0.5)
    mask = np.zeros((len(vertices), width))
    for row, vertex in enumerate(vertices):
        for feature in range(width):
            block = feature >> 2
            words = philox4x32((block & MASK32, block >> 32, int(vertex) & MASK32, int(vertex) >> 32), key)
            mask[row, feature] = 0 if words[feature & 3] < threshold else 1 / (1 - probability)
    return mask


class Bijection:
    """A permutation of [0, n): a generalised Feistel network with cycle walking."""

    def __init__(self, n, key):
        self.n, self.key = n, key
        self.shift = max(1, (n.bit_length() - 1) // 2)
        self.b = 1 << self.shift
        self.a = -(-n // self.b)
        rounds = max(6, -(-32 // self.shift))
        self.num_rounds = rounds + rounds % 2

    def _scramble(self, x, number, bound):
        return philox2x64((x, number), self.key, 6)[0] * bound >> 64

    def __call__(self, i):
        while True:
            left, right = divmod(i, self.b)
            for number in range(0, self.num_rounds, 2):
                left = (left + self._scramble(right, number, self.a)) % self.a
                right = (right + self._scramble(left, number + 1, self.b)) % self.b
            i = left * self.b + right
            if i < self.n:
                return i


def balanced_range(count, num_parts, part):
    def begin(i):
        return i * (count // num_parts) + min(i, count % num_parts)
    return range(begin(part), begin(part + 1))


class VertexSampler:
    """strata: sizes; stratum_of: by vertex; num_batches: of an epoch."""

    def __init__(self, seed, batch_size, batches_per_step, train_fraction, num_vertices, train):
        self.seed, self.step_batches = seed, batches_per_step
        self.stratum_of = np.zeros(num_vertices, dtype=int)
        if train_fraction is None:
            self.members = [np.arange(num_vertices)]
            wanted = -(-num_vertices // batch_size)
        else:
            trained = min(max(int(train_fraction * batch_size + 0.5), 1), batch_size - 1)
            self.num_others = batch_size - trained
            others = np.setdiff1d(np.arange(num_vertices), train)
            self.members = [np.sort(train), others]
            self.stratum_of[others] = 1
            wanted = -(-len(train) // trained)
            served = len(others) // self.num_others
            self.round = served if served < batches_per_step else served // batches_per_step * batches_per_step
        self.strata = [len(members) for members in self.members]
        self.num_batches = -(-wanted // batches_per_step) * batches_per_step

    def _pick(self, stratum, epoch, round_, places):
        key = stream_key(self.seed, SAMPLING, epoch, 2 * round_ + stratum)
        order = Bijection(self.strata[stratum], key)
        return [self.members[stratum][order(place)] for place in places]

    def draw(self, epoch, batch):
        """The vertices, and how many of each stratum they are."""
        picked = [self._pick(0, epoch, 0, balanced_range(self.strata[0], self.num_batches, batch))]
        if len(self.members) == 2:
            begin = batch % self.round * self.num_others
            picked.append(self._pick(1, epoch, batch // self.round, range(begin, begin + self.num_others)))
        return np.array(sum(picked, [])), [len(vertices) for vertices in picked]
