// SPDX-License-Identifier: Apache-2.0
#include "models/communication.hpp"

namespace orthant::models {
namespace {

/// The calls of one rank, added up by axis.
class RankBytes {
 public:
  RankBytes(pmm::GridShape const& shape, int rank, std::int64_t element_bytes)
      : shape_(shape),
        coordinates_(pmm::coordinates_of(shape, rank)),
        element_bytes_(element_bytes) {}

  [[nodiscard]] pmm::Block block(pmm::Placement const& placement) const {
    return pmm::block_of(shape_, coordinates_, placement);
  }
  void add(pmm::Axis axis, std::int64_t bytes) {
    if (shape_.size(axis) > 1) bytes_[static_cast<std::size_t>(axis)] += bytes;
  }
  /// The result of a product, summed along its third axis; a gathered operand counts the same.
  void move(pmm::Placement const& placement) {
    auto const axis = placement.layout.third();
    auto const parts = placement.layout.storage == pmm::Storage::flat_sharded ? shape_.size(axis) : 1;
    add(axis, element_bytes_ * block(placement).num_padded * parts);
  }
  void read(pmm::Placement const& placement) {
    if (placement.layout.storage != pmm::Storage::replicated) move(placement);
  }
  [[nodiscard]] std::array<std::int64_t, 3> const& bytes() const { return bytes_; }

 private:
  pmm::GridShape shape_;
  pmm::Coordinates coordinates_;
  std::int64_t element_bytes_;
  std::array<std::int64_t, 3> bytes_{};
};

void add_layer(RankBytes& rank, GcnLayerPlan const& layer, GcnSettings const& settings,
               std::int64_t element_bytes, bool keeps_aggregate) {
  auto const needs_input_gradient =
      layer.index > 0 || settings.projected_width > 0 || settings.trains_features;
  // Forward: both products, each reading its operands.
  rank.read(layer.weight);
  rank.read(layer.input);
  if (!keeps_aggregate) rank.move(layer.middle);
  rank.move(layer.output);
  // Backward, as gcn_layer.hpp lists it.
  if (settings.has_bias)
    rank.add(layer.output.layout.rows, element_bytes * rank.block(layer.output).columns.size());
  if (!layer.aggregates_first) rank.read(layer.input); // for dW
  rank.move(layer.weight);                             // dW
  if (needs_input_gradient) {
    rank.read(layer.weight);
    rank.move(layer.input);
  }
  if (needs_input_gradient || !layer.aggregates_first) rank.move(layer.middle); // dH or dU
}

/// As rms_norm.hpp lists it.
void add_norm(RankBytes& rank, pmm::Placement const& output, std::int64_t element_bytes) {
  auto const block = rank.block(output);
  rank.add(output.layout.columns, 2 * element_bytes * block.rows.size()); // squares; dn n
  rank.add(output.layout.rows, element_bytes * block.columns.size());     // dg
}

/// As gcn_linear.hpp lists it.
void add_linear(RankBytes& rank, LinearPlan const& linear, GcnSettings const& settings,
                std::int64_t element_bytes, bool needs_input_gradient) {
  rank.read(linear.input);
  rank.read(linear.weight);
  rank.move(linear.output);
  if (settings.has_bias)
    rank.add(linear.output.layout.rows, element_bytes * rank.block(linear.output).columns.size());
  if (needs_input_gradient) {
    rank.read(linear.weight);
    rank.move(linear.input);
  }
  rank.read(linear.input);
  rank.move(linear.weight); // dW
}

} // namespace

template<class T>
std::array<std::int64_t, 3> predict_epoch_bytes(pmm::GridShape const& shape, GcnPlan const& plan,
                                                GcnSettings const& settings) {
  constexpr auto element_bytes = static_cast<std::int64_t>(sizeof(T));
  auto const keeps_first_aggregate = plan.layers.front().aggregates_first && !plan.projection &&
                                     !settings.trains_features && settings.dropout == 0;
  std::array<std::int64_t, 3> sum{};
  for (int r = 0; r < shape.num_ranks(); ++r) {
    RankBytes rank(shape, r, element_bytes);
    if (plan.projection)
      add_linear(rank, *plan.projection, settings, element_bytes, settings.trains_features);
    for (std::size_t l = 0; l < plan.layers.size(); ++l) {
      add_layer(rank, plan.layers[l], settings, element_bytes, l == 0 && keeps_first_aggregate);
      if (settings.norm == Norm::rms && is_activated(plan, l))
        add_norm(rank, plan.layers[l].output, element_bytes);
    }
    if (plan.head) add_linear(rank, *plan.head, settings, element_bytes, true);
    // The loss: a maximum, a sum and the label's logit a row over the classes; one number over the rows.
    auto const& logits = plan.logits();
    rank.add(logits.layout.columns, 3 * element_bytes * rank.block(logits).rows.size());
    rank.add(logits.layout.rows, static_cast<std::int64_t>(sizeof(double)));
    for (std::size_t axis = 0; axis < sum.size(); ++axis)
      sum[axis] += rank.bytes()[axis];
  }
  return sum;
}

template std::array<std::int64_t, 3> predict_epoch_bytes<float>(pmm::GridShape const&, GcnPlan const&,
                                                                GcnSettings const&);
template std::array<std::int64_t, 3> predict_epoch_bytes<double>(pmm::GridShape const&, GcnPlan const&,
                                                                 GcnSettings const&);

} // namespace orthant::models
