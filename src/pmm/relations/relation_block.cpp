// SPDX-License-Identifier: Apache-2.0
#include "pmm/relations/relation_block.hpp"

#include "pmm/aggregate/row_lists.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

namespace orthant::pmm {
namespace {

using runtime::index;
using runtime::LocalColumn;
using runtime::Offset;

constexpr std::int64_t none = -1;

/// Calls visit(entry, row, relation, is_new) for all entries by rows; `is_new`: the first of its pair.
template<class Visit>
void for_each_entry(TypedEntries const& entries, Visit const& visit) {
  std::vector<std::int64_t> last_row(index(entries.num_relations), none);
  for (std::int64_t row = 0; row < entries.num_rows; ++row)
    for (auto e = entries.row_offsets[index(row)]; e < entries.row_offsets[index(row + 1)]; ++e) {
      auto const relation = entries.relations[index(e)];
      visit(index(e), row, relation, last_row[relation] != row);
      last_row[relation] = row;
    }
}

/// Writes c_ir, the number of entries of each entry's relation and row on all ranks along `columns`. It is 1 for self relations.
void count_entries(ProcessGrid const& grid, AxisSet columns, TypedEntries& entries) {
  auto const num_counted = entries.num_relations - entries.num_selves;
  std::vector<std::vector<std::size_t>> entries_of(index(num_counted));
  std::vector<std::int32_t> rows(entries.columns.size());
  for_each_entry(entries, [&](std::size_t e, std::int64_t row, std::uint16_t relation, bool) {
    rows[e] = static_cast<std::int32_t>(row);
    if (relation < num_counted) entries_of[relation].push_back(e);
  });
  entries.counts.assign(entries.columns.size(), 1);
  std::vector<std::int32_t> counts(index(entries.num_rows));
  for (auto const& of_relation : entries_of) {
    std::ranges::fill(counts, 0);
    for (auto const e : of_relation)
      ++counts[index(rows[e])];
    if (grid.size(columns) > 1) runtime::all_reduce(runtime::host, grid.over(columns), std::span(counts));
    for (auto const e : of_relation)
      entries.counts[e] = counts[index(rows[e])];
  }
}

/// Groups the items by `group_of` [items], which are in ascending order within a group.
template<class Group, class Number>
void list_groups(std::int64_t num_groups, std::vector<Group> const& group_of, Number const& number_of,
                 std::vector<Offset>& offsets, std::vector<LocalColumn>& numbers) {
  offsets.assign(index(num_groups + 1), 0);
  for (auto const group : group_of)
    ++offsets[index(group + 1)];
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  numbers.resize(group_of.size());
  auto next = offsets;
  for (std::size_t i = 0; i < group_of.size(); ++i)
    numbers[index(next[index(group_of[i])]++)] = number_of(i);
}

} // namespace

template<class T>
void list_relation_block(TypedEntries const& entries, HostRelationBlock<T>& block) {
  ORTHANT_REQUIRE(entries.counts.size() == entries.columns.size(), "entries of relations are not counted");
  block.num_rows = entries.num_rows;
  block.num_columns = entries.num_columns;
  block.num_selves = entries.num_selves;
  block.roots = entries.roots;
  auto& first = block.first_pairs;
  first.assign(index(entries.num_relations + 1), 0);
  for_each_entry(entries, [&](std::size_t, std::int64_t, std::uint16_t relation, bool is_new) {
    if (is_new) ++first[relation + std::size_t{1}];
  });
  std::partial_sum(first.begin(), first.end(), first.begin());
  auto const num_pairs = first.back();
  ORTHANT_REQUIRE(num_pairs <= std::numeric_limits<std::int32_t>::max(), num_pairs,
                  " pairs of a relation and a row in one block");
  block.rows_of_pairs.resize(index(num_pairs));
  block.inverse_counts.resize(index(num_pairs));
  std::vector<LocalColumn> pair_of(entries.columns.size()); // of each entry
  auto next = first;
  for_each_entry(entries, [&](std::size_t e, std::int64_t row, std::uint16_t relation, bool is_new) {
    if (is_new) {
      auto const pair = index(next[relation]++);
      block.rows_of_pairs[pair] = static_cast<LocalColumn>(row);
      block.inverse_counts[pair] = T{1} / static_cast<T>(entries.counts[e]);
    }
    pair_of[e] = static_cast<LocalColumn>(next[relation] - 1);
  });
  list_groups(
      num_pairs, pair_of, [&](std::size_t e) { return entries.columns[e]; }, block.pair_offsets,
      block.pair_columns);
  // The pairs of a column ascend: entries are taken in the order of their pairs.
  std::vector<LocalColumn> pairs_in_order(entries.columns.size());
  for (std::size_t pair = 0; pair < index(num_pairs); ++pair)
    std::fill(pairs_in_order.begin() + block.pair_offsets[pair],
              pairs_in_order.begin() + block.pair_offsets[pair + 1], static_cast<LocalColumn>(pair));
  list_groups(
      entries.num_columns, block.pair_columns, [&](std::size_t i) { return pairs_in_order[i]; },
      block.column_offsets, block.column_pairs);
  list_groups(
      entries.num_rows, block.rows_of_pairs, [](std::size_t pair) { return static_cast<LocalColumn>(pair); },
      block.row_offsets, block.row_pairs);
  block.one_each.resize(index(num_pairs + 1));
  std::iota(block.one_each.begin(), block.one_each.end(), Offset{0});
  block.ones.assign(index(num_pairs - first[index(entries.num_relations - entries.num_selves)]), T{1});
}

template<class T>
RelationBlock<T> make_relation_block(ProcessGrid const& grid, AxisSet columns, TypedEntries entries) {
  count_entries(grid, columns, entries);
  HostRelationBlock<T> host;
  list_relation_block(entries, host);
  return relation_block_of(host, Contents::fixed,
                           [](char const* label, auto const& list) { return pmm::to_device(label, list); });
}

void plan_relation_block(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns,
                         std::int64_t num_pairs, std::int64_t num_self_pairs, std::int64_t num_entries) {
  auto const plan_csr = [&](std::int64_t rows, std::int64_t entries) {
    step.add_array("orthant::pmm::relation_offsets", (rows + 1) * std::int64_t{sizeof(Offset)});
    step.add_array("orthant::pmm::relation_columns", entries * std::int64_t{sizeof(LocalColumn)});
  };
  plan_csr(num_pairs, num_entries);
  step.add_array("orthant::pmm::inverse_counts", step.scalar_bytes(num_pairs));
  plan_csr(num_columns, num_entries);
  plan_csr(num_rows, num_pairs);
  plan_csr(num_pairs, num_pairs);
  step.add_array("orthant::pmm::relation_ones", step.scalar_bytes(num_self_pairs));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template RelationBlock<T> make_relation_block(ProcessGrid const&, AxisSet, TypedEntries);                  \
  template void list_relation_block(TypedEntries const&, HostRelationBlock<T>&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
