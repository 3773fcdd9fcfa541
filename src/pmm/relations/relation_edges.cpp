// SPDX-License-Identifier: Apache-2.0
#include "pmm/relations/relation_edges.hpp"

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

/// Lists of pairs by relation, and the numbers of pairs before each relation.
struct PairLists {
  std::vector<LocalColumn> ends; // row or column of each pair, ascending within a relation
  std::vector<std::int64_t> first{0};

  void add(std::vector<LocalColumn> const& of_relation) {
    ends.insert(ends.end(), of_relation.begin(), of_relation.end());
    first.push_back(std::ssize(ends));
    ORTHANT_REQUIRE(first.back() <= std::numeric_limits<LocalColumn>::max(), first.back(),
                    " pairs of a relation and a vertex in one block");
  }
};

/// Edges by relation: their indices in the entries, by rows within a relation.
std::vector<std::vector<std::int64_t>> by_relation(TypedEntries const& entries) {
  std::vector<std::vector<std::int64_t>> lists(index(entries.num_relations));
  for (std::size_t e = 0; e < entries.relations.size(); ++e)
    lists[entries.relations[e]].push_back(static_cast<std::int64_t>(e));
  return lists;
}

std::vector<LocalColumn> rows_of(TypedEntries const& entries) {
  std::vector<LocalColumn> rows(entries.columns.size());
  for (std::int64_t i = 0; i < entries.num_rows; ++i)
    std::fill(rows.begin() + entries.row_offsets[index(i)], rows.begin() + entries.row_offsets[index(i + 1)],
              static_cast<LocalColumn>(i));
  return rows;
}

/// Source pairs, and in `of_entries` the pair of each entry.
PairLists sources_of(TypedEntries const& entries, std::vector<std::vector<std::int64_t>> const& lists,
                     std::vector<LocalColumn>& of_entries) {
  PairLists pairs;
  std::vector<LocalColumn> numbers(index(entries.num_columns), -1);
  of_entries.resize(entries.columns.size());
  for (auto const& list : lists) {
    std::vector<LocalColumn> columns;
    for (auto const e : list)
      if (auto& number = numbers[index(entries.columns[index(e)])]; number < 0) {
        number = 0;
        columns.push_back(entries.columns[index(e)]);
      }
    std::ranges::sort(columns);
    for (std::size_t k = 0; k < columns.size(); ++k)
      numbers[index(columns[k])] = static_cast<LocalColumn>(pairs.ends.size() + k);
    for (auto const e : list)
      of_entries[index(e)] = numbers[index(entries.columns[index(e)])];
    for (auto const column : columns)
      numbers[index(column)] = -1;
    pairs.add(columns);
  }
  return pairs;
}

/// Target pairs from the lists of the rows' relations.
PairLists listed_targets_of(TypedEntries const& entries) {
  std::vector<std::vector<LocalColumn>> rows(index(entries.num_relations));
  for (std::int64_t i = 0; i < entries.num_rows; ++i)
    for (auto k = index(entries.relation_offsets[index(i)]);
         k < index(entries.relation_offsets[index(i) + 1]); ++k)
      rows[entries.row_relations[k]].push_back(static_cast<LocalColumn>(i));
  PairLists pairs;
  for (auto const& of_relation : rows)
    pairs.add(of_relation);
  return pairs;
}

/// Target pairs of all ranks along `columns`.
PairLists targets_of(ProcessGrid const& grid, AxisSet columns, TypedEntries const& entries,
                     std::vector<LocalColumn> const& rows,
                     std::vector<std::vector<std::int64_t>> const& lists) {
  if (!entries.relation_offsets.empty()) return listed_targets_of(entries);
  PairLists pairs;
  std::vector<std::int32_t> is_target(index(entries.num_rows));
  for (auto const& list : lists) {
    std::ranges::fill(is_target, 0);
    for (auto const e : list)
      is_target[index(rows[index(e)])] = 1;
    if (grid.size(columns) > 1)
      runtime::all_reduce(runtime::host, grid.over(columns), std::span(is_target), runtime::Reduction::max);
    std::vector<LocalColumn> found;
    for (std::size_t i = 0; i < is_target.size(); ++i)
      if (is_target[i] != 0) found.push_back(static_cast<LocalColumn>(i));
    pairs.add(found);
  }
  return pairs;
}

/// Numbers of the target pairs by row: the rows' first pairs, and the number of each pair of `targets`.
struct TargetNumbers {
  std::vector<std::int64_t> first; // [rows + 1]
  std::vector<LocalColumn> numbers;

  TargetNumbers(std::int64_t num_rows, PairLists const& targets)
      : first(index(num_rows + 1)),
        numbers(targets.ends.size()) {
    for (auto const row : targets.ends)
      ++first[index(row) + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    auto next = first;
    for (std::size_t k = 0; k < numbers.size(); ++k)
      numbers[k] = static_cast<LocalColumn>(next[index(targets.ends[k])]++);
  }
};

/// The pattern of rows from the pattern of pairs: they have the same edges, whose rows are other numbers.
EdgeBlock block_of_rows(EdgeBlock const& of_pairs, std::vector<Offset> const& row_offsets,
                        std::vector<LocalColumn> const& row_of_pair) {
  auto block = of_pairs;
  block.num_rows = std::ssize(row_offsets) - 1;
  block.row_offsets = pmm::to_device("orthant::pmm::relation_row_offsets", row_offsets);
  auto const pairs = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), of_pairs.rows);
  std::vector<LocalColumn> rows(pairs.extent(0));
  for (std::size_t e = 0; e < rows.size(); ++e)
    rows[e] = row_of_pair[index(pairs(e))];
  block.rows = pmm::to_device("orthant::pmm::relation_rows", rows);
  return block;
}

} // namespace

