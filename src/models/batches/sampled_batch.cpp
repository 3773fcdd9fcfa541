// SPDX-License-Identifier: Apache-2.0
#include "models/batches/sampled_batch.hpp"

#include "models/core/vertex_order.hpp"
#include "models/gnn/memory_estimate.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace orthant::models {
namespace {

using runtime::LocalColumn;
using runtime::Range;

/// How many of the ascending numbers lie in the range.
std::int64_t count_in(std::vector<std::int64_t> const& ascending, Range range) {
  auto const begin = std::ranges::lower_bound(ascending, range.begin);
  return std::ranges::lower_bound(ascending, range.end) - begin;
}

std::int64_t sum_of(std::vector<std::int64_t> const& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

struct CallSum {
  std::int64_t calls = 0;
  std::int64_t sent = 0;
};

/// Numbers of rows by block and slab along an axis, for each place on the other axis of the blocks.
class SlabCounts {
 public:
  SlabCounts(int num_outer, int num_ranks)
      : num_ranks_(num_ranks),
        counts_(static_cast<std::size_t>(num_outer) * static_cast<std::size_t>(num_ranks) *
                static_cast<std::size_t>(num_ranks)) {}

  [[nodiscard]] std::int64_t& at(int outer, int block, int slab) {
    return counts_[static_cast<std::size_t>((outer * num_ranks_ + block) * num_ranks_ + slab)];
  }
  /// Of the slabs of other ranks than the block's.
  [[nodiscard]] std::int64_t of_others() const {
    auto sum = std::int64_t{0};
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      auto const place = static_cast<int>(i);
      if (place / num_ranks_ % num_ranks_ != place % num_ranks_) sum += counts_[i];
    }
    return sum;
  }

 private:
  int num_ranks_;
  std::vector<std::int64_t> counts_;
};

/// Where the vertices of a batch lie: in which slab along an axis, and where along the other axis of the blocks.
struct VertexPlaces {
  std::vector<int> outer; // [n]
  std::vector<int> slab;  // [n]
  int num_outer = 1;
  int num_ranks = 1; // of the axis
};

/// `meets`: [n x num_ranks] whether the block at each place touches a vertex.
NeededOfGrid::Counts count_touched(VertexPlaces const& places, std::vector<bool> const& meets,
                                   pmm::Gather gather) {
  auto const num_ranks = places.num_ranks;
  SlabCounts touched(places.num_outer, num_ranks);
  SlabCounts all(places.num_outer, num_ranks);
  for (std::size_t i = 0; i < places.slab.size(); ++i)
    for (int block = 0; block < num_ranks; ++block) {
      ++all.at(places.outer[i], block, places.slab[i]);
      if (meets[i * static_cast<std::size_t>(num_ranks) + static_cast<std::size_t>(block)])
        ++touched.at(places.outer[i], block, places.slab[i]);
    }
  NeededOfGrid::Counts table(
      static_cast<std::size_t>(places.num_outer),
      std::vector<std::optional<pmm::NeededCounts>>(static_cast<std::size_t>(num_ranks)));
  auto const num_others = all.of_others();
  auto const coverage =
      num_others == 0 ? 1 : static_cast<double>(touched.of_others()) / static_cast<double>(num_others);
  if (num_others == 0 || (gather == pmm::Gather::automatic && coverage >= pmm::most_coverage)) return table;
  for (int outer = 0; outer < places.num_outer; ++outer)
    for (int own = 0; own < num_ranks; ++own) {
      pmm::NeededCounts counts;
      for (int other = 0; other < num_ranks; ++other) {
        counts.touched.push_back(touched.at(outer, own, other));
        counts.asked.push_back(touched.at(outer, other, own));
      }
      table[static_cast<std::size_t>(outer)][static_cast<std::size_t>(own)] = std::move(counts);
    }
  return table;
}

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
  in_p1_.assign(vertices.positions.begin(), vertices.positions.end());
  p2_of_p1_ = store_.facts().has_two_orders() ? vertices.other_positions : in_p1_;
  in_p2_ = p2_of_p1_;
  std::ranges::sort(in_p2_);
}

std::int64_t SampledBatch::count(pmm::IndexOrder order, Range range) const {
  return count_in(order_of(order) == graph::Order::p1 ? in_p1_ : in_p2_, range);
}

