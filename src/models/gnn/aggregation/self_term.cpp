// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/self_term.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/packs.hpp"

#include <algorithm>
#include <type_traits>

namespace orthant::models {

using runtime::DefaultExec;

namespace {

/// Elementwise sum := x + y, on a device.
template<class T>
struct AddPack {
  pmm::PackedArray<T const> x, y;
  pmm::PackedArray<T> sum;

  KOKKOS_FUNCTION void operator()(std::int64_t first, std::int64_t count) const {
    auto pack = x.load(first, count);
    pmm::add(pack, y.load(first, count));
    sum.store(first, count, pack);
  }
};

} // namespace

template<class T>
ResidualPath<T> make_residual_path(pmm::ProcessGrid const& grid, pmm::Placement const& input,
                                   pmm::Placement const& output, std::vector<std::int64_t> const& input_rows,
                                   std::vector<std::int64_t> const& output_rows) {
  return {std::make_shared<pmm::Relayout<T> const>(grid, input, output, input_rows),
          std::make_shared<pmm::Relayout<T> const>(grid, output, input, output_rows)};
}

void plan_selection_arrays(pmm::StepPlan& step, pmm::Placement const& input, pmm::Placement const& output) {
  plan_row_selection(step, step.block(output).rows.size(), step.block(input).rows.size());
}

void plan_residual_arrays(pmm::StepPlan& step, NetworkLayerPlan const& plan,
                          NetworkEpochTraits const& traits) {
  if (!plan.is_residual || keeps_residual(plan)) return;
  if (plan.owners) return plan_selection_arrays(step, plan.residual_source(), plan.result());
  for (auto const is_backward : {false, true})
    plan_relayout_arrays(step, traits.residual_sizes(plan, is_backward));
}

template<class T>
void add(DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y,
         pmm::DistMatrix<T> const& sum) {
  ORTHANT_REQUIRE(x.placement() == y.placement() && x.placement() == sum.placement(),
                  x.placement().to_string(), " and ", y.placement().to_string(), " added to ",
                  sum.placement().to_string());
  constexpr auto label = "orthant::models::add";
  T const* const left = x.storage().data();
  T const* const right = y.storage().data();
  T* const result = sum.storage().data();
  auto const count = sum.block().num_stored;
  auto const bytes = count * static_cast<std::int64_t>(sizeof(T));
  x.grid().passes().add({"add", 2 * bytes, bytes});
  if constexpr (pmm::runs_on_host)
    pmm::for_each_part(exec, label, count, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (auto i = begin; i < end; ++i)
        result[i] = T(left[i] + right[i]);
    });
  else
    pmm::for_each_pack<T>(exec, label, count,
                          AddPack<T>{pmm::PackedArray<T const>(left), pmm::PackedArray<T const>(right),
                                     pmm::PackedArray<T>(result)});
}

template ResidualPath<float> make_residual_path(pmm::ProcessGrid const&, pmm::Placement const&,
                                                pmm::Placement const&, std::vector<std::int64_t> const&,
                                                std::vector<std::int64_t> const&);
template ResidualPath<double> make_residual_path(pmm::ProcessGrid const&, pmm::Placement const&,
                                                 pmm::Placement const&, std::vector<std::int64_t> const&,
                                                 std::vector<std::int64_t> const&);
#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void add(DefaultExec const&, pmm::DistMatrix<T> const&, pmm::DistMatrix<T> const&,                \
                    pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

void SelfScratchPlan::add(pmm::StepPlan const& step, NetworkLayerPlan const& layer,
                          bool needs_input_gradient) {
  auto const numbers_of = [&](pmm::Placement const& placement) { return step.block(placement).num_padded; };
  auto const is_local = keeps_rows(layer);
  if (layer.has_self_scale) {
    sum = 1;
    if (!is_local) moved = std::max(moved, numbers_of(layer.aggregated()));
  }
  if (!layer.has_self_weight) return;
  if (layer.aggregates_first) {
    if (!needs_input_gradient) return;
    product = std::max(product, numbers_of(layer.middle));           // dS
    if (!is_local) moved = std::max(moved, numbers_of(layer.input)); // R^T dS
    return;
  }
  product = std::max(product, numbers_of(layer.middle));                                        // V
  if (needs_input_gradient) product = std::max(product, numbers_of(layer.input));               // dV W'^T
  if (!is_local) moved = std::max({moved, numbers_of(layer.output), numbers_of(layer.middle)}); // R V, R^T dQ
}

void SelfScratchPlan::list(pmm::StepPlan& step) const {
  step.add_array("orthant::models::self_product", step.scalar_bytes(product));
  step.add_array("orthant::models::self_moved", step.scalar_bytes(moved));
  step.add_array("orthant::models::self_sum", sum * static_cast<std::int64_t>(sizeof(double)));
}

