// SPDX-License-Identifier: Apache-2.0
//
// A convolution of one's own with all commands and options of `orthant`: own_convolution train --model logmean ..
//
// A layer is Q = g(F) W + F W' + b, where g is a smooth maximum over the neighbors:
//
//   forward     E = exp(F)       S = A^ E            g = log(S)          A^ = D^-1 A: the mean; g is 0 without neighbors
//   backward    dS = dg / S      dE = A^^T dS        dF = dE * E
//
// Only A^ moves numbers between ranks, so the same code runs in both schedules, on every grid and in mini-batches.

#include "cli/program.hpp"
#include "models/gnn/aggregation/own_aggregation.hpp"

#include <utility>

namespace own_convolution {

namespace graph = orthant::graph;
namespace models = orthant::models;
namespace pmm = orthant::pmm;
using Exec = orthant::runtime::DefaultExec;

/// y := f(x, y) number by number, as a pass that reads `num_read` matrices and writes y.
template<class T, class Function>
void apply(Exec const& exec, char const* name, std::int64_t num_read, pmm::DistMatrix<T> const& x,
           pmm::DistMatrix<T> const& y, Function const& f) {
  auto const count = y.block().num_stored;
  auto const bytes = count * static_cast<std::int64_t>(sizeof(T));
  y.grid().passes().add({name, num_read * bytes, bytes});
  auto const* const from = x.storage().data();
  auto* const to = y.storage().data();
  Kokkos::parallel_for(
      name, Kokkos::RangePolicy<Exec, std::int64_t>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) { to[i] = f(from[i], to[i]); });
}

// [docs:aggregation]
template<class T>
class LogMean final : public models::OwnAggregation<T> {
 public:
  using models::OwnAggregation<T>::OwnAggregation;

  void forward(Exec const& exec, pmm::DistMatrix<T> const& from, pmm::DistMatrix<T> const& to) override {
    auto const [e, s] = kept();
    apply(
        exec, "logmean_exp", 1, from, e, KOKKOS_LAMBDA(T x, T) { return orthant::runtime::compat::exp(x); });
    this->parts_.of_neighbors->forward(exec, e, s);
    apply(
        exec, "logmean_log", 1, s, to,
        KOKKOS_LAMBDA(T x, T) { return x > 0 ? orthant::runtime::compat::log(x) : T{}; });
  }
  void backward(Exec const& exec, pmm::DistMatrix<T> const& from, pmm::DistMatrix<T> const& to) override {
    auto const [e, s] = kept();
    apply(
        exec, "logmean_divide", 2, from, s, KOKKOS_LAMBDA(T x, T y) { return y > 0 ? x / y : T{}; }); // dS
    this->parts_.of_neighbors->backward(exec, s, to);
    apply(
        exec, "logmean_multiply", 2, e, to, KOKKOS_LAMBDA(T x, T y) { return x * y; });
  }

 private:
  [[nodiscard]] auto kept() { return std::pair(this->parts_.kept_inputs[0], this->parts_.kept_results[0]); }
};
// [docs:end]

// [docs:register]
/// Adds an operation to the lists of `plan`: a pass over a matrix that lies at `place`.
void list(pmm::StepPlan& step, char const* name, std::int64_t num_read, pmm::Placement const& place) {
  auto const bytes = step.scalar_bytes(step.block(place).num_stored);
  step.add_pass({name, num_read * bytes, bytes});
}

void register_log_mean() {
  models::Convolution log_mean{.name = "logmean", .summary = "the logarithm of the mean of exponentials"};
  log_mean.graph_operator = graph::GraphOperator{graph::Normalization::row, graph::SelfLoops::dropped};
  log_mean.has_self_weights = true;
  log_mean.num_kept_inputs = log_mean.num_kept_results = 1; // E and S
  log_mean.list_forward = [](pmm::StepPlan& step, models::NetworkLayerPlan const& layer) {
    list(step, "logmean_exp", 1, layer.aggregated());
    list(step, "logmean_log", 1, layer.aggregate());
  };
  log_mean.list_backward = [](pmm::StepPlan& step, models::NetworkLayerPlan const& layer) {
    list(step, "logmean_divide", 2, layer.aggregate());
    list(step, "logmean_multiply", 2, layer.aggregated());
  };
  models::register_convolution<LogMean>(std::move(log_mean));
}
// [docs:end]

} // namespace own_convolution

int main(int argc, char** argv) {
  own_convolution::register_log_mean();
  return orthant::cli::main_of(argc, argv);
}
