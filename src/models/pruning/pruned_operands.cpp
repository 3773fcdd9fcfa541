// SPDX-License-Identifier: Apache-2.0
#include "models/pruning/pruned_operands.hpp"

#include "models/core/device_copy.hpp"
#include "pmm/aggregate/row_lists.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using Places = std::vector<runtime::LocalColumn>;

/// Elements `width` at a time.
template<class Number>
runtime::Vector<Number> picked(char const* label, runtime::Vector<Number> const& numbers,
                               Places const& places, std::size_t width = 1) {
  HostNumbers<Number> const all(numbers);
  std::vector<Number> kept;
  kept.reserve(places.size() * width);
  for (auto const place : places) {
    auto const row = all.values().subspan(static_cast<std::size_t>(place) * width, width);
    kept.insert(kept.end(), row.begin(), row.end());
  }
  return to_vector<Number>(label, kept);
}

/// Rows of sparse features, with the transpose that goes with them.
template<class T>
pmm::DistSparse<T> picked_rows(pmm::ProcessGrid const& grid, pmm::DistSparse<T> const& features,
                               pmm::Placement const& placement, Places const& rows) {
  auto const& whole = features.forward().block();
  HostNumbers<runtime::Offset> const offsets(whole.csr.row_offsets);
  HostNumbers<runtime::LocalColumn> const columns(whole.csr.columns);
  HostNumbers<T> const values(whole.csr.values);
  std::vector<runtime::Offset> kept_offsets{0};
  Places kept_columns;
  std::vector<T> kept_values;
  for (auto const row : rows) {
    auto const begin = static_cast<std::size_t>(offsets.values()[static_cast<std::size_t>(row)]);
    auto const end = static_cast<std::size_t>(offsets.values()[static_cast<std::size_t>(row) + 1]);
    auto const append = [&](auto const& from, auto& to) {
      auto const part = from.values().subspan(begin, end - begin);
      to.insert(to.end(), part.begin(), part.end());
    };
    append(columns, kept_columns);
    if (!values.values().empty()) append(values, kept_values);
    kept_offsets.push_back(std::ssize(kept_columns));
  }
  pmm::SparseBlock<T> block;
  block.csr = {std::ssize(rows), whole.csr.num_columns,
               to_vector<runtime::Offset>("orthant::models::csr/row_offsets", kept_offsets),
               to_vector<runtime::LocalColumn>("orthant::models::csr/columns", kept_columns),
               to_vector<T>("orthant::models::csr/values", kept_values)};
  if (whole.row_scale.extent(0) > 0)
    block.row_scale = picked("orthant::models::feature_scale", whole.row_scale, rows);
  return pmm::DistSparse<T>(grid, placement, block, pmm::Adjoint::kept);
}

template<class T>
InputFeatures<T> picked_features(pmm::ProcessGrid const& grid, InputFeatures<T> const& features,
                                 pmm::Placement const& placement, Places const& rows) {
  InputFeatures<T> kept;
  kept.is_sparse = features.is_sparse;
  kept.keys = {picked("orthant::models::original_ids", features.keys.original_ids, rows),
               features.keys.first_column};
  if (features.is_sparse) {
    kept.sparse = picked_rows(grid, features.sparse, placement, rows);
    return kept;
  }
  kept.dense = pmm::DistMatrix<T>(grid, placement, "orthant::models::features");
  auto const list = to_vector<runtime::LocalColumn>("orthant::models::kept_rows", rows);
  runtime::DefaultExec const exec;
  pmm::pick_rows(exec, grid.passes(), features.dense.storage(), list, placement.extents.columns,
                 kept.dense.storage());
  runtime::compat::fence(exec, "orthant::models::picked_features/the list is let go");
  return kept;
}

} // namespace

template<class T>
NetworkOperands<T> make_pruned_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                        NetworkPlan const& plan, NetworkSettings const& settings,
                                        PrunedRows const& rows, InputFeatures<T> const& features,
                                        std::optional<OwnedAdjacency<T>> const& whole) {
  NetworkOperands<T> operands;
  operands.plan = pruned_plan(grid, plan, rows);
  auto const ids = read_block_keys(grid, store, plan.logits()).original_ids;
  operands.features = rows.is_whole(0)
                          ? features
                          : picked_features(grid, features, operands.plan.features(), rows.kept[0].own);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto& layer = operands.plan.layers[l];
    auto const& outputs = rows.kept[l + 1].own;
    if (rows.has_whole_block(l)) {
      ORTHANT_REQUIRE(whole, "layer ", l, " needs the block of the whole graph");
      operands.adjacency.push_back(*whole);
    } else {
      auto made =
          make_owned_adjacency<T>(grid, layer.owners->roles, kept_block(grid, layer.owners->roles, rows, l),
                                  settings.gather, layer.owners->backward);
      layer.owners->kept->needed = made.needed->counts();
      operands.adjacency.push_back(std::move(made));
    }
    operands.output_keys.push_back(has_output_keys(plan, settings, l)
                                       ? BlockKeys{picked("orthant::models::original_ids", ids, outputs), 0}
                                       : BlockKeys{});
    if (!layer.is_residual) {
      operands.residuals.emplace_back();
    } else if (rows.has_whole_block(l)) {
      operands.residuals.push_back(ResidualPath<T>::local());
    } else {
      // Places of the output's rows among those of the input; both ascend.
      auto const& inputs = rows.kept[l].own;
      Places places;
      for (auto const row : outputs)
        places.push_back(
            static_cast<runtime::LocalColumn>(std::ranges::lower_bound(inputs, row) - inputs.begin()));
      operands.residuals.push_back(ResidualPath<T>::of_kept_rows(
          std::make_shared<pmm::RowSelection>(pmm::make_row_selection(places, std::ssize(inputs)))));
    }
  }
  return operands;
}

pmm::RowTargets pruned_targets(pmm::RowTargets const& targets, PrunedRows const& rows) {
  auto const& places = rows.kept.back().own;
  pmm::RowTargets kept;
  kept.groups = picked("orthant::models::splits", targets.groups, places);
  if (targets.classes.extent(0) > 0)
    kept.classes = picked("orthant::models::classes", targets.classes, places);
  auto const num_classes = targets.indicator.extent(1);
  if (num_classes == 0) return kept;
  using Flat = runtime::Vector<std::int8_t>;
  auto const label = "orthant::models::label_indicator";
  kept.indicator = runtime::Matrix<std::int8_t>(std::string(label), places.size(), num_classes);
  Kokkos::deep_copy(
      Flat(kept.indicator.data(), kept.indicator.size()),
      picked(label, Flat(targets.indicator.data(), targets.indicator.size()), places, num_classes));
  return kept;
}

template NetworkOperands<float> make_pruned_operands(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                     NetworkPlan const&, NetworkSettings const&,
                                                     PrunedRows const&, InputFeatures<float> const&,
                                                     std::optional<OwnedAdjacency<float>> const&);
template NetworkOperands<double> make_pruned_operands(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                      NetworkPlan const&, NetworkSettings const&,
                                                      PrunedRows const&, InputFeatures<double> const&,
                                                      std::optional<OwnedAdjacency<double>> const&);

} // namespace orthant::models
