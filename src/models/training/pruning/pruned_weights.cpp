// SPDX-License-Identifier: Apache-2.0
#include "models/training/pruning/pruned_weights.hpp"

#include "models/parameters/device_copy.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/error.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::Vector;
using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

/// Bits of a number without its sign.
template<class T>
constexpr int num_magnitude_bits = 8 * static_cast<int>(sizeof(T)) - 1;
/// Bits of a digit: 2048 counts are a small message, and 3 passes over fp32 numbers find a threshold.
constexpr int digit_bits = 11;
constexpr std::uint64_t digit_mask = (std::uint64_t{1} << digit_bits) - 1;

/// The bits of |number|: integers in the order of the magnitudes.
template<class T>
KOKKOS_INLINE_FUNCTION std::uint64_t magnitude_of(T number) {
  if constexpr (sizeof(T) == sizeof(std::uint32_t))
    return std::bit_cast<std::uint32_t>(number) & 0x7fffffffU;
  else
    return std::bit_cast<std::uint64_t>(number) & 0x7fffffffffffffffULL;
}

/// Counts the digits at `shift` of the magnitudes that equal `prefix` in the bits of `known`.
template<class T>
struct CountDigits {
  Vector<T> weights;
  Vector<std::uint64_t> counts; // [2^digit_bits]
  std::uint64_t known, prefix;
  int shift;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const magnitude = magnitude_of(weights(static_cast<std::size_t>(i)));
    if ((magnitude & known) == prefix)
      Kokkos::atomic_add(&counts(static_cast<std::size_t>((magnitude >> shift) & digit_mask)),
                         std::uint64_t{1});
  }
};

/// Counts the entries of magnitude `least` or more.
template<class T>
struct CountKept {
  Vector<T> weights;
  std::uint64_t least;
  KOKKOS_FUNCTION void operator()(std::int64_t i, std::int64_t& count) const {
    if (magnitude_of(weights(static_cast<std::size_t>(i))) >= least) ++count;
  }
};

/// Lists their places.
template<class T>
struct ListKept {
  Vector<T> weights;
  std::uint64_t least;
  KeptPlaces kept;
  KOKKOS_FUNCTION void operator()(std::int64_t i, std::int64_t& place, bool is_last) const {
    if (magnitude_of(weights(static_cast<std::size_t>(i))) < least) return;
    if (is_last) kept(static_cast<std::size_t>(place)) = static_cast<std::int32_t>(i);
    ++place;
  }
};

/// Sets all others to 0.
template<class T>
struct ClearOthers {
  Vector<T> weights;
  std::uint64_t least;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto& weight = weights(static_cast<std::size_t>(i));
    if (magnitude_of(weight) < least) weight = T{0};
  }
};

} // namespace

std::int64_t PruneSettings::num_kept(std::int64_t num_entries) const {
  auto const num_pruned = static_cast<std::int64_t>(std::floor(share * static_cast<double>(num_entries)));
  return std::max<std::int64_t>(num_entries - num_pruned, std::min<std::int64_t>(num_entries, 1));
}

template<class T>
PrunedWeights<T>::PrunedWeights(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                                PruneSettings const& settings)
    : grid_(grid),
      parameters_(parameters),
      settings_(settings),
      kept_(parameters.size()) {
  for (auto const& parameter : parameters_)
    ORTHANT_REQUIRE(!parameter.is_prunable ||
                        parameter.value().extent(0) <= std::size_t{std::numeric_limits<std::int32_t>::max()},
                    parameter.name, " has ", parameter.value().extent(0),
                    " entries on a rank, more than places of 32 bits tell apart");
}

template<class T>
std::optional<KeptPlaces> PrunedWeights<T>::kept(std::size_t p) const {
  if (!has(p) || (!are_chosen_ && settings_.num_steps > 0)) return std::nullopt;
  return kept_[p];
}

