// SPDX-License-Identifier: Apache-2.0
#include "pmm/relations/relation_block.hpp"

#include "pmm/aggregate/row_lists.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/numbers/counts.hpp"

#include <limits>
#include <numeric>
#include <span>

namespace orthant::pmm {
namespace {

using runtime::index;
using runtime::LocalColumn;
using runtime::Offset;

constexpr std::int64_t none = -1;

/// Pairs of a block, sorted by relation and then by row.
struct Pairs {
  std::vector<std::int64_t> first;      // [relations + 1]
  std::vector<std::int32_t> rows;       // [pairs]
  std::vector<std::int64_t> of_entries; // [entries]
};

/// Calls visit(entry, row, relation, is_new) for all entries by rows; `is_new`: the first of its pair.
template<class Visit>
void for_each_entry(TypedEntries const& entries, Visit const& visit) {
  std::vector<std::int64_t> last_row(index(entries.num_relations), none);
  for (std::int64_t row = 0; row < entries.num_rows; ++row)
    for (auto e = entries.row_offsets[index(row)]; e < entries.row_offsets[index(row + 1)]; ++e) {
      auto const relation = entries.relations[index(e)];
      visit(e, row, relation, last_row[relation] != row);
      last_row[relation] = row;
    }
}

Pairs pairs_of(TypedEntries const& entries) {
  Pairs pairs;
  pairs.first.assign(index(entries.num_relations + 1), 0);
  for_each_entry(entries, [&](std::int64_t, std::int64_t, std::uint16_t relation, bool is_new) {
    if (is_new) ++pairs.first[relation + std::size_t{1}];
  });
  std::partial_sum(pairs.first.begin(), pairs.first.end(), pairs.first.begin());
  auto const num_pairs = pairs.first.back();
  ORTHANT_REQUIRE(num_pairs <= std::numeric_limits<std::int32_t>::max(), num_pairs,
                  " pairs of a relation and a row in one block");
  pairs.rows.resize(index(num_pairs));
  pairs.of_entries.resize(entries.columns.size());
  auto next = pairs.first;
  for_each_entry(entries, [&](std::int64_t e, std::int64_t row, std::uint16_t relation, bool is_new) {
    if (is_new) pairs.rows[index(next[relation]++)] = static_cast<std::int32_t>(row);
    pairs.of_entries[index(e)] = next[relation] - 1;
  });
  return pairs;
}

template<class T>
CsrMatrix<T> csr_of(std::int64_t num_rows, std::int64_t num_columns, std::vector<Offset> const& offsets,
                    std::vector<LocalColumn> const& columns) {
  return {num_rows,
          num_columns,
          pmm::to_device("orthant::pmm::relation_offsets", offsets),
          pmm::to_device("orthant::pmm::relation_columns", columns),
          {}};
}

/// Groups the items by `group_of` [items]; within a group the items ascend.
template<class Group, class Number>
std::pair<std::vector<Offset>, std::vector<LocalColumn>>
lists_of(std::int64_t num_groups, std::vector<Group> const& group_of, Number const& number_of) {
  std::vector<Offset> offsets(index(num_groups + 1), 0);
  for (auto const group : group_of)
    ++offsets[index(group + 1)];
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::vector<LocalColumn> numbers(group_of.size());
  auto next = offsets;
  for (std::size_t i = 0; i < group_of.size(); ++i)
    numbers[index(next[index(group_of[i])]++)] = number_of(i);
  return {std::move(offsets), std::move(numbers)};
}

/// Computes 1 / c_ir of each pair, where c_ir is the number of the pair's entries on all ranks along `columns`. It is 1 for self relations.
template<class T>
Vector<T> inverse_counts(ProcessGrid const& grid, AxisSet columns, Pairs const& pairs,
                         TypedEntries const& entries, std::vector<Offset> const& offsets_of_pairs) {
  std::vector<T> inverse(pairs.rows.size(), T{1});
  std::vector<std::int32_t> counts(index(entries.num_rows));
  for (std::size_t r = 0; r < index(entries.num_relations - entries.num_selves); ++r) {
    auto const of_relation = [&](auto const& visit) {
      for (auto k = pairs.first[r]; k < pairs.first[r + 1]; ++k)
        visit(index(k), index(pairs.rows[index(k)]));
    };
    std::ranges::fill(counts, 0);
    of_relation([&](std::size_t k, std::size_t row) {
      counts[row] = static_cast<std::int32_t>(offsets_of_pairs[k + 1] - offsets_of_pairs[k]);
    });
    if (grid.size(columns) > 1) runtime::all_reduce(runtime::host, grid.over(columns), std::span(counts));
    of_relation([&](std::size_t k, std::size_t row) { inverse[k] = T{1} / static_cast<T>(counts[row]); });
  }
  return pmm::to_device("orthant::pmm::inverse_counts", inverse);
}

template<class T>
LocalSpmm<T> fixed(SparseBlock<T> block) {
  return LocalSpmm<T>(std::move(block), Contents::fixed);
}

} // namespace

template<class T>
RelationBlock<T> make_relation_block(ProcessGrid const& grid, AxisSet columns, TypedEntries const& entries) {
  auto const pairs = pairs_of(entries);
  auto const num_pairs = pairs.first.back();
  RelationBlock<T> block;
  block.first_pairs = pairs.first;
  auto const [means_offsets, means_columns] =
      lists_of(num_pairs, pairs.of_entries, [&](std::size_t e) { return entries.columns[e]; });
  SparseBlock<T> const means{csr_of<T>(num_pairs, entries.num_columns, means_offsets, means_columns),
                             inverse_counts<T>(grid, columns, pairs, entries, means_offsets),
                             {}};
  block.means = fixed(means);
  block.means_back = fixed(transposed(means));
  auto const [sums_offsets, sums_columns] =
      lists_of(entries.num_rows, pairs.rows, [](std::size_t k) { return static_cast<LocalColumn>(k); });
  block.sums =
      fixed(SparseBlock<T>{csr_of<T>(entries.num_rows, num_pairs, sums_offsets, sums_columns), {}, {}});
  std::vector<Offset> one_each(index(num_pairs + 1));
  std::iota(one_each.begin(), one_each.end(), Offset{0});
  block.sums_back =
      fixed(SparseBlock<T>{csr_of<T>(num_pairs, entries.num_rows, one_each, pairs.rows), {}, {}});
  block.num_selves = entries.num_selves;
  block.roots = entries.roots;
  block.ones = to_device("orthant::pmm::relation_ones", std::vector<T>(index(block.num_self_pairs()), T{1}));
  return block;
}

void plan_relation_block(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns,
                         std::int64_t num_pairs, std::int64_t num_self_pairs, std::int64_t num_entries) {
  auto const plan_csr = [&](std::int64_t rows, std::int64_t entries) {
    step.add_array("orthant::pmm::relation_offsets", (rows + 1) * std::int64_t{sizeof(Offset)});
    step.add_array("orthant::pmm::relation_columns", entries * std::int64_t{sizeof(LocalColumn)});
  };
  plan_csr(num_pairs, num_entries);
  step.add_array("orthant::pmm::inverse_counts", step.scalar_bytes(num_pairs));
  plan_transposed(step, num_columns, num_entries, false);
  plan_csr(num_rows, num_pairs);
  plan_csr(num_pairs, num_pairs);
  step.add_array("orthant::pmm::relation_ones", step.scalar_bytes(num_self_pairs));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template RelationBlock<T> make_relation_block(ProcessGrid const&, AxisSet, TypedEntries const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
