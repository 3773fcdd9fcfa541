// SPDX-License-Identifier: Apache-2.0
#include "models/batches/sampled_batch.hpp"

#include "models/core/vertex_order.hpp"
#include "models/gnn/memory_estimate.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using runtime::sum_of;

struct CallSum {
  std::int64_t calls = 0;
  std::int64_t sent = 0;
};

} // namespace

SampledBatch::SampledBatch(runtime::Communicator const& self, graph::GraphStore const& store,
                           sampling::Sampler const& sampler, bool reads_edges)
    : store_(store),
      builder_(self, store, sampler) {
  graph::Ranges const all{{0, store.facts().num_vertices}};
  vertices_ = builder_.add_ranges(graph::Order::p1, all);
  if (store.facts().has_two_orders()) builder_.add_other_positions(vertices_);
  if (reads_edges) edges_ = builder_.add_block(all, all);
}

void SampledBatch::draw(std::int64_t epoch, std::int64_t index) {
  builder_.build(epoch, index, batch_);
  auto const& vertices = batch_.vertices[vertices_];
  std::vector<std::int64_t> in_p1(vertices.positions.begin(), vertices.positions.end());
  auto in_p2 = store_.facts().has_two_orders() ? vertices.other_positions : in_p1;
  orders_ = {std::move(in_p1), std::move(in_p2)};
}

pmm::CellSizes SampledBatch::cells_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                      pmm::Roles const& roles) const {
  auto const num_vertices = store_.facts().num_vertices;
  auto const in_cell = [&](pmm::Coordinates const& at) {
    return orders_.count(order_p1, part_of(shape, at, pmm::group_axes, num_vertices));
  };
  auto const along_b = [&](pmm::Coordinates at) {
    std::vector<std::int64_t> counts;
    for (auto& b = at.along(roles.b) = 0; b < shape.size(roles.b); ++b)
      counts.push_back(in_cell(at));
    return counts;
  };
  auto const slabs_along = [&](pmm::Axis axis) {
    std::vector<std::int64_t> counts;
    auto at = coordinates;
    for (auto& place = at.along(axis) = 0; place < shape.size(axis); ++place) {
      counts.push_back(sum_of(along_b(at)));
    }
    return counts;
  };
  return {along_b(coordinates), slabs_along(roles.c), slabs_along(roles.a)};
}

NeededOfGrid SampledBatch::needed_on(pmm::GridShape const& shape, NetworkPlan const& plan,
                                     pmm::Gather gather) const {
  auto const& owners = plan.layers.front().owners;
  if (!owners || gather_of(plan, gather) == pmm::Gather::all) return {};
  ORTHANT_REQUIRE(edges_.has_value(), "the edges were not read");
  TouchedRows touched(shape, owners->roles, store_.facts().num_vertices, orders_.in_p1);
  auto const& block = batch_.forward(*edges_);
  for (std::size_t row = 0; row < orders_.in_p1.size(); ++row) {
    for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k)
      touched.meet(row, static_cast<std::size_t>(block.columns[static_cast<std::size_t>(k)]));
    if (block.self_columns[row] >= 0) touched.meet(row, static_cast<std::size_t>(block.self_columns[row]));
  }
  return touched.needed(gather);
}

PlannedBatch SampledBatch::planned(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                   NetworkPlan const& plan, NetworkSettings const& settings,
                                   NeededOfGrid const& needed) const {
  auto const& facts = store_.facts();
  auto const own_rows = [&](pmm::AxisSet axes, pmm::IndexOrder order) {
    return orders_.count(order, part_of(shape, coordinates, axes, facts.num_vertices));
  };
  PlannedBatch batch{plan_of_batch(plan, orders_.size(), shape, coordinates, own_rows), {}};
  batch.traits = traits_of_batch(facts_of_batch(facts, orders_.size()), shape, coordinates, batch.plan,
                                 settings, builder_.sampler().has_symmetric_factors());

  set_counted_relayouts(batch.traits, shape, coordinates, plan, orders_, RelayoutRows::sampled);

  auto const& owners = plan.layers.front().owners;
  if (!owners) return batch;
  auto const& roles = owners->roles;
  batch.traits.cells = cells_of(shape, coordinates, roles);
  batch.traits.needed = needed.of(coordinates, roles);
  return batch;
}

SentInEpoch sent_in_epoch(SampledBatch& batch, sampling::Sampler const& sampler, std::int64_t epoch,
                          pmm::GridShape const& shape, graph::StoreFacts const& facts,
                          NetworkSettings const& settings, std::int64_t num_accumulated) {
  auto const plan = plan_network(facts, settings);
  auto const num_ranks = static_cast<std::size_t>(shape.size(pmm::group_axes));
  SentInEpoch sum;
  for (int group = 0; group < shape.data; ++group) {
    std::vector<CallSum> of_rank(num_ranks);
    for (std::int64_t s = 0; s < sampler.num_steps(); ++s) {
      std::vector<std::vector<PlannedBatch>> planned(num_ranks);
      auto const at = [&](std::size_t rank) {
        return member_of(shape, {.data = group}, pmm::group_axes, static_cast<int>(rank));
      };
      for (std::int64_t k = 0; k < num_accumulated; ++k) {
        batch.draw(epoch, sampler.batch_of(s, group, k));
        auto const needed = batch.needed_on(shape, plan, settings.gather);
        for (std::size_t rank = 0; rank < num_ranks; ++rank)
          planned[rank].push_back(batch.planned(shape, at(rank), plan, settings, needed));
      }
      for (std::size_t rank = 0; rank < num_ranks; ++rank) {
        pmm::StepPlan step(shape, at(rank), sizeof(float));
        plan_batch_step(step, planned[rank], settings);
        for (auto const& call : calls_of(step)) {
          ++of_rank[rank].calls;
          of_rank[rank].sent += call.sent_bytes;
          sum.comm_bytes += call.bytes;
        }
      }
    }
    for (auto const& rank : of_rank) {
      sum.sent_bytes += rank.sent;
      sum.most_sent_bytes = std::max(sum.most_sent_bytes, rank.sent);
      sum.num_calls = std::max(sum.num_calls, rank.calls);
    }
  }
  return sum;
}

} // namespace orthant::models
