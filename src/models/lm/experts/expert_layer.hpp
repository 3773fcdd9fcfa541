#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Layer of experts, which replaces the products of a feed-forward part, and its memory and planned operations. The tokens H[z,y]
// of a rank are replicated over x. Each expert e has weights of its own:
//
//   l           := sum_y H[z,y] W_r[y,-]                                       router
//   Y           := send(H)                              each rank along x sends a part of its tokens
//   U_e[-,x]    := sum_y Y_e[-,y] W_up,e[y,x]           the rows of expert e, over all ranks along the expert axis
//   A_e         := GELU(U_e), or SwiGLU of its pairs
//   Y_e[-,y]    := A_e W_down,e[x,y]                    partial over x
//   branch[z,y] := combine(give_back(Y))                weights of the router
//
// send, give_back and combine are functions of pmm::Dispatch. The reduce_scatter of give_back() computes the sum over x of the
// last product: each rank along x gets the rows that it sent. Capacity, losses and the order of slots are defined over all tokens
// of a pass, so the results do not depend on the grid, except with CapacityGroup::rank.
//
// Source: DeepSpeed-TED (arXiv 2303.06318), GShard (arXiv 2006.16668).

#include "models/lm/plan/expert_plan.hpp"
#include "pmm/experts/dispatch.hpp"
#include "pmm/experts/routing.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

/// Scratch memory, which all layers of experts use one after the other. The number of received rows changes from step to step, so arrays of
/// these rows can grow.
template<class T>
struct ExpertScratch {
  /// `grid` must outlive this object.
  ExpertScratch(pmm::ProcessGrid const& grid, ExpertPlan const& plan);

  std::shared_ptr<pmm::DispatchBuffers<T>> messages = std::make_shared<pmm::DispatchBuffers<T>>();
  runtime::Matrix<T> logits;                     // [rows x experts]; in the backward pass their gradient
  runtime::Vector<T> weight_gradient;            // [rows x choices]
  runtime::Vector<std::int32_t> sequence_counts; // [sequences x experts], if sequences are balanced
  runtime::Vector<T> gathered;                   // weights of one product, gathered over z; empty if z = 1
  runtime::Vector<T> addends;                    // this rank's addends of their gradient; empty if z = 1
  runtime::GrowingVector<T> rows{"orthant::models::ExpertScratch/rows"};   // [arrived x hidden]
  runtime::GrowingVector<T> inner{"orthant::models::ExpertScratch/inner"}; // [arrived x width]
  runtime::GrowingVector<T> outer{"orthant::models::ExpertScratch/outer"}; // [arrived x width of up]
  runtime::GrowingVector<T> returned{
      "orthant::models::ExpertScratch/returned"}; // [sent x hidden], if rows are communicated
};

/// Results of the forward pass of a layer that its backward pass reads.
template<class T>
struct ExpertMemory {
  /// `grid` must outlive this object, which shares the message buffers of `scratch`.
  ExpertMemory(pmm::ProcessGrid const& grid, ExpertPlan const& plan, ExpertScratch<T> const& scratch);

  pmm::Routing<T> routing;
  runtime::Vector<T> shares; // [experts] share of each expert in all choices of the pass
  pmm::Dispatch<T> dispatch;
  runtime::GrowingVector<T> arrived{"orthant::models::ExpertMemory/arrived"};
  runtime::GrowingVector<T> expanded{"orthant::models::ExpertMemory/expanded"};
  runtime::GrowingVector<T> activated{"orthant::models::ExpertMemory/activated"};
  runtime::GrowingVector<T> returned{"orthant::models::ExpertMemory/returned"};
};

/// Add the arrays of ExpertScratch, and of ExpertMemory, to `step`. Arrays that grow have the largest size of the given layers.
void plan_expert_scratch(pmm::StepPlan& step, ExpertPlan const& plan,
                         std::vector<std::int64_t> const& layers);
void plan_expert_memory(pmm::StepPlan& step, ExpertPlan const& plan, std::vector<std::int64_t> const& layers);

extern template struct ExpertScratch<float>;
extern template struct ExpertScratch<double>;
extern template struct ExpertMemory<float>;
extern template struct ExpertMemory<double>;

/// How often the experts of a layer are chosen in a pass.
struct ExpertLoad {
  std::int64_t layer = 0;
  std::vector<std::int64_t> chosen; // [experts] choices of all ranks
  std::int64_t num_dropped = 0;     // choices that had no slot

  /// Largest count over the mean count; 1 if all experts are chosen equally often.
  [[nodiscard]] double imbalance() const;
  /// Entropy of the experts' shares of the choices, in nats; log(experts) if all are chosen equally often.
  [[nodiscard]] double entropy() const;
};

