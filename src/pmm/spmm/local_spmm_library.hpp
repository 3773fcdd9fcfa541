#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A fixed block's product on a device: Orthant's kernel or the vendor's library, whichever is faster here.
// The library has several algorithms (vendor_spmm.hpp) and needs a number a non-zero; the scales of rows and
// columns are multiplied into those once:
//
//   C := A B,   a_ij = r_i v_ij s_j
//
// Defined in device builds only (local_spmm_library.cpp).

#include "pmm/spmm/local_spmm.hpp"

#include <functional>
#include <memory>
#include <string>

namespace orthant::pmm::detail {

template<class T>
class LibrarySpmm {
 public:
  /// Null where the library cannot take the block: row groups, self loops apart, no non-zeros, 2^31 or
  /// more of them or of rows, or, in fp32, a row of 2^24 or more.
  [[nodiscard]] static std::shared_ptr<LibrarySpmm> create(SparseBlock<T> const& block);

  /// C := A B. `own_kernel` enqueues the same on exec. The first call of each width runs it and all
  /// algorithms of the library, which waits and allocates: 4 bytes a row and one T a non-zero, kept where the
  /// library won and not tried where half of the free memory would not hold them. Later calls neither wait
  /// nor allocate. One host thread at a time.
  void apply(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c,
             std::function<void()> const& own_kernel);

  /// What apply() chose for a width: "own" or the library's algorithm; "" where it has not been asked yet.
  [[nodiscard]] std::string choice(std::size_t width) const;

  /// The library's fastest algorithm for these operands, whether or not the own kernel is faster; no way
  /// (`run` empty) where the library or the memory has none. Waits and allocates. For benchmarks.
  [[nodiscard]] SpmmWay fastest(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c);

  LibrarySpmm(LibrarySpmm const&) = delete;
  LibrarySpmm& operator=(LibrarySpmm const&) = delete;
  ~LibrarySpmm();

 private:
  struct Prepared;
  explicit LibrarySpmm(SparseBlock<T> const& block);
  std::unique_ptr<Prepared> prepared_;
};

} // namespace orthant::pmm::detail
