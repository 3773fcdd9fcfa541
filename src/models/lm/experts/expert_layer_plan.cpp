// SPDX-License-Identifier: Apache-2.0
#include "models/lm/experts/expert_layer.hpp"
#include "pmm/token_rows/feed_forward.hpp"

#include <algorithm>
#include <string>

namespace orthant::models {
namespace {

constexpr auto routing_label = "orthant::models::ExpertMemory/routing";

/// Lengths of the arrays that do not grow.
struct FixedLengths {
  FixedLengths(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, ExpertPlan const& plan)
      : num_rows(block_of(shape, coordinates, plan.stream).rows.size()),
        num_experts(plan.settings.num_experts),
        num_choices(num_rows * plan.settings.top_k),
        num_counts(plan.settings.sequence_loss > 0 ? num_rows / plan.tokens.length * num_experts : 0) {
    ExpertArray const up(shape, coordinates, plan, plan.up), down(shape, coordinates, plan, plan.down);
    if (shape.z > 1) gathered = std::max(up.num_gathered, down.num_gathered);
  }
  std::int64_t num_rows, num_experts, num_choices, num_counts, gathered = 0;
};

pmm::DispatchSizes largest_sizes_of(pmm::StepPlan const& step, ExpertPlan const& plan,
                                    std::vector<std::int64_t> const& layers, bool is_training) {
  pmm::DispatchSizes largest;
  for (auto const layer : layers)
    largest = largest_of(largest, sizes_of(step, plan, layer, is_training));
  return largest;
}

template<class T>
runtime::Vector<T> make_array(std::string const& label, std::int64_t length) {
  return runtime::Vector<T>(label, static_cast<std::size_t>(length));
}

} // namespace

template<class T>
ExpertScratch<T>::ExpertScratch(pmm::ProcessGrid const& grid, ExpertPlan const& plan) {
  if (!plan.settings.is_on()) return;
  FixedLengths const lengths(grid.shape(), grid.coordinates(), plan);
  logits =
      runtime::Matrix<T>("orthant::models::ExpertScratch/logits", static_cast<std::size_t>(lengths.num_rows),
                         static_cast<std::size_t>(lengths.num_experts));
  weight_gradient = make_array<T>("orthant::models::ExpertScratch/weight_gradient", lengths.num_choices);
  sequence_counts =
      make_array<std::int32_t>("orthant::models::ExpertScratch/sequence_counts", lengths.num_counts);
  gathered = make_array<T>("orthant::models::ExpertScratch/gathered", lengths.gathered);
  addends = make_array<T>("orthant::models::ExpertScratch/addends", lengths.gathered);
}

template<class T>
ExpertMemory<T>::ExpertMemory(pmm::ProcessGrid const& grid, ExpertPlan const& plan,
                              ExpertScratch<T> const& scratch)
    : routing(routing_label, block_of(grid, plan.stream).rows.size(), plan.settings.num_experts,
              plan.settings.top_k, plan.settings.normalizes_weights),
      shares(make_array<T>("orthant::models::ExpertMemory/shares", plan.settings.num_experts)),
      dispatch(grid, plan.axes, plan.settings.num_experts, scratch.messages) {
  routing.scale = plan.settings.weight_scale;
}

void plan_expert_scratch(pmm::StepPlan& step, ExpertPlan const& plan,
                         std::vector<std::int64_t> const& layers) {
  if (!plan.settings.is_on()) return;
  FixedLengths const lengths(step.shape(), step.coordinates(), plan);
  auto const add = [&](char const* label, std::int64_t length) {
    step.add_array(std::string("orthant::models::ExpertScratch/") + label, step.scalar_bytes(length));
  };
  add("logits", lengths.num_rows * lengths.num_experts);
  add("weight_gradient", lengths.num_choices);
  step.add_array("orthant::models::ExpertScratch/sequence_counts",
                 lengths.num_counts * static_cast<std::int64_t>(sizeof(std::int32_t)));
  add("gathered", lengths.gathered);
  add("addends", lengths.gathered);
  auto const sizes = largest_sizes_of(step, plan, layers, false); // evaluations use these, too
  auto const trained = largest_sizes_of(step, plan, layers, true);
  auto const hidden = step.block(plan.stream).columns.size();
  add("rows", sizes.num_arrived * hidden);
  add("inner", trained.num_arrived * step.block(plan.down).rows.size());
  add("outer", trained.num_arrived * step.block(plan.up).columns.size());
  if (travels(step.shape(), plan.axes)) add("returned", sizes.num_sent * hidden);
  plan_dispatch_buffers(step, plan.axes, sizes, hidden);
}

void plan_expert_memory(pmm::StepPlan& step, ExpertPlan const& plan,
                        std::vector<std::int64_t> const& layers) {
  auto const sizes = largest_sizes_of(step, plan, layers, false); // evaluations use these, too
  auto const hidden = step.block(plan.stream).columns.size();
  auto const add = [&](char const* label, std::int64_t length) {
    step.add_array(std::string("orthant::models::ExpertMemory/") + label, step.scalar_bytes(length));
  };
  plan_routing(step, routing_label, step.block(plan.stream).rows.size(), plan.settings.num_experts,
               plan.settings.top_k);
  add("shares", plan.settings.num_experts);
  plan_dispatch_arrays(step, sizes);
  add("arrived", sizes.num_arrived * hidden);
  add("expanded", sizes.num_arrived * step.block(plan.up).columns.size());
  add("activated", sizes.num_arrived * step.block(plan.down).rows.size());
  add("returned", sizes.num_sent * hidden);
}

template struct ExpertScratch<float>;
template struct ExpertScratch<double>;
template struct ExpertMemory<float>;
template struct ExpertMemory<double>;

// Planned operations of a layer of experts, in the order of expert_layer.cpp.
namespace {

using pmm::Axis, pmm::Form, runtime::Operation;

/// Adds the products, passes and collectives of a layer on one rank to a StepPlan.
class Lister {
 public:
  Lister(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer, bool is_training = true)
      : step_(step),
        plan_(plan),
        sizes_(sizes_of(step, plan, layer, is_training)),
        hidden_(step.block(plan.stream).columns.size()),
        num_experts_(plan.settings.num_experts),
        up_(step.shape(), step.coordinates(), plan, plan.up),
        down_(step.shape(), step.coordinates(), plan, plan.down) {}

