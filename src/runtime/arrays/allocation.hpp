#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Device and host arrays whose lengths change from batch to batch. Host memory is mapped, so that the system gets the memory of freed
// arrays back.

#include "runtime/arrays/growing_list.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/machine/process_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace orthant::runtime {

/// Vector of `count` zeros. Requests huge pages for host memory. Fences.
template<class T>
[[nodiscard]] Vector<T> make_zeros(std::string const& label, std::size_t count) {
  if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace,
                                            typename DefaultExec::memory_space>::accessible)
    return Vector<T>(label, count);
  Vector<T> result(Kokkos::view_alloc(Kokkos::WithoutInitializing, label), count);
  advise_huge_pages(result.data(), count * sizeof(T));
  Kokkos::deep_copy(result, T{0});
  return result;
}

/// Buffer that grows and never shrinks. The first reserve() allocates exactly the requested length; later growth adds some room
/// (grown_length()).
template<class T>
class GrowingVector {
 public:
  explicit GrowingVector(std::string label) : label_(std::move(label)) {}

  /// Vector of at least `num_elements` elements with undefined content. The Vector returned before must not be used afterwards.
  [[nodiscard]] Vector<T> const& reserve(std::int64_t num_elements) {
    auto const wanted = static_cast<std::size_t>(num_elements);
    if (wanted > numbers_.extent(0)) {
      MappedArrays const mapped;
      auto const length = numbers_.extent(0) == 0 ? wanted : grown_length(wanted);
      numbers_ = {}; // frees the old memory before the new memory is allocated
      numbers_ = make_zeros<T>(label_, length);
    }
    return numbers_;
  }

  [[nodiscard]] std::int64_t num_bytes() const {
    return static_cast<std::int64_t>(numbers_.extent(0) * sizeof(T));
  }

 private:
  std::string label_;
  Vector<T> numbers_;
};

// Memory for results of collectives that are kept (comm/call_tape.hpp). The caller needs no Kokkos types.

/// `num_bytes` zero bytes in the memory of kernels (`on_device`) or mapped on the host. `label` is the Kokkos label. Fences.
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
