#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Copies of host arrays for kernels, and of device arrays for the host.

#include "graph/store/store_reader.hpp"
#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace orthant::models {

/// Device array of T with the elements of a host array, converted one by one.
template<class T, class Source>
[[nodiscard]] runtime::Vector<T> to_vector(char const* label, std::span<Source const> source) {
  runtime::Vector<T> result(Kokkos::view_alloc(Kokkos::WithoutInitializing, std::string(label)),
                            source.size());
  auto const mirror = Kokkos::create_mirror_view(result);
  for (std::size_t i = 0; i < source.size(); ++i)
    mirror(i) = static_cast<T>(source[i]);
  Kokkos::deep_copy(result, mirror);
  return result;
}
template<class T, class Source>
[[nodiscard]] runtime::Vector<T> to_vector(char const* label, std::vector<Source> const& source) {
  return to_vector<T>(label, std::span<Source const>(source));
}

/// Device copy of a block of a store.
template<class T>
[[nodiscard]] runtime::CsrMatrix<T> to_csr(graph::CsrBlock const& block) {
  return {block.rows.size(), block.columns_range.size(),
          to_vector<runtime::Offset>("orthant::models::csr/row_offsets", block.row_offsets),
          to_vector<runtime::LocalColumn>("orthant::models::csr/columns", block.columns),
          to_vector<T>("orthant::models::csr/values", block.values)};
}

/// The host array itself if kernels can access it, otherwise a device copy. `source` must outlive the result and must not change.
template<class T>
[[nodiscard]] runtime::Vector<T> lent(char const* label, std::vector<T>& source) {
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace,
                                           typename runtime::DefaultExec::memory_space>::accessible)
    return runtime::Vector<T>(source.data(), source.size());
  else
    return to_vector<T>(label, source);
}

/// The same for a row-major matrix.
template<class T>
[[nodiscard]] runtime::Matrix<T> lent_matrix(char const* label, std::vector<T>& source, std::size_t num_rows,
                                             std::size_t num_columns) {
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace,
                                           typename runtime::DefaultExec::memory_space>::accessible) {
    return runtime::Matrix<T>(source.data(), num_rows, num_columns);
  } else {
    runtime::Matrix<T> result(std::string(label), num_rows, num_columns);
    auto const mirror = Kokkos::create_mirror_view(result);
    std::copy(source.begin(), source.end(), mirror.data());
    Kokkos::deep_copy(result, mirror);
    return result;
  }
}

/// Host copy of a device array, or the array itself if it is in host memory. `values` may be read by a thread that must not use Views.
template<class T>
class HostNumbers {
 public:
  HostNumbers() = default;
  explicit HostNumbers(runtime::Vector<T> const& source)
      : memory_(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), source)) {}

  [[nodiscard]] std::span<T const> values() const { return {memory_.data(), memory_.extent(0)}; }

 private:
  runtime::Vector<T, Kokkos::DefaultHostExecutionSpace> memory_;
};

} // namespace orthant::models
