// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/edge_feature_rows.hpp"

#include "graph/exchange.hpp"
#include "graph/partition/attributes.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace orthant::graph {
namespace {

using runtime::index;

/// A number that a rank asks for, and its place among the numbers of that rank.
struct Asked {
  std::int32_t rank;
  std::uint32_t place;
  std::uint32_t number;
};
/// Up to eight features of an edge.
struct Features {
  static constexpr std::int64_t most = 8;
  std::uint32_t place;
  std::int32_t first_column;
  std::array<float, most> numbers;
};

} // namespace

EdgeFeatureRows::EdgeFeatureRows(runtime::Communicator const& comm, std::int64_t num_local,
                                 std::int64_t num_columns)
    : comm_(comm),
      num_columns_(num_columns),
      firsts_(index(comm.size() + 1)) {
  std::array const mine{num_local};
  runtime::all_gather(runtime::host, comm, mine, std::span(firsts_).subspan(1));
  std::partial_sum(firsts_.begin(), firsts_.end(), firsts_.begin());
  if (firsts_.back() > std::int64_t{1} << 32)
    runtime::throw_user("{} edges with features: there are at most 2^32", firsts_.back());
}

std::uint32_t EdgeFeatureRows::add(EdgeBatch const& batch, std::size_t i) {
  auto const number = firsts_[index(comm_.rank())] + std::ssize(rows_) / num_columns_;
  auto const from = batch.features.begin() + static_cast<std::int64_t>(i) * num_columns_;
  rows_.insert(rows_.end(), from, from + num_columns_);
  return static_cast<std::uint32_t>(number);
}

void EdgeFeatureRows::refuse_repeats(std::uint64_t one_end, std::uint64_t other_end) {
  runtime::throw_user(
      "the edge between vertices {} and {} is listed more than once: edges with features must be "
      "distinct, an undirected one in one direction; leave the others out, or give --directed",
      one_end, other_end);
}

std::vector<float> EdgeFeatureRows::fetch(std::span<std::uint32_t const> numbers) const {
  ORTHANT_REQUIRE(std::ssize(numbers) <= std::int64_t{1} << 32, numbers.size(), " entries on one rank");
  std::vector<float> found(numbers.size() * index(num_columns_));
  auto const owner_of = [&](std::int64_t number) {
    return static_cast<int>(std::ranges::upper_bound(firsts_, number) - firsts_.begin()) - 1;
  };
  auto const first = firsts_[index(comm_.rank())];
  auto const num_parts = (num_columns_ + Features::most - 1) / Features::most;
  auto const at_once = std::max<std::int64_t>(1, records_per_round(comm_) / 4 / num_parts);
  Outbox<Asked> questions(comm_.size(), at_once);
  Outbox<Features> answers(comm_.size(), at_once * num_parts);
  std::size_t next = 0;
  exchange(
      comm_, questions,
      [&](Outbox<Asked>& outbox) {
        for (; next < numbers.size() && !outbox.is_full(); ++next)
          outbox.push(owner_of(numbers[next]),
                      {comm_.rank(), static_cast<std::uint32_t>(next), numbers[next]});
        return next < numbers.size();
      },
      [&](std::span<Asked const> arrived) {
        for (auto const& [rank, place, number] : arrived)
          for (std::int64_t column = 0; column < num_columns_; column += Features::most) {
            Features part{place, static_cast<std::int32_t>(column), {}};
            std::copy_n(rows_.begin() + (number - first) * num_columns_ + column,
                        std::min(Features::most, num_columns_ - column), part.numbers.begin());
            answers.push(rank, part);
          }
        bool ignored = false;
        for (auto const& part : answers.deliver(comm_, ignored))
          std::copy_n(part.numbers.begin(), std::min(Features::most, num_columns_ - part.first_column),
                      found.begin() + part.place * num_columns_ + part.first_column);
      });
  return found;
}

EdgeFeatureMeans::EdgeFeatureMeans(runtime::Communicator const& comm, Placement const& placement, Range rows,
                                   std::int64_t num_columns)
    : num_vertices_(placement.num_vertices),
      rows_(rows),
      selves_(other_positions_of_rows(comm, placement, rows)),
      num_columns_(num_columns),
      sums_(selves_.size() * index(num_columns)),
      counts_(selves_.size()) {}

void EdgeFeatureMeans::add(std::int64_t row, std::int64_t column, std::span<float const> features) {
  auto const r = index(row - rows_.begin);
  if (selves_[r] == column) return;
  ++counts_[r];
  for (std::size_t f = 0; f < features.size(); ++f)
    sums_[r * features.size() + f] += static_cast<double>(features[f]);
}

void EdgeFeatureMeans::write(StoreWriter& writer) {
  for (std::size_t i = 0; i < sums_.size(); ++i)
    sums_[i] /= static_cast<double>(std::max<std::int64_t>(1, counts_[i / index(num_columns_)]));
  write_rows(writer, "/vertices/edge_feature_means", num_vertices_, selves_, num_columns_, sums_);
}

} // namespace orthant::graph
