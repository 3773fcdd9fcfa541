// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/pruning/pruned_rows.hpp"

#include "models/gnn/operands/relation_operands.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <map>

namespace orthant::models {
namespace {

using runtime::LocalColumn;

/// Flags of the training vertices in this rank's cell.
pmm::KeptFlags training_rows(pmm::ProcessGrid const& grid, graph::GraphStore const& store) {
  return runtime::together(grid.group(), [&] {
    auto const own =
        pmm::part_of(grid.shape(), grid.coordinates(), pmm::group_axes, store.facts().num_vertices);
    auto const mask = store.read_mask(graph::Split::train, graph::Order::p1, own);
    pmm::KeptFlags flags(mask.begin(), mask.end());
    if (store.facts().label_kind != graph::LabelKind::single) return flags;
    auto const labels = store.read_labels(graph::Order::p1, own);
    for (std::size_t i = 0; i < flags.size(); ++i)
      if (labels[i] < 0) flags[i] = 0;
    return flags;
  });
}

pmm::KeptFlags flags_of(pmm::KeptRows const& kept, std::size_t num_own) {
  pmm::KeptFlags flags(num_own);
  for (auto const row : kept.own)
    flags[static_cast<std::size_t>(row)] = 1;
  return flags;
}

std::int64_t num_nonzeros_in(graph::CsrBlock const& csr, std::vector<LocalColumn> const& rows) {
  auto sum = std::int64_t{0};
  for (auto const row : rows)
    sum +=
        csr.row_offsets[static_cast<std::size_t>(row) + 1] - csr.row_offsets[static_cast<std::size_t>(row)];
  return sum;
}

/// Pairs of these rows. The entries of a row have a relation more than once if it has several such neighbors. Pairs of a relation and a
/// column are counted for attention.
PrunedRows::Pairs pairs_in(graph::CsrBlock const& csr, std::vector<LocalColumn> const& rows,
                           RelationPlan const& relations) {
  auto const num_relations =
      relations.attention ? relations.attention->num_relations : relations.weights.num_relations;
  std::map<std::int64_t, std::int64_t> num_roots; // by type
  for (auto const type : relations.root_types)
    ++num_roots[type];
  PrunedRows::Pairs pairs;
  std::vector<LocalColumn> last_row(graph::most_relations + std::size_t{1}, -1);
  auto const num_columns = static_cast<std::size_t>(csr.columns_range.size());
  std::vector<bool> is_source(relations.attention ? static_cast<std::size_t>(num_relations) * num_columns
                                                  : 0);
  for (auto const row : rows)
    for (auto k = static_cast<std::size_t>(csr.row_offsets[static_cast<std::size_t>(row)]);
         k < static_cast<std::size_t>(csr.row_offsets[static_cast<std::size_t>(row) + 1]); ++k) {
      auto const relation = csr.relations[k];
      if (relations.attention) {
        auto const source = relation * num_columns + static_cast<std::size_t>(csr.columns[k]);
        if (!is_source[source]) ++pairs.sources;
        is_source[source] = true;
      }
      if (std::exchange(last_row[relation], row) == row) continue;
      ++pairs.all;
      if (relation < num_relations) continue;
      ++pairs.selves;
      pairs.roots += num_roots.at(relation - num_relations);
    }
  return pairs;
}

/// Whether all rows of F_l are kept: trained features, and what dense layers compute from them.
bool keeps_all(NetworkPlan const& plan, std::size_t l) {
  if (!plan.trained_features) return false;
  return std::ranges::none_of(plan.layers.begin(), plan.layers.begin() + static_cast<std::ptrdiff_t>(l),
                              &NetworkLayerPlan::aggregates);
}

/// The rows of F_l that are needed for the rows `outputs` of F_{l+1}.
pmm::KeptFlags needed_inputs(pmm::ProcessGrid const& grid, NetworkPlan const& plan, std::size_t l,
                             OwnedBlock& block, pmm::KeptRows const& outputs, std::size_t num_own) {
  auto const& layer = plan.layers[l];
  if (keeps_all(plan, l)) return pmm::KeptFlags(num_own, 1);
  auto const of_outputs = flags_of(outputs, num_own);
  if (!layer.aggregates()) return of_outputs;
  auto inputs = rows_touched_by(grid, layer.owners->roles, block.sizes,
                                {block.csr.row_offsets, block.csr.columns}, outputs);
  auto const needs_own = layer.needs_own_rows() || plan.jump;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (needs_own && of_outputs[i] != 0) inputs[i] = 1;
  return inputs;
}

} // namespace

Prune parse_prune(std::string_view word) {
  if (word == "off") return Prune::off;
  if (word == "on") return Prune::on;
  if (word == "auto") return Prune::automatic;
  runtime::throw_user("--prune is on, off or auto, not '{}'", word);
}

double PrunedRows::share() const {
  LayerCounts sum;
  for (auto const& layer : layers) {
    sum.num_rows += layer.num_rows;
    sum.num_nonzeros += layer.num_nonzeros;
  }
  auto const share_of = [](std::int64_t part, std::int64_t all) {
    return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(all, 1));
  };
  auto const num_blocks = std::ranges::count(aggregates, true);
  return std::max(share_of(sum.num_rows, whole.num_rows * std::ssize(layers)),
                  share_of(sum.num_nonzeros, whole.num_nonzeros * num_blocks));
}

