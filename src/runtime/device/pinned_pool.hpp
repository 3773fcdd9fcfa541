#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Pool of pinned host memory for messages between device and MPI. Pinning memory takes longer than most messages, so the pool keeps
// returned memory: nothing is allocated once the largest sizes have been used. Plain host memory if no device backend is built in. For one
// thread, between start and end of Kokkos.

#include <cstddef>
#include <span>

namespace orthant::runtime {

/// Borrows at least `num_bytes` of undefined content. Return the memory with give_back_pinned().
[[nodiscard]] std::span<std::byte> lend_pinned(std::size_t num_bytes);
/// Returns borrowed memory, which must not be used afterwards. An empty span does nothing.
void give_back_pinned(std::span<std::byte> memory);

} // namespace orthant::runtime