  void start(bool is_training) {
    auto const& settings = plan_.settings;
    multiply("l = H W_r", Form::product, {sizes_.num_rows, num_experts_, hidden_});
    sum_over_y(sizes_.num_rows * num_experts_);
    pmm::plan_choose_experts(step_, sizes_.num_rows, num_experts_, settings.top_k);
    auto const count_bytes = settings.top_k * num_experts_ * static_cast<std::int64_t>(sizeof(std::int64_t));
    if (is_training && settings.capacity)
      step_.add_call(Operation::exclusive_scan, plan_.counted_axes, count_bytes);
    step_.add_call(Operation::all_reduce, plan_.counted_axes, count_bytes);
    if (plan_.counted_axes != plan_.token_axes)
      step_.add_call(Operation::all_reduce, batch_axes(step_.shape()),
                     (num_experts_ + 1) * static_cast<std::int64_t>(sizeof(std::int64_t)));
    pmm::plan_weigh_experts(step_, sizes_.num_rows, settings.top_k);
    pmm::plan_dispatch_lists(step_, plan_.axes, num_experts_);
    pmm::plan_start_send(step_, plan_.axes, sizes_, hidden_, false);
  }

  void compute() {
    pmm::plan_finish_send(step_, plan_.axes, sizes_, hidden_);
    gather(up_);
    multiply_by_expert("U = Y W_up", Form::product, {sizes_.num_arrived, up_.num_columns, hidden_});
    sum_over_y(sizes_.num_arrived * up_.num_columns);
    pmm::plan_activate(step_, plan_.activation, sizes_.num_arrived * down_.num_rows);
    gather(down_);
    multiply_by_expert("Y = A W_down", Form::product, {sizes_.num_arrived, hidden_, down_.num_rows});
    pmm::plan_give_back(step_, plan_.axes, sizes_, hidden_);
  }