bool is_prunable(NetworkPlan const& plan) {
  return std::ranges::all_of(plan.layers, [](NetworkLayerPlan const& layer) {
    auto const has_dots = layer.attention && layer.attention->has_dots();
    return layer.owners && layer.num_powers == 0 && !layer.own && !has_dots;
  });
}

PrunedRows find_pruned_rows(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                            NetworkPlan const& plan) {
  ORTHANT_REQUIRE(is_prunable(plan), "rows of this network are not pruned");
  auto const& roles = plan.layers.front().owners->roles;
  PrunedRows rows;
  auto const& relations = plan.layers.front().relations;
  rows.block = relations ? read_relation_block(grid, store, roles, relations->root_types)
                         : read_owned_block(grid, store, roles);
  auto const& sizes = rows.block.sizes;
  auto const& csr = rows.block.csr;
  // Ranks that differ only in b have the same block.
  auto const on_all_ranks = [&](std::int64_t num_nonzeros) {
    return runtime::all_reduced(grid.group(), num_nonzeros) / grid.size(roles.b);
  };
  rows.whole = {store.facts().num_vertices, on_all_ranks(csr.num_nonzeros())};

  auto const num_layers = plan.layers.size();
  rows.kept.resize(num_layers + 1);
  rows.local_nonzeros.resize(num_layers);
  rows.local_pairs.resize(num_layers);
  rows.layers.resize(num_layers);
  rows.keeps_rows.resize(num_layers);
  for (auto const& layer : plan.layers)
    rows.aggregates.push_back(layer.aggregates());
  auto const flags = training_rows(grid, store);
  rows.kept[num_layers] = share_kept_rows(grid, roles, sizes, flags);
  for (auto l = num_layers; l-- > 0;) {
    auto const& outputs = rows.kept[l + 1];
    rows.local_nonzeros[l] = rows.aggregates[l] ? num_nonzeros_in(csr, outputs.in_rows) : 0;
    if (relations && rows.aggregates[l])
      rows.local_pairs[l] = pairs_in(csr, outputs.in_rows, *plan.layers[l].relations);
    rows.layers[l] = {outputs.num_global, on_all_ranks(rows.local_nonzeros[l])};
    rows.kept[l] =
        share_kept_rows(grid, roles, sizes, needed_inputs(grid, plan, l, rows.block, outputs, flags.size()));
    auto const is_same = rows.kept[l].own == outputs.own ? 1 : 0;
    rows.keeps_rows[l] = runtime::all_reduced(grid.group(), is_same, runtime::Reduction::min) != 0;
  }
  return rows;
}

namespace {

/// The counts of make_relation_edges(), but for pairs of rows, of which the other ranks along a may have as many others.
pmm::RelationEdgeCounts at_most_relation_edges(pmm::ProcessGrid const& grid, pmm::Roles const& roles,
                                               NetworkLayerPlan const& layer, PrunedRows const& rows,
                                               std::size_t l) {
  if (!layer.relations || !layer.relations->attention) return {};
  auto const all = std::ssize(rows.kept[l + 1].in_rows) * layer.relations->attention->num_relations;
  return {.sources = rows.local_pairs[l].sources,
          .targets = std::min(all, rows.local_pairs[l].all * grid.size(roles.a)),
          .edges = rows.local_nonzeros[l]};
}

} // namespace

