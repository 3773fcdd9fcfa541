#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A layer of experts in place of the products of a feed-forward part. For the tokens H[z,y] of a rank, replicated over x, each
// expert e with weights of its own:
//
//   l           := sum_y H[z,y] W_r[y,-]                                       router
//   Y           := send(H)                              each rank along x sends a part of its tokens
//   U_e[-,x]    := sum_y Y_e[-,y] W_up,e[y,x]           the rows of expert e, over all ranks along the expert axis
//   A_e         := GELU(U_e), or SwiGLU of its pairs
//   Y_e[-,y]    := A_e W_down,e[x,y]                    partial over x
//   branch[z,y] := combine(return(Y))                   weights of the router
//
// The sum over x of the last product is the reduce_scatter of return(): each rank along x gets the rows that it sent. Capacity,
// losses and the order of slots are those of all tokens of a pass, so the grid does not change the answer.
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

// How evenly the experts of a layer are chosen in a pass.

// What the backward pass of a layer of experts reads of its forward pass, and what all layers use in turn. How many rows
// arrive changes from step to step, so most of it grows.

template<class T>
struct ExpertScratch {
  /// `grid` must outlive it.
  ExpertScratch(pmm::ProcessGrid const& grid, ExpertPlan const& plan);

  std::shared_ptr<pmm::DispatchBuffers<T>> messages = std::make_shared<pmm::DispatchBuffers<T>>();
  runtime::Matrix<T> logits;          // [rows x experts], and their gradient
  runtime::Vector<T> weight_gradient; // [rows x choices]
  runtime::Vector<T> gathered;        // the longer array of weights, if z has ranks
  runtime::Vector<T> addends;         // of its gradient
  runtime::GrowingVector<T> rows{"orthant::models::ExpertScratch/rows"};   // [arrived x hidden]
  runtime::GrowingVector<T> inner{"orthant::models::ExpertScratch/inner"}; // [arrived x width]
  runtime::GrowingVector<T> outer{"orthant::models::ExpertScratch/outer"}; // [arrived x width of up]
  runtime::GrowingVector<T> returned{
      "orthant::models::ExpertScratch/returned"}; // [sent x hidden], if rows travel
};

template<class T>
struct ExpertMemory {
  /// `grid` and `scratch` must outlive it.
  ExpertMemory(pmm::ProcessGrid const& grid, ExpertPlan const& plan, ExpertScratch<T> const& scratch);

  pmm::Routing<T> routing;
  runtime::Vector<T> shares; // [experts] of all choices of the pass
  pmm::Dispatch<T> dispatch;
  runtime::GrowingVector<T> arrived{"orthant::models::ExpertMemory/arrived"};
  runtime::GrowingVector<T> expanded{"orthant::models::ExpertMemory/expanded"};
  runtime::GrowingVector<T> activated{"orthant::models::ExpertMemory/activated"};
  runtime::GrowingVector<T> returned{"orthant::models::ExpertMemory/returned"};
};

/// List their arrays. What grows has the largest size of the layers that use it.
void plan_expert_scratch(pmm::StepPlan& step, ExpertPlan const& plan,
                         std::vector<std::int64_t> const& layers);
void plan_expert_memory(pmm::StepPlan& step, ExpertPlan const& plan, std::vector<std::int64_t> const& layers);

extern template struct ExpertScratch<float>;
extern template struct ExpertScratch<double>;
extern template struct ExpertMemory<float>;
extern template struct ExpertMemory<double>;

struct ExpertLoad {
  std::int64_t layer = 0;
  std::vector<std::int64_t> chosen; // [experts] choices of all ranks
  std::int64_t num_dropped = 0;     // of them, those that had no slot

  /// The largest over the mean: 1 is even.
  [[nodiscard]] double imbalance() const;
  /// Of the shares of the choices, in nats: log(experts) is even.
  [[nodiscard]] double entropy() const;
};

/// Weights and gradients of a layer: this rank's pieces of the arrays of its experts.
template<class T>
struct ExpertParameters {
  pmm::DistMatrix<T> router, router_gradient;
  runtime::Vector<T> up, up_gradient;
  runtime::Vector<T> down, down_gradient;
};

/// What a pass knows of the router's choices.
struct RouterPass {
  bool trains = false; // experts have a capacity, and the load is kept
  double noise = 0;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

template<class T>
class ExpertLayer {
 public:
  /// `grid` and `scratch` must outlive it. Not collective.
  ExpertLayer(pmm::ProcessGrid const& grid, ExpertPlan const& plan, ExpertParameters<T> parameters,
              std::int64_t layer, std::shared_ptr<ExpertMemory<T>> memory, ExpertScratch<T>& scratch);

  /// As above up to send(H), which may be on its way when this returns. Collective over the grid's world. Waits for the router's kernels;
  /// enqueues the others on exec, as the other functions do.
  void start(runtime::DefaultExec const& exec, RouterPass const& pass, pmm::DistMatrix<T> const& normed);
  /// All that backward() reads: up to return(Y). Collective over the grid's world.
  void compute(runtime::DefaultExec const& exec);
  /// And then branch, which is assigned or added to. Collective over x.
  void combine(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& branch,
               pmm::Update update = pmm::Update::assign);
  /// The gradient by the weights of the router; and that of the branch may be on its way when this returns. Collective over the grid's world.
  void start_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& branch_gradient);
  /// Gradients of the parameters, the router's of this rank's rows; and normed_gradient := that by H, or plus it. Collective over the grid's
  /// world.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& normed,
                pmm::DistMatrix<T> const& normed_gradient, pmm::Update update = pmm::Update::assign);

  /// Of the last training pass.
  [[nodiscard]] ExpertLoad const& load() const { return load_; }
  [[nodiscard]] pmm::DispatchSizes const& sizes() const { return memory_->dispatch.sizes(); }
  /// The largest so far.
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

/// List what the functions do in that layer.
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
