// SPDX-License-Identifier: Apache-2.0
#include "models/counts/counted_graph.hpp"

#include "runtime/error.hpp"

#include <numeric>
#include <vector>

namespace orthant::models {
namespace {

constexpr int num_bands = 240; // as many as rows of tiles

/// Position in order p1 of each column of the even matrix.
std::vector<std::int64_t> columns_in_p1(graph::GraphStore const& store) {
  auto const n = store.facts().num_vertices;
  if (store.facts().has_two_orders()) return store.read_other_positions(graph::Order::p2, {0, n});
  std::vector<std::int64_t> same(static_cast<std::size_t>(n));
  std::iota(same.begin(), same.end(), std::int64_t{0});
  return same;
}

NeededOfGrid count_needed(graph::GraphStore const& store, pmm::GridShape const& shape,
                          pmm::Roles const& roles, pmm::Gather gather) {
  auto const n = store.facts().num_vertices;
  auto const columns = columns_in_p1(store);
  std::vector<std::int64_t> positions(columns.size());
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  TouchedRows touched(shape, roles, n, positions);
  for (int band = 0; band < num_bands; ++band) {
    auto const rows = runtime::balanced_range(n, num_bands, band);
    if (rows.size() == 0) continue;
    auto const block = store.read_block(graph::Parity::even, rows, {0, n});
    for (std::size_t row = 0; row + 1 < block.row_offsets.size(); ++row)
      for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k)
        touched.meet(static_cast<std::size_t>(rows.begin) + row,
                     static_cast<std::size_t>(
                         columns[static_cast<std::size_t>(block.columns[static_cast<std::size_t>(k)])]));
  }
  return touched.needed(gather);
}

bool is_alone(pmm::GridShape const& shape) {
  return shape.size(pmm::group_axes) == 1;
}

} // namespace

Exactness parse_exactness(std::string_view word) {
  for (auto const exactness : {Exactness::exact, Exactness::at_most, Exactness::about})
    if (word == name_of(exactness)) return exactness;
  runtime::throw_user("bytes are exact, at most or about, not '{}'", word);
}

std::string_view name_of(Exactness exactness) {
  return exactness == Exactness::exact ? "exact" : exactness == Exactness::at_most ? "at most" : "about";
}

Exactness exactness_without_counts(pmm::GridShape const& shape, NetworkPlan const& plan,
                                   NetworkSettings const& settings) {
  if (is_alone(shape)) return Exactness::exact;
  if (predicts_links(settings) || has_relayouts(plan)) return Exactness::about;
  auto const is_between_owners = plan.layers.front().owners.has_value();
  return is_between_owners && gather_of(plan, settings.gather) != pmm::Gather::all ? Exactness::at_most
                                                                                   : Exactness::exact;
}

CountedGraph::CountedGraph(graph::GraphStore const& store, pmm::GridShape const& shape,
                           NetworkPlan const& plan, NetworkSettings const& settings)
    : store_(store),
      shape_(shape),
      plan_(plan),
      settings_(settings) {
  if (is_alone(shape)) return;
  auto const& owners = plan.layers.front().owners;
  if (auto const gather = gather_of(plan, settings.gather); owners && gather != pmm::Gather::all)
    needed_ = count_needed(store, shape, owners->roles, gather);
  if (!has_relayouts(plan)) return;
  auto const n = store.facts().num_vertices;
  std::vector<std::int64_t> in_p1(static_cast<std::size_t>(n));
  std::iota(in_p1.begin(), in_p1.end(), std::int64_t{0});
  auto in_p2 = store.facts().has_two_orders() ? store.read_other_positions(graph::Order::p1, {0, n}) : in_p1;
  orders_ = {std::move(in_p1), std::move(in_p2)};
}

NetworkEpochTraits CountedGraph::traits_of(pmm::Coordinates const& coordinates) const {
  auto traits = models::traits_of(store_.facts(), shape_, coordinates, plan_, settings_);
  if (auto const& owners = plan_.layers.front().owners)
    traits.needed = needed_.of(coordinates, owners->roles);
  if (orders_.size() > 0)
    set_counted_relayouts(traits, shape_, coordinates, plan_, orders_, RelayoutRows::all);
  return traits;
}

Exactness CountedGraph::exactness() const {
  return predicts_links(settings_) && !is_alone(shape_) ? Exactness::about : Exactness::exact;
}

} // namespace orthant::models
