// SPDX-License-Identifier: Apache-2.0
#include "pmm/product/pmm.hpp"

namespace orthant::pmm {
namespace {

void require_composes(Form form, Placement const& left, Placement const& right, Placement const& result) {
  switch (form) {
  case Form::product:
    return require_composes("C = A B", left, right, result);
  case Form::left_grad:
    return require_composes("A = C B^T", result, right, left);
  case Form::right_grad:
    return require_composes("B = A^T C", left, result, right);
  }
}

} // namespace

void plan_product(StepPlan& step, ProductPlan const& plan, std::optional<std::int64_t> num_nonzeros) {
  require_composes(plan.form, plan.left, plan.right, plan.result);
  if (!num_nonzeros) plan_read(step, plan.left, plan.options.operand_wire);
  plan_read(step, plan.right, plan.options.operand_wire);
  auto const left = step.block(plan.left);
  auto const right = step.block(plan.right);
  auto const is_left_transposed = plan.form == Form::right_grad;
  LocalProduct product;
  product.formula = plan.formula;
  product.form = plan.form;
  product.left = plan.left;
  product.is_sparse = num_nonzeros.has_value();
  product.num_nonzeros = num_nonzeros.value_or(0);
  product.m = is_left_transposed ? left.columns.size() : left.rows.size();
  product.k = is_left_transposed ? left.rows.size() : left.columns.size();
  product.n = plan.form == Form::left_grad ? right.rows.size() : right.columns.size();
  step.add_product(std::move(product));
  plan_write(step, plan.result, plan.options.result_wire, plan.options.num_chunks);
}

void plan_buffers(WorkspacePlan& work, StepPlan const& step, ProductPlan const& plan) {
  BlockRead const left(step.shape(), step.coordinates(), plan.left);
  BlockRead const right(step.shape(), step.coordinates(), plan.right);
  BlockWrite const result(step.shape(), step.coordinates(), plan.result, plan.options.num_chunks);
  work.reserve(Slot::left, left.num_gathered);
  work.reserve(Slot::right, right.num_gathered);
  work.reserve(Slot::result, result.num_partial);
}

template<class T>
Product<T>::Product(ProcessGrid const& grid, Form form, Placement const& left, Placement const& right,
                    Placement const& result, ProductOptions const& options,
                    std::shared_ptr<Workspace<T>> workspace)
    : grid_(&grid),
      form_(form),
      left_placement_(left),
      workspace_(workspace ? std::move(workspace) : std::make_shared<Workspace<T>>()),
      left_((require_composes(form, left, right, result), grid), left, options.operand_wire, workspace_,
            Slot::left),
      right_(grid, right, options.operand_wire, workspace_, Slot::right),
      result_(grid, result, options.result_wire, options.num_chunks, workspace_, Slot::result) {}

/// Chunk by chunk: product, then its reduction, which runs behind the next product.
template<class T>
template<class Multiply>
void Product<T>::multiply(DefaultExec const& exec, DistMatrix<T> const& result, Completion completion,
                          Multiply const& local_product) {
  auto const partial = result_.partial(exec, result);
  if (result_.num_chunks() == 1 && (completion == Completion::now || !result_.can_hide())) {
    local_product(result_.chunk(0), partial);
    return result_.reduce(exec, result);
  }
  for (std::int64_t i = 0; i < result_.num_chunks(); ++i) {
    local_product(result_.chunk(i), partial);
    result_.start(exec, result, i);
  }
  if (completion == Completion::now) result_.finish();
}

template<class T>
void Product<T>::compute(DefaultExec const& exec, DistMatrix<T> const& left, DistMatrix<T> const& right,
                         DistMatrix<T> const& result, Completion completion) {
  if (!left_.is_started()) left_.start(exec, left);
  if (!right_.is_started()) right_.start(exec, right);
  Panel<T> const l = left_.finish();
  Panel<T> const r = right_.finish();
  auto const inner = form_ == Form::right_grad ? l.num_rows : l.num_columns;
  auto& counted = grid_->world().instruments().flops.dense;
  multiply(exec, result, completion, [&](Range rows, Matrix<T> const& partial) {
    counted += 2 * rows.size() * inner * static_cast<std::int64_t>(partial.extent(1));
    auto const c = Panel<T>(partial).rows(rows);
    switch (form_) {
    case Form::product:
      return local_gemm<T>(exec, 1, Transpose::no, l.rows(rows), Transpose::no, r, 0, c);
    case Form::left_grad:
      return local_gemm<T>(exec, 1, Transpose::no, l.rows(rows), Transpose::yes, r, 0, c);
    case Form::right_grad:
      return local_gemm<T>(exec, 1, Transpose::yes, l.columns(rows), Transpose::no, r, 0, c);
    }
  });
}

template<class T>
void Product<T>::compute(DefaultExec const& exec, DistSparse<T> const& left, DistMatrix<T> const& right,
                         DistMatrix<T> const& result, Completion completion) {
  ORTHANT_REQUIRE(form_ != Form::left_grad,
                  "a sparse matrix has no gradient: ", left.placement().to_string());
  ORTHANT_REQUIRE(left.placement() == left_placement_, "the left operand is ", left.placement().to_string(),
                  "; planned was ", left_placement_.to_string());
  auto const& kernel = form_ == Form::product ? left.forward() : left.adjoint();
  if (!right_.is_started()) right_.start(exec, right);
  auto const r = right_.finish();
  grid_->world().instruments().flops.sparse +=
      2 * kernel.block().csr.num_nonzeros() * static_cast<std::int64_t>(r.extent(1));
  multiply(exec, result, completion,
           [&](Range rows, Matrix<T> const& partial) { kernel.apply(exec, rows, r, partial); });
}

template class Product<float>;
template class Product<double>;

} // namespace orthant::pmm
