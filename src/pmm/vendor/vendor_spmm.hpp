#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Products of sparse and dense matrices with the vendor's library (cuSPARSE or hipSPARSE), on raw device pointers and a stream. Dense
// operands are row-major. The library may add the terms of a row in a different order in each run. Needs neither Kokkos nor MPI.

#include "runtime/unique_handle.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace orthant::pmm::vendor {

/// A sparse matrix in device memory. Offsets have 32 bits like the columns, because not all versions of the libraries accept two
/// different types.
template<class T>
struct CsrOperand {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::int64_t num_nonzeros = 0;
  std::int32_t const* row_offsets = nullptr; // [num_rows + 1], the first 0
  std::int32_t const* columns = nullptr;     // [num_nonzeros]
  T const* values = nullptr;                 // [num_nonzeros]
};

/// Algorithms that accept CSR and row-major operands. The vendors recommend the first; the fastest one depends on version, device, matrix
/// and width.
enum class SpmmAlgorithm : std::uint8_t { csr_alg2, csr_alg3, standard };
inline constexpr std::array spmm_algorithms{SpmmAlgorithm::csr_alg2, SpmmAlgorithm::csr_alg3,
                                            SpmmAlgorithm::standard};

/// Returns the libraries' name without its prefix: "CSR_ALG2", "CSR_ALG3" or "DEFAULT".
[[nodiscard]] char const* name_of(SpmmAlgorithm algorithm);

/// C := A B for one A and one width, prepared once. The arrays of A are borrowed: they must stay valid and unchanged. Use from one host
/// thread at a time.
template<class T>
class Spmm {
 public:
  /// Allocates the library's buffer on the current device. `b` [num_columns x width] and `c` [num_rows x width] are operands as for
  /// apply(); `c` may be overwritten. Rows, columns, non-zeros and width must be positive. Throws Error if the library reports one: some
  /// of its versions do not support some algorithms.
  Spmm(void* stream, SpmmAlgorithm algorithm, CsrOperand<T> const& a, std::int64_t width, T const* b, T* c);

  /// Enqueues on `stream`. Does not wait. b and c must be contiguous and must not overlap.
  void apply(void* stream, T const* b, T* c) const;

 private:
  struct DestroyLibrary {
    void operator()(void* handle) const noexcept;
  };
  struct DestroyMatrix {
    void operator()(void* matrix) const noexcept;
  };
  struct FreeMemory {
    void operator()(void* memory) const noexcept;
  };
  SpmmAlgorithm algorithm_;
  std::int64_t num_rows_;
  std::int64_t num_columns_;
  std::int64_t width_;
  runtime::UniqueHandle<void*, nullptr, DestroyLibrary> library_;
  runtime::UniqueHandle<void*, nullptr, FreeMemory> buffer_;
  runtime::UniqueHandle<void*, nullptr, DestroyMatrix> matrix_;
};

/// Bytes of the current device's memory that are free now.
[[nodiscard]] std::size_t free_device_bytes();

extern template class Spmm<float>;
extern template class Spmm<double>;

} // namespace orthant::pmm::vendor
