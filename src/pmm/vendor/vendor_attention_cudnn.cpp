// SPDX-License-Identifier: Apache-2.0
#include "pmm/vendor/vendor_api.hpp"
#include "pmm/vendor/vendor_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <unordered_map>
#include <vector>

// Headers of cuDNN's C++ frontend, which loads the library at run time.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr; // declared in cudnn_frontend.h and set in find_library()
}

namespace orthant::pmm::vendor {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Name : std::int64_t {
  q_name = 1,
  k_name,
  v_name,
  o_name,
  stats_name,
  do_name,
  dq_name,
  dk_name,
  dv_name
};

bool find_library() {
  if (fe::cudnn_dlhandle == nullptr) fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
  return fe::cudnn_dlhandle != nullptr;
}

void require_good(fe::error_t status, char const* what,
                  std::source_location where = std::source_location::current()) {
  if (status.is_bad())
    runtime::throw_internal(std::string("cuDNN, ") + what + ": " + status.get_message(), where);
}

/// Extents [sequences x heads x tokens x head_dim]; strides_of() returns the strides if each token is a row of `row` numbers.
std::vector<std::int64_t> dims_of(AttentionShape const& n, std::int64_t heads) {
  return {n.num_sequences, heads, n.sequence, n.head_dim};
}
std::vector<std::int64_t> strides_of(AttentionShape const& n, std::int64_t row) {
  return {n.sequence * row, n.head_dim, row, 1};
}
Tensor input(Graph& graph, AttentionShape const& n, Name name, std::int64_t heads, std::int64_t row) {
  return graph.tensor(
      fe::graph::Tensor_attributes().set_uid(name).set_dim(dims_of(n, heads)).set_stride(strides_of(n, row)));
}
void output(Tensor const& tensor, AttentionShape const& n, Name name, std::int64_t heads, std::int64_t row) {
  tensor->set_output(true).set_uid(name).set_dim(dims_of(n, heads)).set_stride(strides_of(n, row));
}

class CudnnAttention : public FusedAttention {
 public:
  CudnnAttention(void* stream, AttentionShape const& shape) : n_(shape) {
    check(fe::detail::create_handle(&handle_), CUDNN_STATUS_SUCCESS, "cudnnCreate");
    check(fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream)), CUDNN_STATUS_SUCCESS,
          "cudnnSetStream");
  }
  CudnnAttention(CudnnAttention const&) = delete;
  CudnnAttention& operator=(CudnnAttention const&) = delete;
  ~CudnnAttention() override {
    static_cast<void>(cudaFree(workspace_));
    static_cast<void>(fe::detail::destroy_handle(handle_));
  }

  /// Builds both graphs and allocates the workspace. Returns false if the library does not support the shape or memory is too small.
  bool build() {
    if (build_forward().is_bad() || build_backward().is_bad()) return false;
    std::int64_t of_forward = 0;
    std::int64_t of_backward = 0;
    require_good(forward_.get_workspace_size(of_forward), "workspace");
    require_good(backward_.get_workspace_size(of_backward), "workspace");
    num_bytes_ = std::max({of_forward, of_backward, std::int64_t{1}});
    if (cudaMalloc(&workspace_, static_cast<std::size_t>(num_bytes_)) == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());
    workspace_ = nullptr;
    return false;
  }

  [[nodiscard]] std::int64_t num_bytes() const override { return num_bytes_; }

  void forward(FusedAttentionNumbers const& numbers) override {
    auto places = places_of_operands(numbers);
    require_good(forward_.execute(handle_, places, workspace_), "attention");
  }
  void backward(FusedAttentionNumbers const& numbers) override {
    auto places = places_of_operands(numbers);
    places[do_name] = numbers.d_out;
    places[dq_name] = numbers.gradients;
    places[dk_name] = numbers.gradients + n_.query_columns();
    places[dv_name] = numbers.gradients + n_.query_columns() + n_.key_columns();
    require_good(backward_.execute(handle_, places, workspace_), "attention, backward");
  }

 private:
  using Places = std::unordered_map<std::int64_t, void*>;

  [[nodiscard]] Places places_of_operands(FusedAttentionNumbers const& numbers) const {
    return {{q_name, numbers.qkv},
            {k_name, numbers.qkv + n_.query_columns()},
            {v_name, numbers.qkv + n_.query_columns() + n_.key_columns()},
            {o_name, numbers.out},
            {stats_name, numbers.log_sum_exp}};
  }
  [[nodiscard]] std::int64_t row() const { return n_.query_columns() + 2 * n_.key_columns(); }
  [[nodiscard]] float scale() const { return 1 / std::sqrt(static_cast<float>(n_.head_dim)); }
  static void set_types(Graph& graph) {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }
  /// Adds q, k and v to a graph.
  std::array<Tensor, 3> operands(Graph& graph) const {
    return {input(graph, n_, q_name, n_.num_heads, row()), input(graph, n_, k_name, n_.num_kv_heads, row()),
            input(graph, n_, v_name, n_.num_kv_heads, row())};
  }

  fe::error_t build_forward() {
    set_types(forward_);
    auto const [q, k, v] = operands(forward_);
    auto options = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(true)
                       .set_causal_mask(true)
                       .set_attn_scale(scale());
    auto [o, stats] = forward_.sdpa(q, k, v, options);
    output(o, n_, o_name, n_.num_heads, n_.query_columns());
    stats->set_output(true).set_uid(stats_name).set_data_type(fe::DataType_t::FLOAT);
    return forward_.build(handle_, {fe::HeurMode_t::A});
  }
  fe::error_t build_backward() {
    set_types(backward_);
    auto const [q, k, v] = operands(backward_);
    auto const o = input(backward_, n_, o_name, n_.num_heads, n_.query_columns());
    auto const d_out = input(backward_, n_, do_name, n_.num_heads, n_.query_columns());
    auto const stats = backward_.tensor(fe::graph::Tensor_attributes()
                                            .set_uid(stats_name)
                                            .set_dim({n_.num_sequences, n_.num_heads, n_.sequence, 1})
                                            .set_stride({n_.num_heads * n_.sequence, n_.sequence, 1, 1})
                                            .set_data_type(fe::DataType_t::FLOAT));
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention backward")
                       .set_causal_mask(true)
                       .set_attn_scale(scale())
                       .set_deterministic_algorithm(true);
    auto [dq, dk, dv] = backward_.sdpa_backward(q, k, v, o, d_out, stats, options);
    output(dq, n_, dq_name, n_.num_heads, row());
    output(dk, n_, dk_name, n_.num_kv_heads, row());
    output(dv, n_, dv_name, n_.num_kv_heads, row());
    return backward_.build(handle_, {fe::HeurMode_t::A});
  }

  AttentionShape n_;
  cudnnHandle_t handle_ = nullptr;
  Graph forward_;
  Graph backward_;
  void* workspace_ = nullptr;
  std::int64_t num_bytes_ = 0;
};

} // namespace

std::unique_ptr<FusedAttention> FusedAttention::create(void* stream, AttentionShape const& shape) {
  if (shape.num_tokens() == 0 || shape.head_dim % 8 != 0 || !find_library()) return nullptr;
  try {
    auto attention = std::make_unique<CudnnAttention>(stream, shape);
    if (attention->build()) return attention;
  } catch (std::exception const&) { // a part of the library is missing
  }
  return nullptr;
}

} // namespace orthant::pmm::vendor
