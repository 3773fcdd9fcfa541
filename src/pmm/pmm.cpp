// SPDX-License-Identifier: Apache-2.0
#include "pmm/pmm.hpp"

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

template<class T>
Product<T>::Product(ProcessGrid const& grid, Form form, Placement const& left, Placement const& right,
                    Placement const& result, ProductOptions const& options,
                    std::shared_ptr<Workspace<T>> workspace)
    : form_(form),
      left_placement_(left),
      workspace_(workspace ? std::move(workspace) : std::make_shared<Workspace<T>>()),
      left_((require_composes(form, left, right, result), grid), left, options.operand_wire, workspace_,
            Slot::left),
      right_(grid, right, options.operand_wire, workspace_, Slot::right),
      result_(grid, result, options.result_wire, options.num_chunks, workspace_, Slot::result) {}

/// Chunk by chunk: product, then its reduction, which runs behind the next product.
template<class T>
template<class LocalProduct>
void Product<T>::multiply(DefaultExec const& exec, DistMatrix<T> const& result, Completion completion,
                          LocalProduct const& local_product) {
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
  multiply(exec, result, completion, [&](Range rows, Matrix<T> const& partial) {
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
  multiply(exec, result, completion,
           [&](Range rows, Matrix<T> const& partial) { kernel.apply(exec, rows, r, partial); });
}

template<class T>
std::vector<PlannedCall> Product<T>::calls() const {
  std::vector<PlannedCall> calls;
  left_.append_calls(calls);
  right_.append_calls(calls);
  result_.append_calls(calls);
  return calls;
}

template class Product<float>;
template class Product<double>;

} // namespace orthant::pmm