RelationEdges make_relation_edges(ProcessGrid const& grid, AxisSet columns, TypedEntries const& entries,
                                  std::vector<std::int64_t> const& row_ids,
                                  std::vector<std::int64_t> const& column_ids) {
  ORTHANT_REQUIRE(entries.num_selves == 0, "attention has no self relations");
  auto const rows = rows_of(entries);
  auto const lists = by_relation(entries);
  std::vector<LocalColumn> source_of_entry;
  auto const sources = sources_of(entries, lists, source_of_entry);
  auto const targets = targets_of(grid, columns, entries, rows, lists);
  TargetNumbers const numbers(entries.num_rows, targets);
  auto const num_targets = targets.ends.size();

  std::vector<Offset> offsets(num_targets + 1);
  std::vector<LocalColumn> row_of_pair(num_targets);
  std::vector<std::int64_t> target_ids(row_ids.empty() ? 0 : num_targets), source_ids;
  std::vector<LocalColumn> pair_of_row(index(entries.num_rows)); // of one relation
  auto const num_relations = entries.num_relations;
  for (std::size_t r = 0; r < index(num_relations); ++r) {
    for (auto k = index(targets.first[r]); k < index(targets.first[r + 1]); ++k) {
      auto const pair = index(numbers.numbers[k]);
      auto const row = index(targets.ends[k]);
      pair_of_row[row] = numbers.numbers[k];
      row_of_pair[pair] = targets.ends[k];
      if (!row_ids.empty()) target_ids[pair] = row_ids[row] * num_relations + static_cast<std::int64_t>(r);
    }
    for (auto const e : lists[r])
      ++offsets[index(pair_of_row[index(rows[index(e)])]) + 1];
  }
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::vector<LocalColumn> edges(entries.columns.size());
  for (std::size_t r = 0; r < index(num_relations); ++r) {
    for (auto k = index(targets.first[r]); k < index(targets.first[r + 1]); ++k)
      pair_of_row[index(targets.ends[k])] = numbers.numbers[k];
    // The edges of a pair are next to each other in the list, in the order of their columns.
    LocalColumn last_row = -1;
    for (std::int64_t place = 0; auto const e : lists[r]) {
      auto const row = rows[index(e)];
      if (row != last_row) place = offsets[index(pair_of_row[index(row)])];
      last_row = row;
      edges[index(place++)] = source_of_entry[index(e)];
    }
  }
  std::vector<Offset> row_offsets;
  for (auto const pair : numbers.first)
    row_offsets.push_back(offsets[index(pair)]);
  for (auto const column : sources.ends)
    if (!column_ids.empty()) source_ids.push_back(column_ids[index(column)]);

  CsrMatrix<double> const csr{std::ssize(row_of_pair),
                              std::ssize(sources.ends),
                              pmm::to_device("orthant::pmm::relation_offsets", offsets),
                              pmm::to_device("orthant::pmm::relation_columns", edges),
                              {}};
  RelationEdges block;
  block.of_pairs = make_edge_block(csr);
  block.of_rows = block_of_rows(block.of_pairs, row_offsets, row_of_pair);
  block.num_columns = entries.num_columns;
  block.first_sources = sources.first;
  block.source_columns = pmm::to_device("orthant::pmm::source_columns", sources.ends);
  block.first_targets = targets.first;
  block.target_rows = pmm::to_device("orthant::pmm::target_rows", targets.ends);
  block.target_pairs = pmm::to_device("orthant::pmm::target_pairs", numbers.numbers);
  block.target_ids = pmm::to_device("orthant::pmm::target_ids", target_ids);
  block.source_ids = pmm::to_device("orthant::pmm::source_ids", source_ids);
  return block;
}

void plan_relation_edges(StepPlan& step, std::int64_t num_rows, RelationEdgeCounts const& counts) {
  auto const add = [&](char const* label, std::int64_t count, std::size_t bytes) {
    step.add_array(label, count * static_cast<std::int64_t>(bytes));
  };
  add("orthant::pmm::relation_offsets", counts.targets + 1, sizeof(Offset));
  add("orthant::pmm::relation_columns", counts.edges, sizeof(LocalColumn));
  plan_edge_block(step, {counts.targets, counts.sources, counts.edges});
  add("orthant::pmm::relation_row_offsets", num_rows + 1, sizeof(Offset));
  add("orthant::pmm::relation_rows", counts.edges, sizeof(LocalColumn));
  add("orthant::pmm::source_columns", counts.sources, sizeof(LocalColumn));
  add("orthant::pmm::target_rows", counts.targets, sizeof(LocalColumn));
  add("orthant::pmm::target_pairs", counts.targets, sizeof(LocalColumn));
}

void plan_relation_ids(StepPlan& step, RelationEdgeCounts const& counts) {
  step.add_array("orthant::pmm::target_ids", counts.targets * std::int64_t{sizeof(std::int64_t)});
  step.add_array("orthant::pmm::source_ids", counts.sources * std::int64_t{sizeof(std::int64_t)});
}

} // namespace orthant::pmm
