// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.hpp"

#include "runtime/error.hpp"

#include <limits>

namespace orthant::sampling {

using runtime::throw_user;

Sampler::Sampler(std::int64_t num_groups, std::int64_t num_accumulated)
    : num_groups_(num_groups),
      num_accumulated_(num_accumulated) {
  ORTHANT_REQUIRE(num_groups_ >= 1 && num_accumulated_ >= 1, num_groups_, " groups, ", num_accumulated_,
                  " batches each");
  // If Gd K overflows, use a number that is larger than any graph and is therefore refused later.
  constexpr auto most = std::numeric_limits<std::int64_t>::max() / 2;
  step_batches_ = num_accumulated_ > most / num_groups_ ? most : num_groups_ * num_accumulated_;
}

std::int64_t Sampler::count_batches(std::int64_t num_wanted, std::int64_t batch_size, std::int64_t num_shared,
                                    std::string_view what) const {
  if (num_wanted < num_groups_)
    throw_user("batches of {} vertices make {} an epoch, so that some of the {} data groups have no work; "
               "give fewer groups or smaller batches",
               batch_size, num_wanted, num_groups_);
  auto const num_batches = divided_up(num_wanted, step_batches_) * step_batches_;
  if (num_batches > num_shared)
    throw_user("{} groups times --accumulate {} make {} batches an epoch, but there are {} {} to share "
               "out; give larger batches, fewer groups or accumulate less",
               num_groups_, num_accumulated_, num_batches, num_shared, what);
  return num_batches;
}

double edge_factor(std::int64_t num_vertices, std::int64_t num_sampled, bool is_same_stratum) {
  auto const self = is_same_stratum ? 1 : 0; // i itself is in the batch and is not its own neighbor
  if (num_sampled <= self) return 0;
  return static_cast<double>(num_vertices - self) / static_cast<double>(num_sampled - self);
}

void require_batch_size(std::int64_t batch_size, std::int64_t num_vertices, std::int64_t num_train) {
  if (batch_size < 2) throw_user("a batch needs at least 2 vertices, not {} (--batch)", batch_size);
  if (batch_size > num_vertices)
    throw_user("a batch of {} vertices, but the graph has {}; give --batch {} or less", batch_size,
               num_vertices, num_vertices);
  if (num_train < 1) throw_user("the graph has no training vertices, so that no batch has a loss");
}

} // namespace orthant::sampling