  void combine(bool has_weights, pmm::Update update) {
    pmm::plan_combine(step_, plan_.axes, sizes_, hidden_, has_weights, update);
  }

  void start_backward() {
    pmm::plan_dot(step_, sizes_, hidden_);
    step_.add_call(Operation::all_reduce, plan_.axes.copies.with(plan_.stream.layout.columns),
                   step_.scalar_bytes(sizes_.num_rows * plan_.settings.top_k));
    pmm::plan_start_send(step_, plan_.axes, sizes_, hidden_, true);
  }

  void backward(pmm::Update update) {
    auto const arrived = sizes_.num_arrived;
    pmm::plan_finish_send(step_, plan_.axes, sizes_, hidden_);
    gather(down_);
    multiply_by_expert("dA = dY W_down^T", Form::left_grad, {arrived, down_.num_rows, hidden_});
    multiply_by_expert("dW_down = A^T dY", Form::right_grad, {down_.num_rows, hidden_, arrived});
    sum_over_y(arrived * down_.num_rows);
    reduce(down_);
    pmm::plan_activate_backward(step_, plan_.activation, arrived * down_.num_rows);
    gather(up_);
    multiply_by_expert("dY = dU W_up^T", Form::left_grad, {arrived, hidden_, up_.num_columns});
    multiply_by_expert("dW_up = Y^T dU", Form::right_grad, {hidden_, up_.num_columns, arrived});
    reduce(up_);
    pmm::plan_give_back(step_, plan_.axes, sizes_, hidden_);
    combine(false, update);
    pmm::plan_router_backward(step_, sizes_.num_rows, num_experts_, plan_.settings.top_k,
                              plan_.settings.sequence_loss > 0);
    multiply("dH = dl W_r^T", Form::left_grad, {sizes_.num_rows, hidden_, num_experts_});
    multiply("dW_r = H^T dl", Form::right_grad, {hidden_, num_experts_, sizes_.num_rows});
    if (plan_.settings.has_biases) pmm::plan_move_biases(step_, num_experts_);
  }

 private:
  struct Extents {
    std::int64_t m, n, k;
  };
  void multiply_by_expert(char const* formula, Form form, Extents const& extents) {
    multiply(formula, form, extents, true);
  }
  void multiply(char const* formula, Form form, Extents const& extents, bool is_per_expert = false) {
    pmm::LocalProduct product;
    product.formula = formula;
    product.form = form;
    product.left = plan_.stream;
    product.m = extents.m;
    product.n = extents.n;
    product.k = extents.k;
    product.is_per_expert = is_per_expert;
    step_.add_product(std::move(product));
  }
  void sum_over_y(std::int64_t count) {
    step_.add_call(Operation::all_reduce, plan_.stream.layout.columns, step_.scalar_bytes(count));
  }
  void gather(ExpertArray const& array) {
    step_.add_call(Operation::all_gather, Axis::z, step_.scalar_bytes(array.num_gathered));
  }
  void reduce(ExpertArray const& array) {
    step_.add_call(Operation::reduce_scatter, Axis::z, step_.scalar_bytes(array.num_gathered));
  }

  pmm::StepPlan& step_;
  ExpertPlan const& plan_;
  pmm::DispatchSizes sizes_;
  std::int64_t hidden_, num_experts_;
  ExpertArray up_, down_;
};

} // namespace

void plan_start_experts(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer, bool is_training) {
  Lister(step, plan, layer, is_training).start(is_training);
}

void plan_compute_experts(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer, bool is_training) {
  Lister(step, plan, layer, is_training).compute();
}

void plan_combine_experts(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer,
                          pmm::Update update) {
  Lister(step, plan, layer).combine(true, update);
}

void plan_start_expert_layer_backward(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer) {
  Lister(step, plan, layer).start_backward();
}

void plan_expert_layer_backward(pmm::StepPlan& step, ExpertPlan const& plan, std::int64_t layer,
                                pmm::Update update) {
  Lister(step, plan, layer).backward(update);
}

} // namespace orthant::models