/// Weights and gradients of a layer. `up` and `down` are this rank's pieces of the arrays of its experts (ExpertArray).
template<class T>
struct ExpertParameters {
  pmm::DistMatrix<T> router, router_gradient;
  pmm::DistVector<T> biases,
      bias_targets; // empty unless the choice has biases; a statistic (parameter_update.hpp)
  runtime::Vector<T> up, up_gradient;
  runtime::Vector<T> down, down_gradient;
};

/// Settings of the router in one pass.
struct RouterPass {
  bool trains = false; // applies the capacity and stores the load
  double noise = 0;    // standard deviation of the noise on the logits
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

template<class T>
class ExpertLayer {
 public:
  /// `grid` and `scratch` must outlive this object. Not collective.
  ExpertLayer(pmm::ProcessGrid const& grid, ExpertPlan const& plan, ExpertParameters<T> parameters,
              std::int64_t layer, std::shared_ptr<ExpertMemory<T>> memory, ExpertScratch<T>& scratch);

  /// Computes the equations at the top of this file up to send(H), whose messages may still be in flight on return. `normed` is
  /// H. Waits for the router's kernels; enqueues the other kernels on exec, as the functions below do. Collective over the
  /// ranks of the stage.
  void start(runtime::DefaultExec const& exec, RouterPass const& pass, pmm::DistMatrix<T> const& normed);
  /// Finishes send(H) and computes up to give_back(Y), which is all that backward() reads. Collective over the ranks of the stage.
  void compute(runtime::DefaultExec const& exec);
  /// Computes the branch and assigns it, or adds it, to `branch`. Collective over x.
  void combine(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& branch,
               pmm::Update update = pmm::Update::assign);
  /// Computes the gradient by the weights of the choices, and starts to send the gradient by the branch. The messages may still
  /// be in flight on return. Collective over the ranks of the stage.
  void start_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& branch_gradient);
  /// Computes the gradients of the parameters, and assigns or adds the gradient by H to normed_gradient. The gradient of the
  /// router is this rank's addend, over its own rows. Collective over the ranks of the stage.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& normed,
                pmm::DistMatrix<T> const& normed_gradient, pmm::Update update = pmm::Update::assign);

  /// Load in the last training pass.
  [[nodiscard]] ExpertLoad const& load() const { return load_; }
  [[nodiscard]] pmm::DispatchSizes const& sizes() const { return memory_->dispatch.sizes(); }
  /// Maximum of each of sizes() so far.
  [[nodiscard]] pmm::DispatchSizes const& largest_sizes() const { return largest_; }

 private:
  [[nodiscard]] ExpertLoad load_of(pmm::ExpertCounts const& counts,
                                   std::optional<std::int64_t> capacity) const;
  void route(runtime::DefaultExec const& exec, RouterPass const& pass, pmm::DistMatrix<T> const& normed);
  [[nodiscard]] runtime::Vector<T> gather(runtime::DefaultExec const& exec, ExpertArray const& array,
                                          runtime::Vector<T> const& piece);
  void reduce(runtime::DefaultExec const& exec, ExpertArray const& array, runtime::Vector<T> const& addends,
              runtime::Vector<T> const& piece);
  [[nodiscard]] runtime::Vector<T> addends_of(ExpertArray const& array, runtime::Vector<T> const& piece);
  void sum_over_y(runtime::DefaultExec const& exec, runtime::Matrix<T> const& rows);
  template<class Product>
  void for_each_expert(Product const& product) const;

  pmm::ProcessGrid const& grid_;
  ExpertPlan plan_;
  ExpertParameters<T> parameters_;
  std::int64_t layer_;
  std::shared_ptr<ExpertMemory<T>> memory_;
  ExpertScratch<T>& scratch_;
  ExpertArray up_, down_;
  ExpertLoad load_;
  pmm::DispatchSizes largest_;
  runtime::Matrix<T> arrived_, expanded_, activated_, returned_; // in memory_
  runtime::Matrix<T> rows_gradient_;                             // in scratch_
};

/// Add the products, passes and collectives of start(), compute(), combine(), start_backward() and backward() of a layer to
/// `step`.
void plan_start_experts(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer, bool is_training);
void plan_compute_experts(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer, bool is_training);
void plan_combine_experts(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer,
                          pmm::Update update = pmm::Update::assign);
void plan_start_expert_layer_backward(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer);
void plan_expert_layer_backward(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer,
                                pmm::Update update = pmm::Update::assign);

extern template class ExpertLayer<float>;
extern template class ExpertLayer<double>;

} // namespace orthant::models