void plan_self_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer) {
  if (layer.has_self_weight && layer.aggregates_first && !keeps_rows(layer))
    plan_matrix(step, layer.middle, "orthant::models::self");
  if (layer.has_self_scale && keeps_brought(layer))
    plan_matrix(step, layer.aggregate(), "orthant::models::self");
}

void plan_self_path_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                           NetworkEpochTraits const& traits) {
  if (!layer.brings_itself() || keeps_rows(layer)) return;
  if (layer.owners) return plan_selection_arrays(step, layer.input, layer.output);
  for (auto const is_backward : {false, true})
    plan_relayout_arrays(step, traits.self_sizes(layer, is_backward));
}

template<class T>
SelfTerm<T>::SelfTerm(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                      NumberFormats const& formats, NetworkLayerParameters<Sum> const& parameters,
                      bool needs_input_gradient, ResidualPath<Sum> path,
                      std::shared_ptr<pmm::Workspace<Sum>> workspace, SelfScratch<T>& scratch,
                      GrowingVector<T>& own)
    : aggregates_first_(plan.aggregates_first),
      needs_input_gradient_(needs_input_gradient),
      path_(std::move(path)),
      weight_(parameters.self_weight),
      weight_gradient_(parameters.self_weight_gradient),
      transform_(grid, self_products_of(plan, formats).transform, workspace),
      weight_back_(grid, self_products_of(plan, formats).weight_back, workspace),
      transform_back_(grid, self_products_of(plan, formats).transform_back, workspace) {
  auto const lent = [&](pmm::Placement const& placement, GrowingVector<T>& memory) {
    return pmm::DistMatrix<T>(grid, placement, memory.reserve(pmm::block_of(grid, placement).num_padded));
  };
  auto const is_local = path_.is_local;
  if (aggregates_first_) {
    if (!is_local) brought_ = lent(plan.middle, own);
    if (!needs_input_gradient) return;
    input_product_ = lent(plan.middle, scratch.product);
    input_addend_ = is_local ? input_product_ : lent(plan.input, scratch.moved);
    return;
  }
  product_ = lent(plan.middle, scratch.product);
  addend_ = is_local ? product_ : lent(plan.output, scratch.moved);
  if (!is_local) brought_back_ = lent(plan.middle, scratch.moved);
  if (needs_input_gradient) input_addend_ = input_product_ = lent(plan.input, scratch.product);
}

template<class T>
template<class Features>
void SelfTerm<T>::start(DefaultExec const& exec, Features const& features) {
  if (!aggregates_first_) {
    // V[a,c] := sum_b F[a,b] W'[b,c]
    transform_.run(exec, features, weight_, product_);
    if (!path_.is_local) path_.bring(exec, product_, addend_);
  } else if constexpr (std::is_same_v<Features, pmm::DistMatrix<T>>) {
    // S[c,b] := R F[a,b]
    if (path_.is_local)
      brought_ = features;
    else
      path_.bring(exec, features, brought_);
  }
}

template<class T>
void SelfTerm<T>::finish(DefaultExec const& exec, pmm::DistMatrix<T> const& output) {
  // Q[c,a] += sum_b S[c,b] W'[b,a];  Q[b,c] += R V
  if (aggregates_first_)
    transform_.run(exec, brought_, weight_, output);
  else
    add(exec, output, addend_, output);
}

template<class T>
template<class Features>
void SelfTerm<T>::backward(DefaultExec const& exec, Features const& features,
                           pmm::DistMatrix<T> const& output_gradient) {
  if (aggregates_first_) {
    weight_back_.run(exec, brought_, output_gradient, weight_gradient_);
    if (!needs_input_gradient_) return;
    // dS[c,b] := sum_a dQ[c,a] W'[b,a]^T
    transform_back_.run(exec, output_gradient, weight_, input_product_);
    if (!path_.is_local) path_.bring_back(exec, input_product_, input_addend_);
    return;
  }
  // dV[a,c] := R^T dQ[b,c]
  if (!path_.is_local) path_.bring_back(exec, output_gradient, brought_back_);
  auto const& gradient = path_.is_local ? output_gradient : brought_back_;
  weight_back_.run(exec, features, gradient, weight_gradient_);
  if (needs_input_gradient_) transform_back_.run(exec, gradient, weight_, input_product_);
}

template<class T>
void SelfTerm<T>::finish_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& input_gradient) const {
  if (needs_input_gradient_) add(exec, input_gradient, input_addend_, input_gradient);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template class SelfTerm<T>;                                                                                \
  ORTHANT_INSTANTIATE_FOR(T, pmm::DistMatrix<T>)                                                             \
  ORTHANT_INSTANTIATE_FOR(T, pmm::DistSparse<T>)
#define ORTHANT_INSTANTIATE_FOR(T, Features)                                                                 \
  template void SelfTerm<T>::start(DefaultExec const&, Features const&);                                     \
  template void SelfTerm<T>::backward(DefaultExec const&, Features const&, pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE_FOR
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
