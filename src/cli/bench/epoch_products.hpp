#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Runs the local products of an epoch (pmm/cost/step_plan.hpp lists them) without the communication around them, and collects the times
// of the epochs.

#include "cli/bench/bench.hpp"
#include "cli/machine/arithmetic_peak.hpp"
#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/plan/attention_step.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/edges/edge_products.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/report/metrics.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace orthant::cli {

using pmm::LocalProduct;

/// Operands and result of a list of products, which all use the same memory. Products of 16-bit operands have 16-bit results, except
/// gradients of weights.
template<class T>
class ProductOperands {
 public:
  explicit ProductOperands(std::vector<LocalProduct> const& products);
  /// Bytes of the operands and results of these products.
  [[nodiscard]] static std::int64_t num_bytes(std::vector<LocalProduct> const& products);

  /// Runs the product as the trainer does. Enqueues on exec.
  void multiply(runtime::DefaultExec const& exec, LocalProduct const& product) const;
  void multiply(runtime::DefaultExec const& exec, LocalProduct const& product,
                pmm::LocalSpmm<T> const& sparse) const;
  /// Runs the dense product by one of bare_libraries(); returns false if the library does not support it.
  bool multiply_bare(std::string_view library, LocalProduct const& product) const;
  /// Library that multiply() uses for the dense product.
  [[nodiscard]] std::string_view library_of(LocalProduct const& product) const;

 private:
  struct Panels;
  [[nodiscard]] Panels panels_of(LocalProduct const& product) const;

  /// Operands and results in a 16-bit format; empty if no product uses it.
  template<class Number>
  struct Rounded {
    runtime::Vector<Number> left, right, result;
  };
  template<class Number>
  [[nodiscard]] Rounded<Number> rounded() const;
  template<class Number>
  void multiply_rounded(runtime::DefaultExec const& exec, LocalProduct const& product,
                        Rounded<Number> const& numbers) const;
  /// Calls work(Rounded) for a product of 16-bit numbers; returns false for other products.
  template<class Work>
  bool with_rounded(LocalProduct const& product, Work const& work) const;

  runtime::Vector<T> left_, right_, result_;
  Rounded<runtime::Bf16Number> bf16_;
  Rounded<runtime::Fp16Number> fp16_;
};

extern template class ProductOperands<float>;
extern template class ProductOperands<double>;

// Times of the epochs of `orthant bench epoch`: seconds, phases and communicated bytes.

class EpochTimes {
 public:
  void add(runtime::EpochRecord const& record) {
    seconds_.push_back(record.seconds);
    auto explained = 0.0;
    for (auto const& phase : record.phases.phases()) {
      if (!phases_.contains(phase.name)) order_.push_back(phase.name);
      phases_[phase.name].push_back(phase.seconds);
      explained += phase.seconds;
    }
    shares_.push_back(explained / record.seconds);
    comm_bytes_ = record.comm_bytes;
    sent_bytes_ = record.sent_bytes;
    loss_ = record.loss;
  }

  /// Adds the times to the line. Returns the median seconds. Collective.
  double describe(nlohmann::ordered_json& line, runtime::Communicator const& world) const {
    auto const seconds = summarise(world, seconds_);
    line["seconds"] = seconds.median;
    line["min_seconds"] = seconds.minimum;
    auto& table = line["phases"] = nlohmann::ordered_json::object();
    for (auto const& name : order_) {
      auto const median = summarise(world, phases_.at(name)).median;
      if (median > 0) table[name] = median; // 0: in the first epoch only
    }
    line["phases_share"] = runtime::all_reduced(world, median_of(shares_), runtime::Reduction::min);
    line["comm_bytes"] = comm_bytes_;
    line["sent_bytes"] = sent_bytes_;
    line["loss"] = loss_;
    return seconds.median;
  }

 private:
  std::vector<double> seconds_;
  std::vector<double> shares_; // sum of this rank's phases / seconds of the epoch
  std::vector<std::string> order_;
  std::map<std::string, std::vector<double>> phases_;
  std::int64_t comm_bytes_ = 0;
  std::int64_t sent_bytes_ = 0;
  double loss_ = 0;
};

// Attention over stored entries without communication: the three products of a layer (pmm/edges/edge_products.hpp), and the computation
// of their sparse factor, which changes every step: scores, softmax, and the adjoints of both.
//
//   alpha := softmax(scores), Q := alpha V
//   dalpha := dQ V^T, then the gradients of the scores' ends
//   dV := alpha^T dQ

template<class T>
class EdgeProducts {
 public:
  /// Prepares the products of all layers. Every layer must weigh its neighbors by attention.
  EdgeProducts(pmm::ProcessGrid const& grid, models::NetworkPlan const& plan,
               models::OwnedAdjacency<T> const& adjacency);

  /// Runs the product. Enqueues on exec. If several blocks have edges of a row, its softmax covers only this block, because nothing is
  /// sent.
  void multiply(runtime::DefaultExec const& exec, pmm::LocalProduct const& product);
  /// Formula that multiply() computes.
  [[nodiscard]] std::string formula_of(pmm::LocalProduct const& product) const;
  /// Bytes of the coefficients of the edges, and of the vertex terms that the scores read.
  [[nodiscard]] std::int64_t bytes_of_numbers(pmm::LocalProduct const& product) const;

 private:
  [[nodiscard]] models::AttentionSteps const& steps_of(pmm::LocalProduct const& product) const;
  [[nodiscard]] pmm::DynamicOperands<T> dynamic_operands() const { return {rows_, columns_, vectors_}; }
  void sum_neighbours(runtime::DefaultExec const& exec, models::AttentionSteps const& steps);
  void find_gradients(runtime::DefaultExec const& exec, models::AttentionSteps const& steps);

  runtime::Communicator self_; // this rank alone
  runtime::PassLedger passes_; // required by the kernels, not read
  std::shared_ptr<pmm::Workspace<T>> workspace_;
  pmm::EdgeBlock block_;
  std::vector<models::AttentionSteps> steps_; // per layer
  runtime::Vector<T> rows_, columns_, vectors_, coefficients_;
  runtime::Vector<T> gradient_, sums_, of_rows_, of_columns_, terms_; // results
};

extern template class EdgeProducts<float>;
extern template class EdgeProducts<double>;

} // namespace orthant::cli
