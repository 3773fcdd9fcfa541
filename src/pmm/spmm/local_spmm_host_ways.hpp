#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The ways in which a host computes a sparse product. Which one is fastest depends on the processor and on which
// cache level holds the operand; the bits are the same, since each number of C is one sum in the order of the
// columns in all of them. So each is timed on the first products of a size, and the fastest is kept.

#include "pmm/spmm/local_spmm_host.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace orthant::pmm::detail {

enum class HostWay : std::uint8_t {
  fetched_ahead,       // whole rows; those that lie ahead are prefetched, first into the second cache level
  fetched_near,        // whole rows; prefetched into the first level only
  strips,              // a copy of some columns of B at a time, narrow enough to stay in a near cache
  strips_fetched_near, // the same, with prefetches into the first level
};
/// "rows fetched ahead", "rows fetched near", "strips" or "strips fetched near".
[[nodiscard]] std::string name_of(HostWay way);

/// The ways that suit a product of these rows: strips only if their copy, of num_columns rows, pays and takes at
/// most 16 MiB (held by the calling thread from then on).
template<class T, class B>
[[nodiscard]] std::span<HostWay const> ways_of(HostSpmm<T, B> const& product, runtime::Range rows);

/// Bytes of the copy that strips make of an operand of `num_columns` rows, each of `width` numbers of `number_bytes`; 0 if a product
/// with so many non-zeros is not computed in strips.
[[nodiscard]] std::int64_t copied_bytes(std::int64_t num_columns, std::int64_t width,
                                        std::int64_t number_bytes, std::int64_t num_nonzeros);

/// The rows of the product, all of its columns. Enqueues on exec.
template<class T, class B>
void run_host_spmm(runtime::DefaultExec const& exec, HostSpmm<T, B> const& product, runtime::Range rows,
                   HostWay way);

/// The same the fastest way. The first products of a size are timed, and fence exec for that; products are of one
/// size if their widths are equal and their numbers of columns and of non-zeros have the same power of two.
template<class T, class B>
void run_host_spmm(runtime::DefaultExec const& exec, HostSpmm<T, B> const& product, runtime::Range rows);

/// The way that products of this size take; empty while ways are being timed.
template<class T, class B>
[[nodiscard]] std::string chosen_way(HostSpmm<T, B> const& product, runtime::Range rows);

} // namespace orthant::pmm::detail
