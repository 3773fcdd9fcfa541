// SPDX-License-Identifier: Apache-2.0
#include "pmm/product/product.hpp"

#include <type_traits>

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

template<class Operand, class Result>
void require_formats_of(ProductOptions const& options) {
  ORTHANT_REQUIRE(options.operand_format == runtime::format_of<Operand> &&
                      options.result_format == runtime::format_of<Result>,
                  "a product of other formats was planned: ", static_cast<int>(options.operand_format),
                  " and ", static_cast<int>(options.result_format));
  require_formats(options, sizeof(runtime::SumOf<Result>));
}

} // namespace

void require_formats(ProductOptions const& options, std::int64_t scalar_bytes) {
  auto const has_16_bits = options.operand_format != Wire::native;
  ORTHANT_REQUIRE(options.result_format == Wire::native || options.result_format == options.operand_format,
                  "a 16-bit result needs operands in its format");
  ORTHANT_REQUIRE(!has_16_bits || scalar_bytes == sizeof(float),
                  "16-bit operands are summed in fp32, not in ", scalar_bytes, " bytes");
  ORTHANT_REQUIRE(!has_16_bits || options.operand_wire == Wire::native,
                  "16-bit operands travel as they are, without a wire format");
}

void plan_product(StepPlan& step, ProductPlan const& plan, std::optional<std::int64_t> num_nonzeros) {
  require_composes(plan.form, plan.left, plan.right, plan.result);
  require_formats(plan.options, step.scalar_bytes(1));
  if (!num_nonzeros) plan_read(step, plan.left, plan.options);
  plan_read(step, plan.right, plan.options);
  auto const left = step.block(plan.left);
  auto const right = step.block(plan.right);
  auto const is_left_transposed = plan.form == Form::right_grad;
  LocalProduct product;
  product.formula = plan.formula;
  product.form = plan.form;
  product.left = plan.left;
  product.is_sparse = num_nonzeros.has_value();
  product.operand_format = plan.options.operand_format;
  product.num_nonzeros = num_nonzeros.value_or(0);
  product.m = is_left_transposed ? left.columns.size() : left.rows.size();
  product.k = is_left_transposed ? left.rows.size() : left.columns.size();
  product.n = plan.form == Form::left_grad ? right.rows.size() : right.columns.size();
  step.add_product(std::move(product));
  plan_write(step, plan.result, plan.options);
}

void plan_buffers(WorkspacePlan& work, StepPlan const& step, ProductPlan const& plan) {
  auto const& options = plan.options;
  require_formats(options, step.scalar_bytes(1));
  BlockRead const left(step.shape(), step.coordinates(), plan.left);
  BlockRead const right(step.shape(), step.coordinates(), plan.right);
  BlockWrite const result(step.shape(), step.coordinates(), plan.result, options);
  auto const scalars = [&](BlockRead const& read) {
    return num_holding(read.num_gathered, step.wire_bytes(1, options.operand_format), step.scalar_bytes(1));
  };
  work.reserve(Slot::left, scalars(left));
  work.reserve(Slot::right, scalars(right));
  work.reserve(Slot::result, result.num_partial);
  work.reserve(Slot::sums, result.num_sums);
}

template<class Operand, class Result>
Product<Operand, Result>::Product(ProcessGrid const& grid, Form form, Placement const& left,
                                  Placement const& right, Placement const& result,
                                  ProductOptions const& options, std::shared_ptr<Workspace<Sum>> workspace)
    : grid_(&grid),
      form_(form),
      left_placement_(left),
      update_((require_composes(form, left, right, result), require_formats_of<Operand, Result>(options),
               options.update)),
      workspace_(workspace ? std::move(workspace) : std::make_shared<Workspace<Sum>>()),
      left_(grid, left, options.operand_wire, workspace_, Slot::left),
      right_(grid, right, options.operand_wire, workspace_, Slot::right),
      result_(grid, result, options, workspace_) {}

/// Computes the product chunk by chunk. The reduction of a chunk overlaps with the product of the next one.
template<class Operand, class Result>
template<class Multiply>
void Product<Operand, Result>::multiply(DefaultExec const& exec, DistMatrix<Result> const& result,
                                        Completion completion, Multiply const& local_product) {
  result_.with_partial(exec, result, [&](auto const& partial) {
    if (result_.num_chunks() == 1 && (completion == Completion::now || !result_.can_hide())) {
      local_product(result_.chunk(0), partial);
      return result_.reduce(exec, result);
    }
    for (std::int64_t i = 0; i < result_.num_chunks(); ++i) {
      local_product(result_.chunk(i), partial);
      result_.start(exec, result, i);
    }
    if (completion == Completion::now) result_.finish();
  });
}

template<class Operand, class Result>
void Product<Operand, Result>::compute(DefaultExec const& exec, DistMatrix<Operand> const& left,
                                       DistMatrix<Operand> const& right, DistMatrix<Result> const& result,
                                       Completion completion) {
  if (!left_.is_started()) left_.start(exec, left);
  if (!right_.is_started()) right_.start(exec, right);
  Panel<Operand> const l = left_.finish();
  Panel<Operand> const r = right_.finish();
  auto const inner = form_ == Form::right_grad ? l.num_rows : l.num_columns;
  auto const beta = result_.beta();
  auto& counted = grid_->world().instruments().flops.dense;
  // Not [&]<class Number>: nvcc 13 cannot compile such lambdas in members of class templates.
  multiply(exec, result, completion, [&](Range rows, auto const& partial) {
    using Number = typename std::remove_cvref_t<decltype(partial)>::non_const_value_type;
    counted += 2 * rows.size() * inner * static_cast<std::int64_t>(partial.extent(1));
    auto const c = Panel<Number>(partial).rows(rows);
    switch (form_) {
    case Form::product:
      return local_gemm<Operand, Number>(exec, 1, Transpose::no, l.rows(rows), Transpose::no, r, beta, c);
    case Form::left_grad:
      return local_gemm<Operand, Number>(exec, 1, Transpose::no, l.rows(rows), Transpose::yes, r, beta, c);
    case Form::right_grad:
      return local_gemm<Operand, Number>(exec, 1, Transpose::yes, l.columns(rows), Transpose::no, r, beta, c);
    }
  });
}

template<class Operand, class Result>
void Product<Operand, Result>::compute(DefaultExec const& exec, DistSparse<Sum> const& left,
                                       DistMatrix<Operand> const& right, DistMatrix<Result> const& result,
                                       Completion completion) {
  ORTHANT_REQUIRE(form_ != Form::left_grad,
                  "a sparse matrix has no gradient: ", left.placement().to_string());
  ORTHANT_REQUIRE(update_ == Update::assign,
                  "a sparse product does not add to its result: ", left.placement().to_string());
  ORTHANT_REQUIRE(left.placement() == left_placement_, "the left operand is ", left.placement().to_string(),
                  "; planned was ", left_placement_.to_string());
  auto const& kernel = form_ == Form::product ? left.forward() : left.adjoint();
  if (!right_.is_started()) right_.start(exec, right);
  auto const r = right_.finish();
  grid_->world().instruments().flops.sparse +=
      2 * kernel.block().csr.num_nonzeros() * static_cast<std::int64_t>(r.extent(1));
  multiply(exec, result, completion,
           [&](Range rows, auto const& partial) { kernel.apply(exec, rows, r, partial); });
}

template class Product<float>;
template class Product<double>;
template class Product<runtime::Bf16Number>;
template class Product<runtime::Fp16Number>;
template class Product<runtime::Bf16Number, float>;
template class Product<runtime::Fp16Number, float>;

} // namespace orthant::pmm
