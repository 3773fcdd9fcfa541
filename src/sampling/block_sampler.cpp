// SPDX-License-Identifier: Apache-2.0
#include "sampling/block_sampler.hpp"

#include "runtime/arrays/growing_list.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orthant::sampling {

void LocalVertices::find(BatchKeys const& keys, SampledVertices& found) {
  table_.find_all(keys.keys, hits_, scratch_);

  found.positions.clear();
  found.strata.clear();
  found.original_ids.clear();
  found.other_positions.clear();
  std::vector<std::uint64_t> ends(keys.num_strata()); // ends of the groups in the batch
  std::partial_sum(keys.stratum_sizes.begin(), keys.stratum_sizes.end(), ends.begin());
  for (auto const hit : hits_) {
    auto const position = hit >> 32;
    auto const number = hit & 0xffff'ffff; // number in the batch
    found.positions.push_back(static_cast<std::int32_t>(position));
    found.original_ids.push_back(original_ids_.empty() ? keys.keys[number] : original_ids_[position]);
    if (has_other_positions()) found.other_positions.push_back(other_positions_[position]);
    if (keys.num_strata() == 1) continue;
    found.strata.push_back(
        static_cast<std::int8_t>(std::upper_bound(ends.begin(), ends.end(), number) - ends.begin()));
  }
}

std::int64_t LocalVertices::num_bytes() const {
  return table_.num_bytes() + original_ids_.num_bytes() + other_positions_.num_bytes();
}

PackedIds read_original_ids(graph::GraphStore const& store, Order order, graph::Ranges const& ranges) {
  return read_packed(store.facts().num_vertices, ranges,
                     [&](Range piece) { return store.read_original_ids(order, piece); });
}

PackedIds read_other_positions(graph::GraphStore const& store, Order order, graph::Ranges const& ranges) {
  return read_packed(store.facts().num_vertices, ranges,
                     [&](Range piece) { return store.read_other_positions(order, piece); });
}

namespace {

using runtime::index;
using runtime::LocalColumn;
using runtime::Offset;
using runtime::resize_for_writing;

/// picked[i] := scale[positions[i]], or 1 if `scale` is empty.
template<class T>
void pick(std::vector<T> const& scale, std::vector<std::int32_t> const& positions, std::vector<T>& picked) {
  resize_for_writing(picked, positions.size());
  std::ranges::transform(positions, picked.begin(), [&](std::int32_t position) {
    return scale.empty() ? T{1} : scale[index(position)];
  });
}

} // namespace

template<class T>
BlockSampler<T>::BlockSampler(LocalBlock<T> block, BlockScales scales)
    : block_(std::move(block)),
      scales_(scales) {
  auto const num_rows = index(block_.num_rows);
  auto const fits = [](auto const& list, std::size_t length) {
    return list.empty() || list.size() == length;
  };
  ORTHANT_REQUIRE(block_.row_offsets.size() == num_rows + 1 &&
                      block_.row_offsets.back() == static_cast<Offset>(block_.columns.size()),
                  "offsets of ", block_.num_rows, " rows and ", block_.columns.size(), " entries");
  ORTHANT_REQUIRE(
      fits(block_.values, block_.columns.size()) && fits(block_.row_scale, num_rows) &&
          fits(block_.column_scale, index(block_.num_columns)) && block_.self_columns.size() == num_rows &&
          block_.self_scale.size() == (scales_ == BlockScales::none ? 0 : num_rows) &&
          fits(block_.relations, block_.columns.size()) &&
          block_.features.size() == (block_.columns.size() + num_rows) * index(block_.num_features),
      "lengths of a block of ", block_.num_rows, " x ", block_.num_columns);
}

template<class T>
void BlockSampler<T>::sample(SampledVertices const& rows, SampledVertices const& columns,
                             ColumnFilter const& filter, BatchKeys const& keys, SampledPair<T>& out) {
  ORTHANT_REQUIRE(filter.num_columns() == block_.num_columns, "a filter of ", filter.num_columns(),
                  " columns for ", block_.num_columns);
  out.block.num_rows = out.transposed.num_columns = static_cast<std::int64_t>(rows.size());
  out.block.num_columns = out.transposed.num_rows = static_cast<std::int64_t>(columns.size());
  gather(rows, filter, out.block);
  if (scales_ == BlockScales::none) return find_own_columns(rows, filter, out.block);
  transpose(out.block, out.transposed);
  if (scales_ == BlockScales::of_graph)
    scale(rows, columns, keys, out);
  else
    renormalize(rows, columns, out);
  find_self_loops(rows, filter, out);
}

