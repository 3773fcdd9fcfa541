// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/key_value_cache.hpp"

#include "models/lm/transformer/block_memory.hpp"
#include "runtime/error.hpp"

namespace orthant::models {

std::int64_t num_cached_numbers(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                TransformerPlan const& plan, std::int64_t capacity) {
  auto const num_groups = groups_of(block_of(shape, coordinates, plan.qkv.output), plan).size();
  return plan.sequences.size() * capacity * num_groups * 2 * plan.settings.head_dim();
}

template<class T>
KeyValueCache<T>::KeyValueCache(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                std::int64_t capacity)
    : capacity_(capacity),
      num_groups_(groups_of(block_of(grid, plan.qkv.output), plan).size()),
      width_(2 * plan.settings.head_dim()),
      starts_("orthant::models::KeyValueCache/starts", static_cast<std::size_t>(plan.sequences.size())),
      scores_("orthant::models::KeyValueCache/scores",
              static_cast<std::size_t>(plan.sequences.size() * plan.local_heads_per_group() * capacity)) {
  if (plan.num_parts > 1)
    runtime::throw_user(
        "keys and values of earlier tokens are kept for whole sequences, which ranks along a context "
        "axis do not have: continue sequences on a grid without --context-axis");
  ORTHANT_REQUIRE(capacity > 0 && capacity <= plan.settings.max_sequence, "keys and values of ", capacity,
                  " positions of a model with ", plan.settings.max_sequence);
  auto const size = num_cached_numbers(grid.shape(), grid.coordinates(), plan, capacity);
  for (std::int64_t l = 0; l < plan.settings.num_layers; ++l)
    layers_.emplace_back("orthant::models::KeyValueCache/layer", static_cast<std::size_t>(size));
}

template<class T>
void KeyValueCache<T>::set_starts(std::span<std::int64_t const> starts) {
  ORTHANT_REQUIRE(starts.size() == starts_.extent(0), starts.size(), " positions for ", starts_.extent(0),
                  " sequences");
  using Host = Kokkos::View<std::int64_t const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
  Kokkos::deep_copy(starts_, Host(starts.data(), starts.size()));
}

template<class T>
pmm::Panel<T> KeyValueCache<T>::panel(std::int64_t layer, std::int64_t group) const {
  pmm::Panel<T> panel;
  panel.data = layers_[static_cast<std::size_t>(layer)].data() + group * width_;
  panel.num_rows = std::ssize(starts_) * capacity_;
  panel.num_columns = width_;
  panel.row_stride = num_groups_ * width_;
  return panel;
}

template class KeyValueCache<float>;
template class KeyValueCache<double>;

} // namespace orthant::models
