// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/pruning/pruned_rows.hpp"

#include "models/gnn/operands/graph_operands.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>

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
  auto const share_of = [&](std::int64_t part, std::int64_t all) {
    return static_cast<double>(part) /
           static_cast<double>(std::max<std::int64_t>(all * std::ssize(layers), 1));
  };
  return std::max(share_of(sum.num_rows, whole.num_rows), share_of(sum.num_nonzeros, whole.num_nonzeros));
}

PrunedRows find_pruned_rows(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                            NetworkPlan const& plan) {
  ORTHANT_REQUIRE(plan.layers.front().owners, "rows are pruned between owners of vertices");
  ORTHANT_REQUIRE(!plan.layers.front().reads_itself(), "rows are pruned of a GCN");
  auto const& roles = plan.layers.front().owners->roles;
  PrunedRows rows;
  rows.block = read_owned_block(grid, store, roles);
  auto& [sizes, csr, scales, transposed_scales] = rows.block;
  // Ranks that differ only in b have the same block.
  auto const on_all_ranks = [&](std::int64_t num_nonzeros) {
    return runtime::all_reduced(grid.group(), num_nonzeros) / grid.size(roles.b);
  };
  rows.whole = {store.facts().num_vertices, on_all_ranks(csr.num_nonzeros())};

  auto const num_layers = plan.layers.size();
  rows.kept.resize(num_layers + 1);
  rows.local_nonzeros.resize(num_layers);
  rows.layers.resize(num_layers);
  auto flags = training_rows(grid, store);
  rows.kept[num_layers] = share_kept_rows(grid, roles, sizes, flags);
  for (auto l = num_layers; l-- > 0;) {
    auto const& outputs = rows.kept[l + 1];
    rows.local_nonzeros[l] = num_nonzeros_in(csr, outputs.in_rows);
    rows.layers[l] = {outputs.num_global, on_all_ranks(rows.local_nonzeros[l])};

    auto inputs = rows_touched_by(grid, roles, sizes, {csr.row_offsets, csr.columns}, outputs);
    auto const of_outputs = flags_of(outputs, flags.size());
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if ((l == 0 && plan.trained_features) || (plan.layers[l].is_residual && of_outputs[i] != 0))
        inputs[i] = 1;
    rows.kept[l] = share_kept_rows(grid, roles, sizes, inputs);
  }
  return rows;
}

NetworkPlan pruned_plan(pmm::ProcessGrid const& grid, NetworkPlan plan, PrunedRows const& rows) {
  auto const keep = [&](pmm::Placement& placement, std::size_t l) {
    if (rows.is_whole(l)) return;
    placement.extents.rows = rows.kept[l].num_global;
    placement.own_rows = {grid.coordinate(pmm::group_axes), {0, std::ssize(rows.kept[l].own)}};
  };
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (rows.has_whole_block(l)) continue;
    auto& layer = plan.layers[l];
    keep(layer.input, l);
    keep(layer.middle, layer.aggregates_first ? l + 1 : l);
    keep(layer.output, l + 1);
    layer.adjacency.extents = {rows.kept[l + 1].num_global, rows.kept[l].num_global};
    auto& owners = layer.owners.value();
    owners.backward = pmm::Flow::transpose;
    owners.kept =
        KeptBlock{sizes_of_kept(grid, owners.roles, rows.block.sizes, rows.kept[l], rows.kept[l + 1]),
                  {},
                  rows.local_nonzeros[l]};
  }
  if (plan.projection) {
    keep(plan.projection->input, 0);
    keep(plan.projection->output, 0);
  }
  if (plan.head) {
    keep(plan.head->input, plan.layers.size());
    keep(plan.head->output, plan.layers.size());
  }
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
  csr.row_offsets.push_back(0);
  for (auto const row : outputs.in_rows) {
    auto const i = static_cast<std::size_t>(row);
    for (auto k = static_cast<std::size_t>(whole.row_offsets[i]);
         k < static_cast<std::size_t>(whole.row_offsets[i + 1]); ++k) {
      csr.columns.push_back(place_of[static_cast<std::size_t>(whole.columns[k])]);
      if (!whole.values.empty()) csr.values.push_back(whole.values[k]);
    }
    csr.row_offsets.push_back(std::ssize(csr.columns));
  }
  return kept;
}

} // namespace orthant::models