template<class T>
void BlockSampler<T>::gather(SampledVertices const& rows, ColumnFilter const& filter, SampledBlock<T>& out) {
  bool const has_values = !block_.values.empty();
  bool const has_relations = !block_.relations.empty();
  bool const has_features = block_.num_features > 0;
  std::int64_t num_gathered = 0;
  for (auto const row : rows.positions) {
    auto const begin = block_.row_offsets[index(row)];
    num_gathered += block_.row_offsets[index(row) + 1] - begin;
    __builtin_prefetch(block_.columns.data() + begin); // rows are far apart in memory and not in a cache
  }
  if (kept_columns_.size() < index(num_gathered)) resize_for_writing(kept_columns_, index(num_gathered));
  if (has_values && kept_values_.size() < index(num_gathered))
    resize_for_writing(kept_values_, index(num_gathered));
  if (has_relations && kept_relations_.size() < index(num_gathered))
    resize_for_writing(kept_relations_, index(num_gathered));
  if (has_features && kept_entries_.size() < index(num_gathered))
    resize_for_writing(kept_entries_, index(num_gathered));

  // Writes every entry, but advances only if its column passes. A branch would often be mispredicted, because few columns pass.
  out.row_offsets.clear();
  out.row_offsets.push_back(0);
  std::size_t num_kept = 0;
  for (auto const row : rows.positions) {
    auto const end = index(block_.row_offsets[index(row) + 1]);
    for (auto k = index(block_.row_offsets[index(row)]); k < end; ++k) {
      auto const column = block_.columns[k];
      kept_columns_[num_kept] = column;
      if (has_values) kept_values_[num_kept] = block_.values[k];
      if (has_relations) kept_relations_[num_kept] = block_.relations[k];
      if (has_features) kept_entries_[num_kept] = static_cast<Offset>(k);
      num_kept += filter.passes(column);
    }
    out.row_offsets.push_back(static_cast<Offset>(num_kept));
  }
  resize_for_writing(out.columns, num_kept);
  std::transform(kept_columns_.begin(), kept_columns_.begin() + static_cast<std::ptrdiff_t>(num_kept),
                 out.columns.begin(), [&](LocalColumn column) { return filter.number(column); });
  resize_for_writing(out.values, has_values ? num_kept : 0);
  std::copy_n(kept_values_.begin(), out.values.size(), out.values.begin());
  resize_for_writing(out.relations, has_relations ? num_kept : 0);
  std::copy_n(kept_relations_.begin(), out.relations.size(), out.relations.begin());
  resize_for_writing(out.entries, has_features ? num_kept : 0);
  std::copy_n(kept_entries_.begin(), out.entries.size(), out.entries.begin());
  out.self_entries.clear();
  if (!has_features) return;
  for (auto const row : rows.positions)
    out.self_entries.push_back(std::ssize(block_.columns) + row);
}

template<class T>
void BlockSampler<T>::transpose(SampledBlock<T> const& from, SampledBlock<T>& to) {
  // Counting sort by column. The rows come in ascending order, so that the columns of the transpose are also ascending.
  to.row_offsets.assign(index(to.num_rows) + 1, 0);
  for (auto const column : from.columns)
    ++to.row_offsets[index(column) + 1];
  std::partial_sum(to.row_offsets.begin(), to.row_offsets.end(), to.row_offsets.begin());
  next_.assign(to.row_offsets.begin(), to.row_offsets.end() - 1);
  resize_for_writing(to.columns, from.columns.size());
  resize_for_writing(to.values, from.values.size());
  for (std::size_t row = 0; row < index(from.num_rows); ++row)
    for (auto k = index(from.row_offsets[row]); k < index(from.row_offsets[row + 1]); ++k) {
      auto const place = index(next_[index(from.columns[k])]++);
      to.columns[place] = static_cast<LocalColumn>(row);
      if (!from.values.empty()) to.values[place] = from.values[k];
    }
}

