#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Methods by which a host computes a sparse product. The fastest one depends on the processor and on the cache level that holds the
// operand. All give the same bits, because each number of C is one sum in the order of the columns. Each is therefore timed on the first
// products of a size, and the fastest is used afterwards.

#include "pmm/spmm/local_spmm_host.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace orthant::pmm::detail {

enum class HostWay : std::uint8_t {
  fetched_ahead,       // whole rows; the next ones are prefetched into the L2, then into the L1 cache
  fetched_near,        // whole rows; the next ones are prefetched into the L1 cache only
  strips,              // copies some columns of B at a time, few enough to stay in the L2 cache
  strips_fetched_near, // the same, with prefetches into the L1 cache
};
/// Returns "rows fetched ahead", "rows fetched near", "strips" or "strips fetched near".
[[nodiscard]] std::string name_of(HostWay way);

/// Methods that suit a product of these rows. Strips are included only if their copy, of num_columns rows, is worthwhile and takes at most
/// 16 MiB (which the calling thread then keeps).
template<class T, class B>
[[nodiscard]] std::span<HostWay const> ways_of(HostSpmm<T, B> const& product, runtime::Range rows);

/// Bytes of the copy that strips need of an operand with `num_columns` rows of `width` numbers of `number_bytes` bytes; 0 if a product
/// with `num_nonzeros` non-zeros is not computed in strips.
[[nodiscard]] std::int64_t copied_bytes(std::int64_t num_columns, std::int64_t width,
                                        std::int64_t number_bytes, std::int64_t num_nonzeros);

/// Computes these rows of the product, with all columns, by the given method. Enqueues on exec.
template<class T, class B>
void run_host_spmm(runtime::DefaultExec const& exec, HostSpmm<T, B> const& product, runtime::Range rows,
                   HostWay way);

/// Computes these rows by the fastest method. The first products of a size are timed, for which exec is fenced. Products have the same
/// size if their widths are equal and their numbers of columns and of non-zeros are equal when rounded down to a power of two.
template<class T, class B>
void run_host_spmm(runtime::DefaultExec const& exec, HostSpmm<T, B> const& product, runtime::Range rows);

/// Name of the method for products of this size; empty while methods are timed.
template<class T, class B>
[[nodiscard]] std::string chosen_way(HostSpmm<T, B> const& product, runtime::Range rows);

} // namespace orthant::pmm::detail
