// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/block_memory.hpp"

#include "models/lm/transformer/query_key_norm.hpp"

#include <algorithm>
#include <string>

namespace orthant::models {
namespace {

constexpr auto document_positions_label = "orthant::models::document_positions";
constexpr auto before_joint_norm_label = "orthant::models::JointNormMemory/before";
constexpr auto joint_norm_state_label = "orthant::models::JointNormMemory/inverse_deviation";
constexpr auto query_key_sums_label = "orthant::models::query_key_sums";
constexpr auto normed_label = "orthant::models::TransformerScratch/normed";
constexpr auto activated_label = "orthant::models::TransformerScratch/activated";
constexpr auto attention_out_label = "orthant::models::TransformerScratch/attention_out";
constexpr auto attended_out_label = "orthant::models::TransformerScratch/attended_out";
constexpr auto kept_attended_out_label = "orthant::models::AttentionMemory/attended_out";
constexpr auto token_ids_label = "orthant::models::token_ids";

template<class T>
runtime::Vector<T> make(std::string const& label, std::int64_t count) {
  return runtime::Vector<T>(label, static_cast<std::size_t>(count));
}

/// ids(i) := first + the number of row i among the tokens of whole sequences.
struct Number {
  std::int64_t* ids;
  std::int64_t first;
  pmm::SequencePart tokens;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { ids[i] = first + tokens.token_of(i); }
};

/// Layers of this rank at `place` of their segments that have experts, or that have none.
std::vector<std::int64_t> layers_at(TransformerPlan const& plan, std::int64_t place, bool has_experts) {
  std::vector<std::int64_t> layers;
  for (auto l = plan.stage.layers.begin + place; l < plan.stage.layers.end; l += layers_per_segment(plan))
    if (plan.settings.experts.has_layer(l) == has_experts) layers.push_back(l);
  return layers;
}

} // namespace

runtime::Range groups_of(pmm::Block const& qkv, TransformerPlan const& plan) {
  auto const width = plan.group_width();
  return {qkv.columns.begin / width, (qkv.columns.end + width - 1) / width};
}

runtime::Range attended_groups(pmm::Block const& qkv, TransformerPlan const& plan) {
  auto groups = groups_of(qkv, plan);
  if (!plan.exchanges_heads()) return groups;
  auto const count = groups.size() / plan.num_parts;
  groups.begin += plan.part * count;
  return {groups.begin, groups.begin + count};
}

namespace {

/// Numbers of `block` if they move in exchanges of heads, otherwise 0.
std::int64_t num_exchanged(TransformerPlan const& plan, pmm::Block const& block) {
  return plan.exchanges_heads() ? block.num_stored : 0;
}

} // namespace

std::int64_t layers_per_segment(TransformerPlan const& plan) {
  auto const num_layers = plan.stage.layers.size();
  auto const every = plan.settings.checkpoint_every;
  return every == 0 ? num_layers : std::min(every, num_layers);
}

std::int64_t place_in_segment(TransformerPlan const& plan, std::int64_t layer) {
  return (layer - plan.stage.layers.begin) % layers_per_segment(plan);
}

std::vector<runtime::Range> segments(TransformerPlan const& plan) {
  auto const length = layers_per_segment(plan);
  auto const& layers = plan.stage.layers;
  std::vector<runtime::Range> all;
  for (auto begin = layers.begin; begin < layers.end; begin += length)
    all.push_back({begin, std::min(begin + length, layers.end)});
  std::reverse(all.begin(), all.end());
  return all;
}

bool is_computed_again(TransformerPlan const& plan, std::int64_t layer) {
  return layer < segments(plan).front().begin;
}

bool ends_segment(TransformerPlan const& plan, std::int64_t layer) {
  return place_in_segment(plan, layer) + 1 == layers_per_segment(plan) || layer + 1 == plan.stage.layers.end;
}

bool keeps_output(TransformerPlan const& plan, std::int64_t layer) {
  return plan.settings.checkpoint_every == 0 || ends_segment(plan, layer);
}

JointNormLengths::JointNormLengths(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                   TransformerPlan const& plan)
    : rows(plan.sequences.size() * plan.sequence),
      query_columns(block_of(shape, coordinates, plan.projection.input).columns.size()),
      key_columns(block_of(shape, coordinates, plan.key_scale).columns.size()) {}

namespace {

/// Length of query_key_sums.
std::int64_t num_query_key_sums(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                TransformerPlan const& plan) {
  if (plan.settings.query_key_norm != QueryKeyNorm::all) return num_head_norm_sums(plan.settings);
  JointNormLengths const lengths(shape, coordinates, plan);
  return lengths.rows * (lengths.key_columns + 2);
}

void plan_joint_norm_memory(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (plan.settings.query_key_norm != QueryKeyNorm::all) return;
  JointNormLengths const lengths(step.shape(), step.coordinates(), plan);
  for (auto const columns : {lengths.query_columns, lengths.key_columns}) {
    step.add_array(before_joint_norm_label, step.scalar_bytes(lengths.rows * columns));
    step.add_array(joint_norm_state_label, step.scalar_bytes(lengths.rows));
  }
}

template<class T>
JointNormMemory<T> make_joint_norm_memory(pmm::ProcessGrid const& grid, TransformerPlan const& plan) {
  if (plan.settings.query_key_norm != QueryKeyNorm::all) return {};
  JointNormLengths const lengths(grid.shape(), grid.coordinates(), plan);
  auto const before = [&](std::int64_t columns) {
    return runtime::Matrix<T>(std::string(before_joint_norm_label), static_cast<std::size_t>(lengths.rows),
                              static_cast<std::size_t>(columns));
  };
  auto const state = [&] { return pmm::RowNormState<T>{{}, make<T>(joint_norm_state_label, lengths.rows)}; };
  return {before(lengths.query_columns), before(lengths.key_columns), state(), state()};
}

} // namespace

template<class T>
void keep_gradient(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                   runtime::Vector<T> const& gradient, runtime::Vector<T> const& kept) {
  auto const bytes = runtime::array_bytes(kept);
  passes.add({"keep_gradient", bytes, bytes});
  Kokkos::deep_copy(exec, kept, gradient);
}
template void keep_gradient(runtime::DefaultExec const&, runtime::PassLedger&, runtime::Vector<float> const&,
                            runtime::Vector<float> const&);
template void keep_gradient(runtime::DefaultExec const&, runtime::PassLedger&, runtime::Vector<double> const&,
                            runtime::Vector<double> const&);

void plan_kept_gradient(pmm::StepPlan& step, std::int64_t count) {
  step.add_pass({"keep_gradient", step.scalar_bytes(count), step.scalar_bytes(count)});
}

void plan_block_memory(pmm::StepPlan& step, TransformerPlan const& plan, std::int64_t place) {
  auto const num_heads = groups_of(step.block(plan.qkv.output), plan).size() * plan.local_heads_per_group();
  auto const& again = plan.settings.recomputed;
  plan_norm_arrays(step, plan);
  if (!again.norms) plan_matrix(step, plan.stream, "orthant::models::AttentionMemory/normed");
  plan_matrix(step, plan.qkv.output, "orthant::models::AttentionMemory/qkv");
  if (!again.attention) {
    plan_matrix(step, plan.projection.input, "orthant::models::AttentionMemory/out");
    step.add_array(kept_attended_out_label,
                   step.scalar_bytes(num_exchanged(plan, step.block(plan.projection.input))));
  }
  step.add_array("orthant::models::AttentionMemory/log_sum_exp",
                 step.scalar_bytes(num_heads * step.block(plan.stream).rows.size()));
  step.add_array("orthant::models::AttentionMemory/key_values", step.scalar_bytes(num_shared_numbers(plan)));
  plan_joint_norm_memory(step, plan);
  if (plan.settings.query_key_norm == QueryKeyNorm::head)
    plan_matrix(step, plan.qkv.output, "orthant::models::AttentionMemory/before_norm");
  if (plan.stage.splits_backward) {
    plan_matrix(step, plan.qkv.output, "orthant::models::AttentionMemory/qkv_gradient");
    plan_matrix(step, plan.stream, "orthant::models::AttentionMemory/branch_gradient");
    plan_matrix(step, plan.up.output, "orthant::models::FeedForwardMemory/expanded_gradient");
    plan_matrix(step, plan.stream, "orthant::models::FeedForwardMemory/branch_gradient");
  }
  plan_norm_arrays(step, plan);
  if (!again.norms) plan_matrix(step, plan.stream, "orthant::models::FeedForwardMemory/normed");
  if (!layers_at(plan, place, false).empty()) {
    plan_matrix(step, plan.up.output, "orthant::models::FeedForwardMemory/expanded");
    if (!again.activations)
      plan_matrix(step, plan.down.input, "orthant::models::FeedForwardMemory/activated");
  }
  if (auto const layers = layers_at(plan, place, true); !layers.empty()) {
    plan_expert_memory(step, plan.experts, layers);
    if (plan.settings.experts.has_shared()) {
      plan_matrix(step, plan.shared_up.output, "orthant::models::FeedForwardMemory/shared_expanded");
      if (!again.activations)
        plan_matrix(step, plan.shared_down.input, "orthant::models::FeedForwardMemory/shared_activated");
    }
  }
  plan_matrix(step, plan.stream, "orthant::models::stream");
}

namespace {

/// A matrix in the scratch memory if it is computed again, or in memory of its own.
template<class T>
pmm::DistMatrix<T> kept(pmm::ProcessGrid const& grid, pmm::Placement const& placement,
                        std::string const& label, bool is_computed_again, runtime::Vector<T> const& scratch) {
  return is_computed_again ? pmm::DistMatrix<T>(grid, placement, scratch)
                           : pmm::DistMatrix<T>(grid, placement, label);
}

} // namespace

template<class T>
AttentionMemory<T>::AttentionMemory(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                    TransformerScratch<T> const& scratch)
    : norm(make_norm_state<T>(grid, plan)),
      normed(kept(grid, plan.stream, "orthant::models::AttentionMemory/normed",
                  plan.settings.recomputed.norms, scratch.normed)),
      qkv(grid, plan.qkv.output, "orthant::models::AttentionMemory/qkv"),
      out(kept(grid, plan.projection.input, "orthant::models::AttentionMemory/out",
               plan.settings.recomputed.attention, scratch.attention_out)),
      attended_out(plan.settings.recomputed.attention
                       ? scratch.attended_out
                       : make<T>(kept_attended_out_label, num_exchanged(plan, out.block()))),
      log_sum_exp("orthant::models::AttentionMemory/log_sum_exp",
                  static_cast<std::size_t>(groups_of(qkv.block(), plan).size() *
                                           plan.local_heads_per_group() * normed.block().rows.size())),
      joint_norms(make_joint_norm_memory<T>(grid, plan)),
      key_values(make<T>("orthant::models::AttentionMemory/key_values", num_shared_numbers(plan))) {
  if (plan.settings.query_key_norm == QueryKeyNorm::head)
    before_norm = {grid, plan.qkv.output, "orthant::models::AttentionMemory/before_norm"};
  if (!plan.stage.splits_backward) return;
  qkv_gradient = {grid, plan.qkv.output, "orthant::models::AttentionMemory/qkv_gradient"};
  branch_gradient = {grid, plan.stream, "orthant::models::AttentionMemory/branch_gradient"};
}

template<class T>
FeedForwardMemory<T>::FeedForwardMemory(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                        std::int64_t place, TransformerScratch<T> const& scratch)
    : norm(make_norm_state<T>(grid, plan)),
      normed(kept(grid, plan.stream, "orthant::models::FeedForwardMemory/normed",
                  plan.settings.recomputed.norms, scratch.normed)) {
  auto const again = plan.settings.recomputed.activations;
  if (!layers_at(plan, place, false).empty()) {
    expanded = {grid, plan.up.output, "orthant::models::FeedForwardMemory/expanded"};
    activated =
        kept(grid, plan.down.input, "orthant::models::FeedForwardMemory/activated", again, scratch.activated);
  }
  if (plan.stage.splits_backward) {
    expanded_gradient = {grid, plan.up.output, "orthant::models::FeedForwardMemory/expanded_gradient"};
    branch_gradient = {grid, plan.stream, "orthant::models::FeedForwardMemory/branch_gradient"};
  }
  if (layers_at(plan, place, true).empty()) return;
  experts = std::make_shared<ExpertMemory<T>>(grid, plan.experts, scratch.experts);
  if (!plan.settings.experts.has_shared()) return;
  shared_expanded = {grid, plan.shared_up.output, "orthant::models::FeedForwardMemory/shared_expanded"};
  shared_activated = kept(grid, plan.shared_down.input, "orthant::models::FeedForwardMemory/shared_activated",
                          again, scratch.activated);
}

template<class T>
BlockMemory<T>::BlockMemory(pmm::ProcessGrid const& grid, TransformerPlan const& plan, std::int64_t place,
                            TransformerScratch<T> const& scratch)
    : attention(grid, plan, scratch),
      feed_forward(grid, plan, place, scratch),
      middle(grid, plan.stream, "orthant::models::stream") {}

template struct BlockMemory<float>;
template struct BlockMemory<double>;

ScratchLengths::ScratchLengths(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                               TransformerPlan const& plan) {
  auto const length = [&](pmm::Placement const& placement) {
    return block_of(shape, coordinates, placement).num_stored;
  };
  auto const num_rows = block_of(shape, coordinates, plan.stream).rows.size();
  auto const heads =
      block_of(shape, coordinates, plan.projection.input).columns.size() / plan.settings.head_dim();
  branch = length(plan.stream);
  wide = length(plan.qkv.output);
  attention_out = narrow = length(plan.projection.input);
  if (plan.exchanges_heads()) attended_out = attention_out;
  if (plan.has_block(false)) {
    wide = std::max(wide, length(plan.up.output));
    activated = length(plan.down.input);
  }
  if (plan.settings.experts.has_shared() && plan.has_block(true)) {
    wide = std::max(wide, length(plan.shared_up.output));
    activated = std::max(activated, length(plan.shared_down.input));
  }
  narrow = std::max(narrow, activated);
  if (plan.stage.splits_backward) wide = 0; // kept in the memory of the block
  row_sums = num_rows * pmm::sums_per_row(row_norm_of(plan.settings).kind);
  row_terms = num_rows * heads;
}

namespace {

std::int64_t num_rows_of(TransformerPlan const& plan) {
  return plan.sequences.size() * plan.sequence;
}
/// Rows of queries in attention that are listed beside the rows of this rank; 0 unless heads are exchanged.
std::int64_t num_attended_rows(TransformerPlan const& plan) {
  return plan.exchanges_heads() ? plan.sequences.size() * plan.whole_sequence() : 0;
}
/// Lengths of the arrays of document_positions.
std::int64_t num_positions(TransformerPlan const& plan) {
  return plan.lists_positions() ? num_rows_of(plan) : 0;
}
std::int64_t num_attended_positions(TransformerPlan const& plan) {
  return plan.settings.masks_documents ? num_attended_rows(plan) : 0;
}

void add_numbers(pmm::StepPlan& step, char const* label, std::int64_t count) {
  step.add_array(label, count * std::int64_t{sizeof(std::int64_t)});
}

/// Two arrays, or one if heads are not exchanged.
TokenNumbers make_numbers(TransformerPlan const& plan, char const* label, std::int64_t num_own,
                          std::int64_t num_attended) {
  auto const own = make<std::int64_t>(label, num_own);
  return {own, plan.exchanges_heads() ? make<std::int64_t>(label, num_attended) : own};
}

} // namespace

TokenNumbers make_document_positions(TransformerPlan const& plan) {
  return make_numbers(plan, document_positions_label, num_positions(plan), num_attended_positions(plan));
}

void plan_document_positions(pmm::StepPlan& step, TransformerPlan const& plan) {
  add_numbers(step, document_positions_label, num_positions(plan));
  add_numbers(step, document_positions_label, num_attended_positions(plan));
}

template<class T>
TransformerScratch<T>::TransformerScratch(pmm::ProcessGrid const& grid, TransformerPlan const& plan)
    : gathered(grid, plan),
      heads(grid, plan.sequences.size(), plan.tokens(),
            plan.exchanges_heads() ? block_of(grid, plan.qkv.output).columns.size() : 0),
      work(grid),
      experts(grid, plan.experts) {
  ScratchLengths const lengths(grid.shape(), grid.coordinates(), plan);
  auto const& again = plan.settings.recomputed;
  if (again.norms) normed = make<T>(normed_label, lengths.branch);
  if (again.activations) activated = make<T>(activated_label, lengths.activated);
  if (again.attention) {
    attention_out = make<T>(attention_out_label, lengths.attention_out);
    attended_out = make<T>(attended_out_label, lengths.attended_out);
  }
  branch = make<T>("orthant::models::branch", lengths.branch);
  normed_gradient = make<T>("orthant::models::normed_gradient", lengths.branch);
  wide_gradient = make<T>("orthant::models::wide_gradient", lengths.wide);
  narrow_gradient = make<T>("orthant::models::narrow_gradient", lengths.narrow);
  row_sums = make<T>("orthant::models::row_sums", lengths.row_sums);
  row_terms = make<T>("orthant::models::row_terms", lengths.row_terms);
  key_value_gradients = make<T>("orthant::models::key_value_gradients", num_shared_numbers(plan));
  query_key_sums = make<T>(query_key_sums_label, num_query_key_sums(grid.shape(), grid.coordinates(), plan));
  document_positions = make_document_positions(plan);
  if (plan.settings.dropout == 0) return;
  token_ids = make_numbers(plan, token_ids_label, num_rows_of(plan), num_attended_rows(plan));
  auto const first = plan.sequences.begin * plan.whole_sequence();
  auto const number = [&](runtime::Vector<std::int64_t> const& ids, pmm::SequencePart const& tokens) {
    Kokkos::parallel_for(
        "orthant::models::number_tokens",
        Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(0, static_cast<std::int64_t>(ids.extent(0))),
        Number{ids.data(), first, tokens});
  };
  number(token_ids.own, plan.tokens());
  if (plan.exchanges_heads()) number(token_ids.attended, {plan.whole_sequence()});
}

void plan_scratch_arrays(pmm::StepPlan& step, TransformerPlan const& plan) {
  ScratchLengths const lengths(step.shape(), step.coordinates(), plan);
  auto const& again = plan.settings.recomputed;
  if (again.norms) step.add_array(normed_label, step.scalar_bytes(lengths.branch));
  if (again.activations) step.add_array(activated_label, step.scalar_bytes(lengths.activated));
  if (again.attention) {
    step.add_array(attention_out_label, step.scalar_bytes(lengths.attention_out));
    step.add_array(attended_out_label, step.scalar_bytes(lengths.attended_out));
  }
  step.add_array("orthant::models::branch", step.scalar_bytes(lengths.branch));
  step.add_array("orthant::models::normed_gradient", step.scalar_bytes(lengths.branch));
  step.add_array("orthant::models::wide_gradient", step.scalar_bytes(lengths.wide));
  step.add_array("orthant::models::narrow_gradient", step.scalar_bytes(lengths.narrow));
  step.add_array("orthant::models::row_sums", step.scalar_bytes(lengths.row_sums));
  step.add_array("orthant::models::row_terms", step.scalar_bytes(lengths.row_terms));
  step.add_array("orthant::models::key_value_gradients", step.scalar_bytes(num_shared_numbers(plan)));
  step.add_array(query_key_sums_label,
                 step.scalar_bytes(num_query_key_sums(step.shape(), step.coordinates(), plan)));
  plan_gathered_key_values(step, plan);
  plan_document_positions(step, plan);
  pmm::plan_head_exchange_arrays(step, num_exchanged(plan, step.block(plan.qkv.output)));
  if (plan.settings.dropout == 0) return;
  add_numbers(step, token_ids_label, num_rows_of(plan));
  add_numbers(step, token_ids_label, num_attended_rows(plan));
}

template struct TransformerScratch<float>;
template struct TransformerScratch<double>;

} // namespace orthant::models