template<class T>
void BlockSampler<T>::scale(SampledVertices const& rows, SampledVertices const& columns,
                            BatchKeys const& keys, SampledPair<T>& out) const {
  auto const num_strata = keys.num_strata();
  auto const stratum_of = [](SampledVertices const& vertices, std::size_t i) {
    return vertices.strata.empty() ? std::size_t{0} : index(vertices.strata[i]);
  };
  pick(block_.row_scale, rows.positions, out.block.row_scale);
  pick(block_.column_scale, columns.positions, out.transposed.row_scale);
  out.block.row_groups = rows.strata;
  out.transposed.row_groups = columns.strata;
  out.block.num_groups = out.transposed.num_groups = static_cast<std::int64_t>(num_strata);
  out.block.column_scale.clear();
  out.transposed.column_scale.clear();
  for (std::size_t group = 0; group < num_strata; ++group) {
    // A~_ij, where the row's stratum is `group`: s_j m(g_i, g_j)
    for (std::size_t j = 0; j < columns.size(); ++j)
      out.block.column_scale.push_back(
          out.transposed.row_scale[j] *
          static_cast<T>(keys.factors[group * num_strata + stratum_of(columns, j)]));
    // (A~^T)_ji, where row j of the transpose is in `group`; m's first argument is still the stratum of i: r_i m(g_i, g_j)
    for (std::size_t i = 0; i < rows.size(); ++i)
      out.transposed.column_scale.push_back(
          out.block.row_scale[i] * static_cast<T>(keys.factors[stratum_of(rows, i) * num_strata + group]));
  }
}

template<class T>
void BlockSampler<T>::renormalize(SampledVertices const& rows, SampledVertices const& columns,
                                  SampledPair<T>& out) const {
  auto const is_symmetric = scales_ == BlockScales::symmetric_in_batch;
  // A vertex without neighbors in the batch gets scale 0. All others have positive sums (graph/checks/operator_check.hpp).
  auto const fill = [&](std::vector<double> const& degrees, std::vector<T>& scale) {
    scale.clear();
    for (auto const d : degrees)
      scale.push_back(static_cast<T>(d > 0 ? 1 / (is_symmetric ? std::sqrt(d) : d) : 0));
  };
  fill(rows.degrees, out.block.row_scale);
  if (is_symmetric)
    fill(columns.degrees, out.block.column_scale);
  else
    out.block.column_scale.assign(columns.size(), T{1});
  out.transposed.row_scale = out.block.column_scale;
  out.transposed.column_scale = out.block.row_scale;
  for (auto* const block : {&out.block, &out.transposed}) {
    block->row_groups.clear();
    block->num_groups = 1;
  }
}

template<class T>
void BlockSampler<T>::find_own_columns(SampledVertices const& rows, ColumnFilter const& filter,
                                       SampledBlock<T>& out) const {
  out.self_columns.clear();
  for (auto const row : rows.positions) {
    auto const column = block_.self_columns[index(row)];
    out.self_columns.push_back(column >= 0 && filter.passes(column) != 0 ? filter.number(column) : -1);
  }
}

template<class T>
void BlockSampler<T>::find_self_loops(SampledVertices const& rows, ColumnFilter const& filter,
                                      SampledPair<T>& out) const {
  out.block.self_columns.assign(index(out.block.num_rows), -1);
  out.block.self_scale.assign(index(out.block.num_rows), T{0});
  out.transposed.self_columns.assign(index(out.transposed.num_rows), -1);
  out.transposed.self_scale.assign(index(out.transposed.num_rows), T{0});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto const row = index(rows.positions[i]);
    auto const column = block_.self_columns[row];
    if (column < 0 || filter.passes(column) == 0) continue; // always passes if the batch is one set
    auto const j = filter.number(column);
    auto const self_scale = scales_ == BlockScales::of_graph
                                ? block_.self_scale[row]
                                : out.block.row_scale[i] * out.block.column_scale[index(j)];
    out.block.self_columns[i] = j;
    out.block.self_scale[i] = self_scale;
    out.transposed.self_columns[index(j)] = static_cast<LocalColumn>(i);
    out.transposed.self_scale[index(j)] = self_scale;
  }
}

template class BlockSampler<float>;
template class BlockSampler<double>;

} // namespace orthant::sampling
