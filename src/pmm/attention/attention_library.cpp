// SPDX-License-Identifier: Apache-2.0
#include "pmm/attention/attention_library.hpp"

#include "pmm/gemm/local_gemm.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/vendor/vendor_attention.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace orthant::pmm::detail {
namespace {

using runtime::Bf16Number;
using runtime::DefaultExec;
using runtime::Vector;

constexpr auto copy_label = "orthant::pmm::attention/rounding";

/// The library's plan and buffers for one shape on one stream.
class ShapeLibrary {
 public:
  ShapeLibrary(void* stream, AttentionShape const& shape)
      : stream_(stream),
        shape_(shape),
        fused_(vendor::FusedAttention::create(stream, shape)) {
    if (fused_ == nullptr) return;
    auto const numbers = [&](std::int64_t columns) {
      return Vector<Bf16Number>(
          Kokkos::view_alloc("orthant::pmm::attention_library", Kokkos::WithoutInitializing),
          static_cast<std::size_t>(shape.num_tokens() * columns));
    };
    qkv_ = numbers(row());
    gradients_ = numbers(row());
    out_ = numbers(shape.query_columns());
    d_out_ = numbers(shape.query_columns());
  }

  [[nodiscard]] bool is_of(void* stream, AttentionShape const& shape) const {
    return stream == stream_ && shape == shape_;
  }
  [[nodiscard]] bool exists() const { return fused_ != nullptr; }

  void forward(DefaultExec const& exec, AttentionOperands<float> const& operands, Panel<float> const& out,
               Vector<float> const& log_sum_exp) {
    copy(exec, operands, parts_of(qkv_));
    fused_->forward(numbers(log_sum_exp));
    copy_panel(exec, copy_label, rows(out_, shape_.query_columns()), out);
  }

  void backward(DefaultExec const& exec, AttentionOperands<float> const& operands, Panel<float> const& out,
                Vector<float> const& log_sum_exp, Panel<float> const& d_out,
                AttentionOperands<float> const& gradients) {
    copy(exec, operands, parts_of(qkv_));
    copy_panel(exec, copy_label, out, rows(out_, shape_.query_columns()));
    copy_panel(exec, copy_label, d_out, rows(d_out_, shape_.query_columns()));
    fused_->backward(numbers(log_sum_exp));
    copy(exec, parts_of(gradients_), gradients);
  }

 private:
  [[nodiscard]] std::int64_t row() const { return shape_.query_columns() + 2 * shape_.key_columns(); }
  [[nodiscard]] Panel<Bf16Number> rows(Vector<Bf16Number> const& numbers, std::int64_t num_columns) const {
    return as_matrix(numbers, shape_.num_tokens(), num_columns);
  }
  /// q, k and v as column ranges of rows that hold all three.
  [[nodiscard]] AttentionOperands<Bf16Number> parts_of(Vector<Bf16Number> const& numbers) const {
    auto const all = rows(numbers, row());
    auto const q_end = shape_.query_columns();
    auto const k_end = q_end + shape_.key_columns();
    return {all.columns({0, q_end}), all.columns({q_end, k_end}), all.columns({k_end, row()})};
  }
  template<class From, class To>
  static void copy(DefaultExec const& exec, AttentionOperands<From> const& from,
                   AttentionOperands<To> const& to) {
    copy_panel(exec, copy_label, from.q, to.q);
    copy_panel(exec, copy_label, from.k, to.k);
    copy_panel(exec, copy_label, from.v, to.v);
  }
  [[nodiscard]] vendor::FusedAttentionNumbers numbers(Vector<float> const& log_sum_exp) const {
    return {qkv_.data(), out_.data(), log_sum_exp.data(), d_out_.data(), gradients_.data()};
  }

  void* stream_;
  AttentionShape shape_;
  std::unique_ptr<vendor::FusedAttention> fused_;
  Vector<Bf16Number> qkv_, gradients_, out_, d_out_;
};

/// Returns null if Orthant's own kernels must be used.
ShapeLibrary* library_of(DefaultExec const& exec, AttentionShape const& shape,
                         Vector<float> const& log_sum_exp, AttentionDropout const& dropout) {
  static std::vector<std::unique_ptr<ShapeLibrary>> of_shapes; // cleared before Kokkos is finalized
  if (chosen_gemm_math() != GemmMath::bf16 || dropout.probability > 0) return nullptr;
  // Both passes get the same array, so both choose the library or neither does.
  if (!may_hold<StoredNumbers<float, 4>>(log_sum_exp.data())) return nullptr;
  auto* const stream = runtime::compat::native_stream(exec);
  auto known =
      std::ranges::find_if(of_shapes, [&](auto const& library) { return library->is_of(stream, shape); });
  if (known == of_shapes.end()) {
    if (of_shapes.empty()) Kokkos::push_finalize_hook([] { of_shapes.clear(); });
    known = of_shapes.insert(known, std::make_unique<ShapeLibrary>(stream, shape));
  }
  return (*known)->exists() ? known->get() : nullptr;
}

} // namespace

bool attend_by_library(DefaultExec const& exec, AttentionShape const& shape,
                       AttentionOperands<float> const& operands, Panel<float> const& out,
                       Vector<float> const& log_sum_exp, AttentionDropout const& dropout) {
  auto* const library = library_of(exec, shape, log_sum_exp, dropout);
  if (library != nullptr) library->forward(exec, operands, out, log_sum_exp);
  return library != nullptr;
}

bool attend_backward_by_library(DefaultExec const& exec, AttentionShape const& shape,
                                AttentionOperands<float> const& operands, Panel<float> const& out,
                                Vector<float> const& log_sum_exp, Panel<float> const& d_out,
                                AttentionOperands<float> const& gradients, AttentionDropout const& dropout) {
  auto* const library = library_of(exec, shape, log_sum_exp, dropout);
  if (library != nullptr) library->backward(exec, operands, out, log_sum_exp, d_out, gradients);
  return library != nullptr;
}

} // namespace orthant::pmm::detail