pmm::CellSizes SampledBatch::cells_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                      pmm::Roles const& roles) const {
  auto const num_vertices = store_.facts().num_vertices;
  auto const in_cell = [&](pmm::Coordinates const& at) {
    return count_in(in_p1_, part_of(shape, at, pmm::group_axes, num_vertices));
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

NeededOfGrid SampledBatch::needed_on(pmm::GridShape const& shape, GcnPlan const& plan,
                                     pmm::Gather gather) const {
  auto const& owners = plan.layers.front().owners;
  if (!owners || gather_of(plan, gather) == pmm::Gather::all) return {};
  ORTHANT_REQUIRE(edges_.has_value(), "the edges were not read");
  auto const& roles = owners->roles;
  auto const num_a = shape.size(roles.a);
  auto const num_c = shape.size(roles.c);
  VertexPlaces columns{{}, {}, num_a, num_c};
  for (auto const position : in_p1_) {
    auto const cell = part_holding(shape, pmm::group_axes, store_.facts().num_vertices, position);
    auto const owner = member_of(shape, {}, pmm::group_axes, cell);
    columns.outer.push_back(owner.along(roles.a));
    columns.slab.push_back(owner.along(roles.c));
  }
  VertexPlaces const rows{columns.slab, columns.outer, num_c, num_a};

  // Whether a vertex is a column of an entry whose row lies in part c, or a row of one whose column lies in part a.
  std::vector<bool> meets_c(in_p1_.size() * static_cast<std::size_t>(num_c));
  std::vector<bool> meets_a(in_p1_.size() * static_cast<std::size_t>(num_a));
  auto const meet = [&](std::size_t row, LocalColumn at) {
    auto const column = static_cast<std::size_t>(at);
    meets_c[column * static_cast<std::size_t>(num_c) + static_cast<std::size_t>(columns.slab[row])] = true;
    meets_a[row * static_cast<std::size_t>(num_a) + static_cast<std::size_t>(columns.outer[column])] = true;
  };
  auto const& block = batch_.forward(*edges_);
  for (std::size_t row = 0; row < in_p1_.size(); ++row) {
    for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k)
      meet(row, block.columns[static_cast<std::size_t>(k)]);
    if (block.self_columns[row] >= 0) meet(row, block.self_columns[row]);
  }
  return {count_touched(columns, meets_c, gather), count_touched(rows, meets_a, gather)};
}

std::int64_t SampledBatch::count_both(pmm::IndexOrder first_order, Range first, pmm::IndexOrder second_order,
                                      Range second) const {
  if (first_order == second_order)
    return count(first_order,
                 {std::max(first.begin, second.begin),
                  std::max(std::max(first.begin, second.begin), std::min(first.end, second.end))});
  auto const is_p1_first = order_of(first_order) == graph::Order::p1;
  auto const in_p1 = is_p1_first ? first : second;
  auto const in_p2 = is_p1_first ? second : first;
  auto const begin = std::ranges::lower_bound(in_p1_, in_p1.begin) - in_p1_.begin();
  auto const end = std::ranges::lower_bound(in_p1_, in_p1.end) - in_p1_.begin();
  return std::count_if(p2_of_p1_.begin() + begin, p2_of_p1_.begin() + end,
                       [&](std::int64_t place) { return in_p2.begin <= place && place < in_p2.end; });
}

PlannedBatch SampledBatch::planned(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                   GcnPlan const& plan, GcnSettings const& settings,
                                   NeededOfGrid const& needed) const {
  auto const& facts = store_.facts();
  auto const own_rows = [&](pmm::AxisSet axes, pmm::IndexOrder order) {
    return count(order, part_of(shape, coordinates, axes, facts.num_vertices));
  };
  PlannedBatch batch{plan_of_batch(plan, std::ssize(in_p1_), shape, coordinates, own_rows), {}};
  batch.traits = traits_of_batch(facts_of_batch(facts, std::ssize(in_p1_)), shape, coordinates, batch.plan,
                                 settings, builder_.sampler().has_symmetric_factors());

  using Sizes = std::array<pmm::RelayoutSizes, 2>; // forward and backward
  auto const between = [&](pmm::Placement const& from, pmm::Placement const& to) {
    auto const sizes = [&](pmm::Placement const& a, pmm::Placement const& b) {
      return pmm::sampled_sizes(shape, coordinates, a, b, [&](Range given, Range wanted) {
        return count_both(a.layout.row_order, given, b.layout.row_order, wanted);
      });
    };
    return Sizes{sizes(from, to), sizes(to, from)};
  };
  std::vector<Sizes> residuals(plan.layers.size());
  std::vector<Sizes> selves(plan.layers.size());
  for (auto const& layer : plan.layers) {
    auto const l = static_cast<std::size_t>(layer.index);
    if (layer.owners) continue;
    if (layer.is_residual) residuals[l] = between(layer.input, layer.output);
    if (layer.reads_itself()) selves[l] = between(layer.aggregated(), layer.aggregate());
  }
  auto const of_layer = [](std::vector<Sizes> sizes) {
    return [sizes = std::move(sizes)](GcnLayerPlan const& layer, bool is_backward) {
      return sizes[static_cast<std::size_t>(layer.index)][is_backward ? 1 : 0];
    };
  };
  batch.traits.residual_sizes = of_layer(std::move(residuals));
  batch.traits.self_sizes = of_layer(std::move(selves));

  auto const& owners = plan.layers.front().owners;
  if (plan.teleport && !owners) {
    std::vector<Sizes> starts; // [sites]
    for (auto const& site : plan.teleport->sites)
      starts.push_back(between(teleport_start(plan), site));
    batch.traits.teleport_sizes = [starts](GcnPlan const& of, pmm::Placement const& site, bool is_backward) {
      auto const& sites = of.teleport.value().sites;
      return starts.at(
          static_cast<std::size_t>(std::ranges::find(sites, site) - sites.begin()))[is_backward ? 1 : 0];
    };
  }
  if (!owners) return batch;
  auto const& roles = owners->roles;
  batch.traits.cells = cells_of(shape, coordinates, roles);
  auto const a = static_cast<std::size_t>(coordinates.along(roles.a));
  auto const c = static_cast<std::size_t>(coordinates.along(roles.c));
  if (!needed.over_c.empty()) batch.traits.needed = {needed.over_c[a][c], needed.over_a[c][a]};
  return batch;
}

SentInEpoch sent_in_epoch(SampledBatch& batch, sampling::Sampler const& sampler, std::int64_t epoch,
                          pmm::GridShape const& shape, graph::StoreFacts const& facts,
                          GcnSettings const& settings, std::int64_t num_accumulated) {
  auto const plan = plan_gcn(facts, settings);
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
