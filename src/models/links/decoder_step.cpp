// SPDX-License-Identifier: Apache-2.0
#include "models/links/decoder_step.hpp"

#include "pmm/pairs/pair_layers.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace orthant::models {
namespace {

/// A dense product with an operand [m x k], or [k x m] of a right_grad.
void plan_dense_product(pmm::StepPlan& step, std::string formula, pmm::Form form, std::int64_t m,
                        std::int64_t n, std::int64_t k) {
  pmm::LocalProduct product;
  product.formula = std::move(formula);
  product.form = form;
  product.m = m;
  product.n = n;
  product.k = k;
  step.add_product(std::move(product));
}

std::int64_t width_of_part(pmm::StepPlan const& step, LinkPlan const& plan) {
  return pmm::BlockRowsSteps(step.shape(), step.coordinates(), plan.of(pmm::BlockSide::rows)).part.columns();
}

} // namespace

std::int64_t links_at_once(LinkPlan const& plan, std::int64_t num_positives) {
  constexpr std::int64_t fewest = 4096; // fewer are no work for products and messages
  return std::max(fewest, std::min(plan.cells.num_rows() + plan.cells.num_columns(), num_positives));
}

void plan_decoded_links(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives,
                        std::int64_t num_links, bool differentiates) {
  auto const [hidden, has_bias] = plan.decoder.value();
  auto const width = width_of_part(step, plan);
  auto const at_once = links_at_once(plan, num_positives);
  auto const is_first = step.coordinates().along(plan.roles.b) == 0;
  for (std::int64_t begin = 0; begin < num_links; begin += at_once) {
    auto const n = std::min(at_once, num_links - begin);
    pmm::plan_multiply_pairs(step, n, width);
    plan_dense_product(step, "Z = G W1", pmm::Form::product, n, hidden, width);
    step.add_call(runtime::Operation::all_reduce, plan.roles.b, step.scalar_bytes(n * hidden));
    pmm::plan_score_hidden(step, n, hidden);
    if (!differentiates) continue;
    pmm::plan_differentiate_hidden(step, n, hidden);
    if (is_first) {
      plan_dense_product(step, "dw2 = R^T s", pmm::Form::right_grad, 1, hidden, n);
      if (has_bias) plan_dense_product(step, "db1 = dZ^T 1", pmm::Form::right_grad, 1, hidden, n);
      if (has_bias) plan_dense_product(step, "db2 = s^T 1", pmm::Form::right_grad, 1, 1, n);
    }
    plan_dense_product(step, "dW1 = G^T dZ", pmm::Form::right_grad, width, hidden, n);
    plan_dense_product(step, "dG = dZ W1^T", pmm::Form::left_grad, n, width, hidden);
    pmm::plan_add_pair_gradients(step, n, plan.cells.num_rows(), width, false);
    pmm::plan_add_pair_gradients(step, n, plan.cells.num_columns(), width, true);
  }
}

void plan_decoder_arrays(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives) {
  auto const n = links_at_once(plan, num_positives);
  auto const hidden = plan.decoder.value().hidden_width;
  for (auto const& [label, count] :
       {std::pair("orthant::models::link_products", n * width_of_part(step, plan)),
        {"orthant::models::link_hidden", n * hidden},
        {"orthant::models::link_hidden_gradient", n * hidden},
        {"orthant::models::link_slopes", n},
        {"orthant::models::link_ones", n}})
    step.add_array(label, step.scalar_bytes(count));
}

} // namespace orthant::models
