// SPDX-License-Identifier: Apache-2.0
#include "models/gcn_plan.hpp"

#include "runtime/error.hpp"

namespace orthant::models {
namespace {

using pmm::Axis;
using pmm::IndexOrder;
using pmm::Layout;
using pmm::Storage;

struct Roles {
  Axis a = Axis::x;
  Axis b = Axis::y;
  Axis c = Axis::z;
};

/// Columns gathered by the layer's sparse products of one epoch, forward and backward.
bool aggregating_first_is_cheaper(GcnShape const& shape, std::size_t layer) {
  auto const in = shape.widths[layer];
  auto const out = shape.widths[layer + 1];
  auto const is_first = layer == 0;
  auto const forward = is_first && !shape.has_input_dropout && !shape.features_need_gradient ? 0 : in;
  auto const backward = is_first && !shape.features_need_gradient ? 0 : in;
  return forward + backward <= 2 * out;
}

} // namespace

ProductOrder parse_product_order(std::string_view word) {
  if (word == "auto") return ProductOrder::automatic;
  if (word == "aggregate") return ProductOrder::aggregate_first;
  if (word == "transform") return ProductOrder::transform_first;
  runtime::throw_user("--order is auto, aggregate or transform, not '{}'", word);
}

std::vector<GcnLayerPlan> plan_gcn(GcnShape const& shape, ProductOrder order) {
  ORTHANT_REQUIRE(shape.widths.size() >= 2, "a GCN needs a layer");
  std::vector<GcnLayerPlan> layers;
  Roles r;
  for (std::size_t l = 0; l + 1 < shape.widths.size(); ++l) {
    auto const n = shape.num_vertices;
    auto const in = shape.widths[l];
    auto const out = shape.widths[l + 1];
    auto const is_sparse = l == 0 && shape.has_sparse_features;
    auto const is_even = l % 2 == 0;
    auto const to = is_even ? IndexOrder::p1 : IndexOrder::p2;
    auto const from = is_even ? IndexOrder::p2 : IndexOrder::p1;
    auto const natural = IndexOrder::natural;

    GcnLayerPlan layer;
    layer.index = static_cast<std::int64_t>(l);
    layer.is_even = is_even;
    layer.aggregates_first =
        !is_sparse && (order == ProductOrder::aggregate_first ||
                       (order == ProductOrder::automatic && aggregating_first_is_cheaper(shape, l)));
    layer.input = {Layout{r.a, r.b, Storage::replicated, from, natural}, {n, in}};
    if (layer.aggregates_first) {
      layer.adjacency = {Layout{r.c, r.a, Storage::replicated, to, from}, {n, n}};
      layer.middle = {Layout{r.c, r.b, Storage::replicated, to, natural}, {n, in}};
      layer.weight = {Layout{r.b, r.a, Storage::flat_sharded, natural, natural}, {in, out}};
      layer.output = {Layout{r.c, r.a, Storage::replicated, to, natural}, {n, out}};
      r = {r.c, r.a, r.b};
    } else {
      layer.weight = {Layout{r.b, r.c, Storage::flat_sharded, natural, natural}, {in, out}};
      layer.middle = {Layout{r.a, r.c, Storage::replicated, from, natural}, {n, out}};
      layer.adjacency = {Layout{r.b, r.a, Storage::replicated, to, from}, {n, n}};
      layer.output = {Layout{r.b, r.c, Storage::replicated, to, natural}, {n, out}};
      r = {r.b, r.c, r.a};
    }
    layers.push_back(layer);
  }
  return layers;
}

} // namespace orthant::models
