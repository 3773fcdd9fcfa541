#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Memory for those who know no arrays: results of collectives that are kept (comm/call_tape.hpp).

#include "runtime/arrays/huge_pages.hpp"
#include "runtime/machine/process_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace orthant::runtime {

/// That many zeros in the memory of kernels, or on the host (mapped), under that label of Kokkos. Fences.
[[nodiscard]] inline std::shared_ptr<std::byte> make_bytes(char const* label, std::int64_t num_bytes,
                                                           bool on_device) {
  MappedArrays const mapped;
  auto const count = static_cast<std::size_t>(num_bytes);
  auto const share = [](auto const& view) {
    return std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(view.data()), [view](std::byte*) {});
  };
  constexpr auto kernels_run_on_host =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, DefaultExec::memory_space>::accessible;
  if (on_device || kernels_run_on_host) return share(make_zeros<char>(label, count));
  return share(Kokkos::View<char*, Kokkos::HostSpace>(std::string(label), count));
}

} // namespace orthant::runtime
