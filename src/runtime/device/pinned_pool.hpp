#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Pinned host memory for what travels between device and MPI. To pin memory takes longer than most messages,
// so a pool of the process keeps what was lent: nothing is allocated once the largest sizes have been seen.
// Plain host memory where no device backend is built in. One thread; between start and end of Kokkos.

#include <cstddef>
#include <span>

namespace orthant::runtime {

/// At least `num_bytes`, of any content. Give it back with give_back_pinned().
[[nodiscard]] std::span<std::byte> lend_pinned(std::size_t num_bytes);
/// Nothing may read or write it any more. Of an empty span: nothing.
void give_back_pinned(std::span<std::byte> memory);

} // namespace orthant::runtime