NetworkPlan pruned_plan(pmm::ProcessGrid const& grid, NetworkPlan plan, PrunedRows const& rows) {
  auto const keep = [&](pmm::Placement& placement, std::size_t l) {
    if (rows.is_whole(l)) return;
    placement.extents.rows = rows.kept[l].num_global;
    placement.own_rows = {grid.coordinate(pmm::group_axes), {0, std::ssize(rows.kept[l].own)}};
  };
  auto const keep_linear = [&](LinearPlan& linear, std::size_t l) {
    keep(linear.input, l);
    keep(linear.output, l);
  };
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (rows.has_whole_block(l)) continue;
    auto& layer = plan.layers[l];
    keep(layer.input, l);
    keep(layer.middle, layer.aggregates_first ? l + 1 : l);
    keep(layer.output, l + 1);
    if (layer.second) keep_linear(*layer.second, l + 1);
    if (layer.residual_map) keep_linear(*layer.residual_map, l);
    if (!layer.aggregates()) continue;
    layer.adjacency.extents = {rows.kept[l + 1].num_global, rows.kept[l].num_global};
    auto& owners = layer.owners.value();
    owners.backward = pmm::Flow::transpose;
    owners.kept =
        KeptBlock{sizes_of_kept(grid, owners.roles, rows.block.sizes, rows.kept[l], rows.kept[l + 1]),
                  {},
                  rows.local_nonzeros[l],
                  rows.local_pairs[l].all,
                  rows.local_pairs[l].selves,
                  rows.local_pairs[l].roots,
                  at_most_relation_edges(grid, owners.roles, layer, rows, l),
                  rows.shares_block(l)};
  }
  if (plan.projection) keep_linear(*plan.projection, 0);
  for (std::size_t k = 0; plan.jump && k < plan.jump->maps.size(); ++k)
    keep_linear(plan.jump->maps[k], plan.jump->layers[k] + 1);
  if (plan.head) keep_linear(*plan.head, plan.layers.size());
  if (plan.teleport) place_sites(plan);
  return plan;
}

OwnedBlock kept_block(pmm::ProcessGrid const& grid, pmm::Roles const& roles, PrunedRows const& rows,
                      std::size_t l) {
  auto const& columns = rows.kept[l];
  auto const& outputs = rows.kept[l + 1];
  auto const& whole = rows.block.csr;
  OwnedBlock kept;
  kept.sizes = sizes_of_kept(grid, roles, rows.block.sizes, columns, outputs);
  kept.scales = {pmm::at_places(rows.block.scales.rows, outputs.in_rows),
                 pmm::at_places(rows.block.scales.columns, columns.in_columns)};

  std::vector<LocalColumn> place_of(static_cast<std::size_t>(rows.block.sizes.num_columns()), -1);
  for (std::size_t i = 0; i < columns.in_columns.size(); ++i)
    place_of[static_cast<std::size_t>(columns.in_columns[i])] = static_cast<LocalColumn>(i);
  auto& csr = kept.csr;
  csr.rows = {0, std::ssize(outputs.in_rows)};
  csr.columns_range = {0, std::ssize(columns.in_columns)};
  csr.num_features = whole.num_features;
  csr.row_offsets.push_back(0);
  for (auto const row : outputs.in_rows) {
    auto const i = static_cast<std::size_t>(row);
    for (auto k = static_cast<std::size_t>(whole.row_offsets[i]);
         k < static_cast<std::size_t>(whole.row_offsets[i + 1]); ++k) {
      csr.columns.push_back(place_of[static_cast<std::size_t>(whole.columns[k])]);
      if (!whole.values.empty()) csr.values.push_back(whole.values[k]);
      if (!whole.relations.empty()) csr.relations.push_back(whole.relations[k]);
      auto const features = whole.features.begin() + static_cast<std::int64_t>(k) * whole.num_features;
      csr.features.insert(csr.features.end(), features, features + whole.num_features);
    }
    csr.row_offsets.push_back(std::ssize(csr.columns));
  }
  return kept;
}

} // namespace orthant::models
