#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of host processors (edge_kernels_host.hpp) on blocks of edges.

#include "pmm/edges/edge_block.hpp"
#include "pmm/edges/edge_kernels_host.hpp"
#include "pmm/kernels/host_parts.hpp"

namespace orthant::pmm {

[[nodiscard]] inline host_edges::HostEdges lists_of_rows(EdgeBlock const& block, Heads const& heads) {
  return {block.row_offsets.data(), block.columns.data(), nullptr, heads.count, heads.width};
}
[[nodiscard]] inline host_edges::HostEdges lists_of_columns(EdgeBlock const& block, Heads const& heads) {
  return {block.column_offsets.data(), block.rows.data(), block.places.data(), heads.count, heads.width};
}

/// kernel(arguments, begin, end) for parts that cover all lists; nothing of no heads. Enqueues on exec; does not fence.
template<class Arguments>
void for_each_list(DefaultExec const& exec, char const* label, std::int64_t num_lists, std::int64_t num_heads,
                   void (*kernel)(Arguments const&, std::int64_t, std::int64_t), Arguments const& arguments) {
  if (num_lists * num_heads == 0) return;
  for_each_part(exec, label, num_lists,
                [=](std::int64_t begin, std::int64_t end) { kernel(arguments, begin, end); });
}

} // namespace orthant::pmm
