// SPDX-License-Identifier: Apache-2.0
#include "models/lm/experts/expert_layer.hpp"

#include "models/layers/hidden_norm.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/token_rows/feed_forward.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

namespace orthant::models {
namespace {

double total_of(std::vector<std::int64_t> const& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

} // namespace

double ExpertLoad::imbalance() const {
  auto const sum = total_of(chosen);
  if (sum == 0) return 1;
  return static_cast<double>(*std::max_element(chosen.begin(), chosen.end())) *
         static_cast<double>(chosen.size()) / sum;
}

double ExpertLoad::entropy() const {
  auto const all = total_of(chosen);
  auto sum = 0.0;
  for (auto const count : chosen)
    if (count > 0) sum -= static_cast<double>(count) / all * std::log(static_cast<double>(count) / all);
  return sum;
}

namespace {

using pmm::DistMatrix, pmm::GemmMath, pmm::Panel, pmm::Transpose;
using runtime::DefaultExec, runtime::Matrix, runtime::Vector;

template<class T>
using UnmanagedHostArray = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

/// Elements of a matrix as a vector, which shares the memory.
template<class T>
Vector<T> numbers_of(Matrix<T> const& matrix) {
  return Vector<T>(matrix.data(), matrix.size());
}

template<class T>
Matrix<T> reserve(runtime::GrowingVector<T>& memory, std::int64_t num_rows, std::int64_t num_columns) {
  return pmm::as_matrix(memory.reserve(num_rows * num_columns), num_rows, num_columns);
}

/// Block of the i-th expert of this rank. `whole`: the gathered array.
template<class T>
Panel<T> block_of_expert(ExpertArray const& array, Vector<T> const& whole, std::size_t i) {
  return Matrix<T>(whole.data() + static_cast<std::int64_t>(i) * array.block_size(),
                   static_cast<std::size_t>(array.num_rows), static_cast<std::size_t>(array.num_columns));
}

/// Step of a bias per training step (DeepSeek-V3, arXiv 2412.19437). A training step moves a statistic by this share of its distance from
/// the target.
constexpr double bias_step = 1e-3;

/// Largest number of choices that an expert accepts in this pass; nullopt if there is no limit.
std::optional<std::int64_t> capacity_in(ExpertPlan const& plan, RouterPass const& pass) {
  if (!pass.trains || !plan.settings.capacity) return std::nullopt;
  return pmm::capacity_of(*plan.settings.capacity, plan.num_counted, plan.settings.top_k,
                          plan.settings.num_experts);
}

} // namespace

template<class T>
ExpertLayer<T>::ExpertLayer(pmm::ProcessGrid const& grid, ExpertPlan const& plan,
                            ExpertParameters<T> parameters, std::int64_t layer,
                            std::shared_ptr<ExpertMemory<T>> memory, ExpertScratch<T>& scratch)
    : grid_(grid),
      plan_(plan),
      parameters_(std::move(parameters)),
      layer_(layer),
      memory_(std::move(memory)),
      scratch_(scratch),
      up_(grid.shape(), grid.coordinates(), plan, plan.up),
      down_(grid.shape(), grid.coordinates(), plan, plan.down) {}

template<class T>
void ExpertLayer<T>::route(DefaultExec const& exec, RouterPass const& pass, DistMatrix<T> const& normed) {
  auto& routing = memory_->routing;
  if (plan_.settings.has_biases) routing.biases = parameters_.biases.local(); // layers share the memory
  auto const& settings = plan_.settings;
  auto& passes = grid_.passes();
  // l := sum_y H[z,y] W_r[y,-]
  pmm::local_gemm<T>(exec, T{1}, Transpose::no, normed.local(), Transpose::no, parameters_.router.local(),
                     T{0}, scratch_.logits, GemmMath::fp32);
  sum_over_y(exec, scratch_.logits);
  pmm::RouterNoise const noise{
      pass.noise,
      {pass.seed, runtime::Purpose::routing, pass.step, static_cast<std::uint32_t>(layer_)},
      plan_.first_token,
      plan_.tokens};
  pmm::choose_experts(exec, passes, scratch_.logits, noise, routing);

  runtime::compat::fence(exec, "orthant::models::ExpertLayer/the host lists the rows of each expert");
  std::vector<std::int32_t> experts(routing.experts.extent(0));
  UnmanagedHostArray<std::int32_t> const on_host(experts.data(), experts.size());
  Kokkos::deep_copy(on_host, routing.experts);
  auto const capacity = capacity_in(plan_, pass);
  auto const counts = pmm::count_choices(grid_.over(plan_.counted_axes), experts, settings.top_k,
                                         settings.num_experts, capacity.has_value());
  if (capacity) {
    pmm::drop_beyond(*capacity, counts, experts, settings.top_k);
    Kokkos::deep_copy(routing.experts, on_host);
  }
  auto load = load_of(counts, capacity);
  std::vector<T> shares;
  auto const num_choices = static_cast<double>(plan_.num_tokens * settings.top_k);
  for (auto const count : load.chosen)
    shares.push_back(static_cast<T>(static_cast<double>(count) / num_choices));
  Kokkos::deep_copy(memory_->shares, UnmanagedHostArray<T>(shares.data(), shares.size()));
  if (pass.trains) load_ = std::move(load);
  pmm::weigh_experts(exec, passes, routing);
  for (auto& expert : experts)
    if (expert >= 0) expert = static_cast<std::int32_t>(plan_.place_of_expert(layer_, expert));
  memory_->dispatch.set_groups(experts, settings.top_k);
  largest_ = largest_of(largest_, sizes());
}

/// Load over all ranks. If the counts are those of one rank along the batch axes, one more all_reduce sums them.
template<class T>
ExpertLoad ExpertLayer<T>::load_of(pmm::ExpertCounts const& counts,
                                   std::optional<std::int64_t> capacity) const {
  ExpertLoad load{layer_, {}, capacity ? counts.num_beyond(*capacity) : 0};
  for (std::int64_t e = 0; e < counts.num_experts; ++e)
    load.chosen.push_back(counts.chosen(e));
  if (plan_.counted_axes == plan_.token_axes) return load;
  load.chosen.push_back(load.num_dropped);
  runtime::all_reduce(runtime::host, grid_.over(batch_axes(grid_.shape())), load.chosen);
  load.num_dropped = load.chosen.back();
  load.chosen.pop_back();
  return load;
}

template<class T>
void ExpertLayer<T>::sum_over_y(DefaultExec const& exec, Matrix<T> const& rows) {
  runtime::all_reduce(exec, grid_.over(plan_.stream.layout.columns), numbers_of(rows));
}

template<class T>
Vector<T> ExpertLayer<T>::gather(DefaultExec const& exec, ExpertArray const& array, Vector<T> const& piece) {
  if (grid_.size(pmm::Axis::z) == 1) return piece;
  Vector<T> const whole(scratch_.gathered.data(), static_cast<std::size_t>(array.num_gathered));
  runtime::all_gather(exec, grid_.over(pmm::Axis::z), piece, whole);
  return whole;
}

template<class T>
Vector<T> ExpertLayer<T>::addends_of(ExpertArray const& array, Vector<T> const& piece) {
  if (grid_.size(pmm::Axis::z) == 1) return piece;
  return Vector<T>(scratch_.addends.data(), static_cast<std::size_t>(array.num_gathered));
}

template<class T>
void ExpertLayer<T>::reduce(DefaultExec const& exec, ExpertArray const& array, Vector<T> const& addends,
                            Vector<T> const& piece) {
  if (grid_.size(pmm::Axis::z) == 1) return;
  auto const end = array.own.size() * array.block_size();
  auto const padding = std::pair(static_cast<std::size_t>(end), addends.extent(0));
  Kokkos::deep_copy(exec, Kokkos::subview(addends, padding), T{0});
  runtime::reduce_scatter(exec, grid_.over(pmm::Axis::z), addends, piece);
}

/// Calls product(i, rows) for the i-th expert of this rank and the range of its rows, for all i.
template<class T>
template<class Product>
void ExpertLayer<T>::for_each_expert(Product const& product) const {
  auto const& rows = memory_->dispatch.lists().rows_of_groups();
  for (std::size_t i = 0; i < rows.size(); ++i)
    product(i, rows[i]);
}

template<class T>
void ExpertLayer<T>::start(DefaultExec const& exec, RouterPass const& pass, DistMatrix<T> const& normed) {
  route(exec, pass, normed);
  auto const& sizes = this->sizes();
  auto const hidden = normed.block().columns.size();
  arrived_ = reserve(memory_->arrived, sizes.num_arrived, hidden);
  expanded_ = reserve(memory_->expanded, sizes.num_arrived, up_.num_columns);
  activated_ = reserve(memory_->activated, sizes.num_arrived, down_.num_rows);
  returned_ = reserve(memory_->returned, sizes.num_sent, hidden);
  memory_->dispatch.start_send(exec, normed.local(), {}, arrived_);
}

template<class T>
void ExpertLayer<T>::compute(DefaultExec const& exec) {
  auto const& sizes = this->sizes();
  auto const hidden = static_cast<std::int64_t>(arrived_.extent(1));
  memory_->dispatch.finish_send(exec, arrived_);

  // U_e[-,x] := sum_y Y_e[-,y] W_up,e[y,x]
  auto const up = gather(exec, up_, parameters_.up);
  for_each_expert([&](std::size_t i, pmm::Range rows) {
    pmm::local_gemm<T>(exec, T{1}, Transpose::no, Panel<T>(arrived_).rows(rows), Transpose::no,
                       block_of_expert(up_, up, i), T{0}, Panel<T>(expanded_).rows(rows));
  });
  sum_over_y(exec, expanded_);
  pmm::activate<T>(exec, grid_.passes(), plan_.activation, expanded_, activated_);

  // Y_e[-,y] := A_e W_down,e[x,y], partial over x
  auto const down = gather(exec, down_, parameters_.down);
  auto const results = travels(grid_.shape(), plan_.axes) ? reserve(scratch_.rows, sizes.num_arrived, hidden)
                                                          : returned_; // in the order of the sent rows
  for_each_expert([&](std::size_t i, pmm::Range rows) {
    pmm::local_gemm<T>(exec, T{1}, Transpose::no, Panel<T>(activated_).rows(rows), Transpose::no,
                       block_of_expert(down_, down, i), T{0}, Panel<T>(results).rows(rows));
  });
  memory_->dispatch.give_back(exec, results, returned_);
}

template<class T>
void ExpertLayer<T>::combine(DefaultExec const& exec, DistMatrix<T> const& branch, pmm::Update update) {
  memory_->dispatch.combine(exec, returned_, memory_->routing.weights, branch.local(), update);
}

template<class T>
void ExpertLayer<T>::start_backward(DefaultExec const& exec, DistMatrix<T> const& branch_gradient) {
  auto& dispatch = memory_->dispatch;
  // dw := S . dbranch, summed over y, and also over x, because each rank along x has only a part of the rows
  dispatch.dot(exec, returned_, branch_gradient.local(), scratch_.weight_gradient);
  auto const of_row = plan_.axes.copies.with(plan_.stream.layout.columns);
  runtime::all_reduce(exec, grid_.over(of_row), scratch_.weight_gradient);
  rows_gradient_ = reserve(scratch_.rows, sizes().num_arrived, branch_gradient.block().columns.size());
  dispatch.start_send(exec, branch_gradient.local(), memory_->routing.weights, rows_gradient_);
}

template<class T>
void ExpertLayer<T>::backward(DefaultExec const& exec, DistMatrix<T> const& normed,
                              DistMatrix<T> const& normed_gradient, pmm::Update update) {
  auto& passes = grid_.passes();
  auto& dispatch = memory_->dispatch;
  auto const& sizes = this->sizes();
  auto const hidden = normed.block().columns.size();
  auto const& rows_gradient = rows_gradient_;
  dispatch.finish_send(exec, rows_gradient);

  // dA_e[-,x] := sum_y dY_e[-,y] W_down,e[x,y]^T      dW_down,e[x,y] := A_e^T dY_e
  auto const activated_gradient = reserve(scratch_.inner, sizes.num_arrived, down_.num_rows);
  auto const down = gather(exec, down_, parameters_.down);
  auto const down_addends = addends_of(down_, parameters_.down_gradient);
  for_each_expert([&](std::size_t i, pmm::Range rows) {
    pmm::local_gemm<T>(exec, T{1}, Transpose::no, Panel<T>(rows_gradient).rows(rows), Transpose::yes,
                       block_of_expert(down_, down, i), T{0}, Panel<T>(activated_gradient).rows(rows));
    pmm::local_gemm<T>(exec, T{1}, Transpose::yes, Panel<T>(activated_).rows(rows), Transpose::no,
                       Panel<T>(rows_gradient).rows(rows), T{0}, block_of_expert(down_, down_addends, i));
  });
  sum_over_y(exec, activated_gradient);
  reduce(exec, down_, down_addends, parameters_.down_gradient);

  auto const expanded_gradient = reserve(scratch_.outer, sizes.num_arrived, up_.num_columns);
  pmm::activate_backward<T>(exec, passes, plan_.activation, expanded_, activated_gradient, expanded_gradient);

  // dY_e[-,y] := dU_e W_up,e[y,x]^T, partial over x      dW_up,e[y,x] := Y_e^T dU_e
  auto const up = gather(exec, up_, parameters_.up);
  auto const up_addends = addends_of(up_, parameters_.up_gradient);
  for_each_expert([&](std::size_t i, pmm::Range rows) {
    pmm::local_gemm<T>(exec, T{1}, Transpose::no, Panel<T>(expanded_gradient).rows(rows), Transpose::yes,
                       block_of_expert(up_, up, i), T{0}, Panel<T>(rows_gradient).rows(rows));
    pmm::local_gemm<T>(exec, T{1}, Transpose::yes, Panel<T>(arrived_).rows(rows), Transpose::no,
                       Panel<T>(expanded_gradient).rows(rows), T{0}, block_of_expert(up_, up_addends, i));
  });
  reduce(exec, up_, up_addends, parameters_.up_gradient);
  auto const returned_gradient =
      travels(grid_.shape(), plan_.axes) ? reserve(scratch_.returned, sizes.num_sent, hidden) : rows_gradient;
  dispatch.give_back(exec, rows_gradient, returned_gradient);
  dispatch.combine(exec, returned_gradient, {}, normed_gradient.local(), update);

  // dH += dl W_r^T      dW_r := H^T dl
  auto const& settings = plan_.settings;
  pmm::router_backward<T>(exec, passes, memory_->routing, scratch_.weight_gradient,
                          {settings.balance_loss, settings.z_loss, static_cast<double>(plan_.num_tokens),
                           memory_->shares, settings.sequence_loss, plan_.tokens.length,
                           scratch_.sequence_counts},
                          scratch_.logits);
  pmm::local_gemm<T>(exec, T{1}, Transpose::no, scratch_.logits, Transpose::yes, parameters_.router.local(),
                     T{1}, normed_gradient.local(), GemmMath::fp32);
  pmm::local_gemm<T>(exec, T{1}, Transpose::yes, normed.local(), Transpose::no, scratch_.logits, T{0},
                     parameters_.router_gradient.local(), GemmMath::fp32);
  // Targets are stored as gradients, so they are summed over z with all small gradients. In a pipeline, other passes have begun since.
  if (settings.has_biases)
    pmm::move_biases(exec, passes, parameters_.biases.local(), memory_->shares, bias_step / running_momentum,
                     1.0 / grid_.size(pmm::Axis::z), parameters_.bias_targets.local());
}

template class ExpertLayer<float>;
template class ExpertLayer<double>;

} // namespace orthant::models
