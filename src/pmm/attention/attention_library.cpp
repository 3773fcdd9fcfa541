// SPDX-License-Identifier: Apache-2.0
#include "pmm/attention/attention_library.hpp"

#include "pmm/gemm/panel_copy.hpp"
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

/// One shape on one stream.
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
    round_operands(exec, operands);
    fused_->forward(numbers(log_sum_exp));
    copy_panel(exec, copy_label, panel(out_, 0, shape_.query_columns(), shape_.query_columns()), out);
  }

  void backward(DefaultExec const& exec, AttentionOperands<float> const& operands, Panel<float> const& out,
                Vector<float> const& log_sum_exp, Panel<float> const& d_out,
                AttentionOperands<float> const& gradients) {
    auto const q_columns = shape_.query_columns();
    auto const k_columns = shape_.key_columns();
    round_operands(exec, operands);
    copy_panel(exec, copy_label, out, panel(out_, 0, q_columns, q_columns));
    copy_panel(exec, copy_label, d_out, panel(d_out_, 0, q_columns, q_columns));
    fused_->backward(numbers(log_sum_exp));
    copy_panel(exec, copy_label, panel(gradients_, 0, q_columns, row()), gradients.q);
    copy_panel(exec, copy_label, panel(gradients_, q_columns, k_columns, row()), gradients.k);
    copy_panel(exec, copy_label, panel(gradients_, q_columns + k_columns, k_columns, row()), gradients.v);
  }

 private:
  [[nodiscard]] std::int64_t row() const { return shape_.query_columns() + 2 * shape_.key_columns(); }
  [[nodiscard]] Panel<Bf16Number> panel(Vector<Bf16Number> const& numbers, std::int64_t first,
                                        std::int64_t num_columns, std::int64_t stride) const {
    Panel<Bf16Number> part;
    part.data = numbers.data() + first;
    part.num_rows = shape_.num_tokens();
    part.num_columns = num_columns;
    part.row_stride = stride;
    return part;
  }
  void round_operands(DefaultExec const& exec, AttentionOperands<float> const& operands) {
    auto const q_columns = shape_.query_columns();
    auto const k_columns = shape_.key_columns();
    copy_panel(exec, copy_label, operands.q, panel(qkv_, 0, q_columns, row()));
    copy_panel(exec, copy_label, operands.k, panel(qkv_, q_columns, k_columns, row()));
    copy_panel(exec, copy_label, operands.v, panel(qkv_, q_columns + k_columns, k_columns, row()));
  }
  [[nodiscard]] vendor::FusedAttentionNumbers numbers(Vector<float> const& log_sum_exp) const {
    return {qkv_.data(), out_.data(), log_sum_exp.data(), d_out_.data(), gradients_.data()};
  }

  void* stream_;
  AttentionShape shape_;
  std::unique_ptr<vendor::FusedAttention> fused_;
  Vector<Bf16Number> qkv_, gradients_, out_, d_out_;
};

/// Null: there is no such library.
ShapeLibrary* library_of(DefaultExec const& exec, AttentionShape const& shape,
                         Vector<float> const& log_sum_exp, AttentionDropout const& dropout) {
  if (chosen_gemm_math() != GemmMath::bf16 || dropout.probability > 0) return nullptr;
  if (reinterpret_cast<std::uintptr_t>(log_sum_exp.data()) % 16 != 0)
    return nullptr;                                            // as the library wants it
  static std::vector<std::unique_ptr<ShapeLibrary>> of_shapes; // closed before Kokkos is finalized
  auto* const stream = runtime::compat::native_stream(exec);
  auto const known =
      std::ranges::find_if(of_shapes, [&](auto const& library) { return library->is_of(stream, shape); });
  if (known == of_shapes.end()) {
    if (of_shapes.empty()) Kokkos::push_finalize_hook([] { of_shapes.clear(); });
    of_shapes.push_back(std::make_unique<ShapeLibrary>(stream, shape));
    return of_shapes.back()->exists() ? of_shapes.back().get() : nullptr;
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
