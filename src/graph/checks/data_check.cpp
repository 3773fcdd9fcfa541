// SPDX-License-Identifier: Apache-2.0
#include "graph/checks/operator_check.hpp"

#include "graph/store/distribution.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>

namespace orthant::graph {
namespace {

using runtime::all_reduced;
using runtime::Communicator;

constexpr std::array all_parts{Split::train, Split::valid, Split::test};

/// The labels of some vertices: number of known labels, and their range.
struct LabelRange {
  std::int64_t count = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = -1;

  void add(std::int64_t label) {
    if (label < 0) return;
    ++count;
    least = std::min(least, label);
    most = std::max(most, label);
  }
  void reduce(Communicator const& comm) {
    count = all_reduced(comm, count);
    least = all_reduced(comm, least, runtime::Reduction::min);
    most = all_reduced(comm, most, runtime::Reduction::max);
  }
  [[nodiscard]] bool is_one_value() const { return count > 1 && least == most; }
};

/// Calls visit(rows) for this rank's positions, in pieces.
template<class Visit>
void for_each_piece(Communicator const& comm, std::int64_t num_vertices, std::int64_t row_numbers,
                    Visit&& visit) {
  auto const mine = PositionOwners{num_vertices, comm.size()}.range(comm.rank());
  constexpr std::int64_t numbers_at_once = std::int64_t{1} << 20; // of all classes, which are read one by one
  constexpr std::int64_t chunk = 1024;                            // of the store's checksums
  auto const at_once = std::max<std::int64_t>(1, numbers_at_once / row_numbers / chunk) * chunk;
  for (auto begin = mine.begin; begin < mine.end; begin += at_once)
    if (!visit(Range{begin, std::min(mine.end, begin + at_once)})) return;
}

/// Labels of all vertices, and of each part of the split.
struct LabelsOfParts {
  LabelRange all;
  std::array<LabelRange, 3> parts;
};

LabelsOfParts read_labels(Communicator const& comm, GraphStore const& store) {
  auto const& facts = store.facts();
  auto const is_multi = facts.label_kind == LabelKind::multi;
  auto const width = is_multi ? facts.num_classes : 1;
  LabelsOfParts found;
  runtime::together(comm, [&] {
    for_each_piece(comm, facts.num_vertices, width, [&](Range rows) {
      auto const add = [&](auto const& labels) {
        for (auto const label : labels)
          found.all.add(label);
        for (auto const part : all_parts) {
          auto const mask = store.read_mask(part, Order::p1, rows);
          for (std::size_t i = 0; i < labels.size(); ++i)
            if (mask[i / static_cast<std::size_t>(width)] != 0)
              found.parts[static_cast<std::size_t>(part)].add(labels[i]);
        }
      };
      if (is_multi)
        add(store.read_label_indicator(Order::p1, rows, {0, width}));
      else
        add(store.read_labels(Order::p1, rows));
      return true;
    });
  });
  found.all.reduce(comm);
  for (auto& part : found.parts)
    part.reduce(comm);
  return found;
}

void check_labels(Communicator const& comm, GraphStore const& store, std::vector<std::string>& warnings) {
  auto const& facts = store.facts();
  if (facts.label_kind == LabelKind::none || facts.label_kind == LabelKind::real) return;
  auto const [all, parts] = read_labels(comm, store);
  auto const is_multi = facts.label_kind == LabelKind::multi;
  auto const describe = [&](LabelRange const& labels, std::string_view what) {
    warnings.push_back(is_multi
                           ? fmt::format("all {} labels{} are {}: there is nothing to tell apart",
                                         labels.count, what, labels.least)
                           : fmt::format("all {} labels{} are of class {}: there is nothing to tell apart",
                                         labels.count, what, labels.least));
  };
  if (all.is_one_value())
    describe(all, "");
  else if (parts[0].is_one_value())
    describe(parts[0], " of training vertices");
  for (auto const part : all_parts) {
    auto const size = facts.split_sizes[static_cast<std::size_t>(part)];
    if (size > 0 && parts[static_cast<std::size_t>(part)].count == 0)
      warnings.push_back(
          fmt::format("none of the {} vertices in part {} of the split has a label", size, name_of(part)));
  }
}

void check_parts(StoreFacts const& facts, std::vector<std::string>& warnings) {
  auto const& [train, valid, test] = facts.split_sizes;
  std::string empty;
  for (auto const part : all_parts)
    if (facts.split_sizes[static_cast<std::size_t>(part)] == 0)
      empty += fmt::format("{}{}", empty.empty() ? "" : " and ", name_of(part));
  if (facts.has_split && !empty.empty())
    warnings.push_back(fmt::format("no vertex is in part {} of the split: train {}, valid {}, test {}", empty,
                                   train, valid, test));
  if (facts.has_links() && (facts.num_held_out[1] == 0 || facts.num_held_out[2] == 0))
    warnings.push_back(fmt::format("no edge is held out for {}: valid {}, test {}",
                                   facts.num_held_out[1] == 0 ? "valid" : "test", facts.num_held_out[1],
                                   facts.num_held_out[2]));
}

/// True if this rank's vertices have the same features as the first vertex.
bool are_equal_dense(Communicator const& comm, GraphStore const& store) {
  auto const& facts = store.facts();
  auto is_equal = true;
  for (std::int64_t c = 0; c < facts.num_features && is_equal; ++c) {
    Range const column{c, c + 1};
    auto const first = store.read_features(Order::p2, {0, 1}, column).front();
    for_each_piece(comm, facts.num_vertices, 1, [&](Range rows) {
      is_equal = std::ranges::all_of(store.read_features(Order::p2, rows, column),
                                     [&](float value) { return value == first; });
      return is_equal;
    });
  }
  return is_equal;
}

bool are_equal_sparse(Communicator const& comm, GraphStore const& store) {
  auto const& facts = store.facts();
  Range const all{0, facts.num_features};
  auto const first = store.read_sparse_features({0, 1}, all);
  auto is_equal = true;
  auto const row_numbers = facts.num_feature_entries / facts.num_vertices + 1;
  for_each_piece(comm, facts.num_vertices, row_numbers, [&](Range rows) {
    auto const block = store.read_sparse_features(rows, all);
    for (std::size_t row = 0; is_equal && row + 1 < block.row_offsets.size(); ++row) {
      auto const [begin, end] = std::pair(block.row_offsets[row], block.row_offsets[row + 1]);
      auto const is_same = [&](auto const& numbers, auto const& of_first) {
        return numbers.empty() ||
               std::equal(numbers.begin() + begin, numbers.begin() + end, of_first.begin(), of_first.end());
      };
      is_equal = end - begin == first.num_nonzeros() && is_same(block.columns, first.columns) &&
                 is_same(block.values, first.values);
    }
    return is_equal;
  });
  return is_equal;
}

void check_features(Communicator const& comm, GraphStore const& store, std::vector<std::string>& warnings) {
  auto const& facts = store.facts();
  if (facts.feature_kind == FeatureKind::none || facts.num_vertices < 2) return;
  auto const differs = runtime::together(comm, [&] {
    return !(facts.feature_kind == FeatureKind::dense ? are_equal_dense(comm, store)
                                                      : are_equal_sparse(comm, store));
  });
  if (all_reduced(comm, std::int64_t{differs ? 1 : 0}, runtime::Reduction::max) == 0)
    warnings.push_back(
        fmt::format("all {} vertices have the same {} features", facts.num_vertices, facts.num_features));
}

} // namespace

std::vector<std::string> check_data(Communicator const& comm, GraphStore const& store) {
  std::vector<std::string> warnings;
  check_labels(comm, store, warnings);
  check_parts(store.facts(), warnings);
  check_features(comm, store, warnings);
  return warnings;
}

} // namespace orthant::graph