/// Smallest magnitude that is kept, found digit by digit from the highest one.
template<class T>
std::uint64_t PrunedWeights<T>::find_threshold(DefaultExec const& exec) const {
  std::uint64_t known = 0, prefix = 0;
  std::optional<std::uint64_t> rank; // of the threshold among the magnitudes that equal the prefix
  Vector<std::uint64_t> const counts("orthant::models::PrunedWeights/counts", digit_mask + 1);
  for (auto shift = (num_magnitude_bits<T> - 1) / digit_bits * digit_bits; shift >= 0; shift -= digit_bits) {
    Kokkos::deep_copy(exec, counts, std::uint64_t{0});
    for (auto const& parameter : parameters_)
      if (parameter.is_prunable && counts_here(grid_, parameter))
        Kokkos::parallel_for("orthant::models::PrunedWeights/count_digits",
                             Policy(exec, 0, parameter.matrix.block().num_stored),
                             CountDigits<T>{parameter.value(), counts, known, prefix, shift});
    runtime::compat::fence(exec, "orthant::models::PrunedWeights/the counts are read");
    auto const on_host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), counts);
    std::vector<std::uint64_t> sums(on_host.data(), on_host.data() + on_host.extent(0));
    runtime::add_up(grid_.world(), sums);
    if (!rank) {
      std::int64_t num_entries = 0;
      for (auto const sum : sums)
        num_entries += static_cast<std::int64_t>(sum);
      rank = static_cast<std::uint64_t>(num_entries - settings_.num_kept(num_entries));
    }
    std::uint64_t digit = 0;
    while (digit < digit_mask && *rank >= sums[digit])
      *rank -= sums[digit++];
    known |= digit_mask << shift;
    prefix |= digit << shift;
  }
  return std::max<std::uint64_t>(prefix, 1); // entries that are 0 are not kept
}

template<class T>
void PrunedWeights<T>::choose(DefaultExec const& exec) {
  auto const least = find_threshold(exec);
  std::vector<std::uint64_t> counts{0, 0}; // of kept entries, and of all
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (!has(p)) continue;
    auto const& weights = parameters_[p].value();
    auto const length = parameters_[p].matrix.block().num_stored;
    std::int64_t count = 0;
    Kokkos::parallel_reduce("orthant::models::PrunedWeights/count_kept", Policy(exec, 0, length),
                            CountKept<T>{weights, least}, count);
    kept_[p] = KeptPlaces("orthant::models::kept_places", static_cast<std::size_t>(count));
    Kokkos::parallel_scan("orthant::models::PrunedWeights/list_kept", Policy(exec, 0, length),
                          ListKept<T>{weights, least, kept_[p]});
    Kokkos::parallel_for("orthant::models::PrunedWeights/clear_others", Policy(exec, 0, length),
                         ClearOthers<T>{weights, least});
    if (!counts_here(grid_, parameters_[p])) continue;
    counts[0] += static_cast<std::uint64_t>(count);
    counts[1] += static_cast<std::uint64_t>(length);
  }
  runtime::compat::fence(exec, "orthant::models::PrunedWeights/the weights are pruned");
  are_chosen_ = true;
  runtime::add_up(grid_.world(), counts);
  if (grid_.world().is_root())
    grid_.world().instruments().log.info("pruned: {} of {} entries of the weights of blocks are kept",
                                         counts[0], counts[1]);
}

template<class T>
void PrunedWeights<T>::keep(std::size_t p, std::vector<bool> const& is_kept) {
  std::vector<std::int32_t> places;
  for (std::size_t i = 0; i < is_kept.size(); ++i)
    if (is_kept[i]) places.push_back(static_cast<std::int32_t>(i));
  kept_[p] = to_vector<std::int32_t>("orthant::models::kept_places", places);
  are_chosen_ = true;
}

template class PrunedWeights<float>;
template class PrunedWeights<double>;

} // namespace orthant::models
