#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The arrays of Kokkos that are allocated, by label: to hold beside a list of arrays that was planned.

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace orthant::testing {

/// Bytes of each array of a label, as Kokkos reports them.
using ArraysByLabel = std::map<std::string, std::multiset<std::int64_t>>;

/// One at a time: Kokkos has one set of callbacks. It follows arrays that are allocated while it lives.
class LiveArrays {
 public:
  LiveArrays() {
    using Space = Kokkos::Tools::SpaceHandle;
    live().clear();
    Kokkos::Tools::Experimental::set_allocate_data_callback(
        [](Space, char const* label, void const* data, std::uint64_t size) {
          live()[data] = {label, static_cast<std::int64_t>(size)};
        });
    Kokkos::Tools::Experimental::set_deallocate_data_callback(
        [](Space, char const*, void const* data, std::uint64_t) { live().erase(data); });
    Kokkos::View<char*, runtime::DefaultExec::memory_space> const empty("orthant::testing::empty", 0);
    for (auto const& [data, array] : live())
      empty_bytes_ = array.bytes;
  }
  LiveArrays(LiveArrays const&) = delete;
  LiveArrays& operator=(LiveArrays const&) = delete;
  ~LiveArrays() {
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    Kokkos::Tools::Experimental::set_deallocate_data_callback(nullptr);
  }

  /// Those that are allocated now, without empty ones and Kokkos's own scratch memory.
  [[nodiscard]] ArraysByLabel by_label() const {
    ArraysByLabel result;
    for (auto const& [data, array] : live())
      if (!array.label.starts_with("Kokkos::")) add(result, array.label, array.bytes);
    return result;
  }

  /// Those of a list that are held so long.
  [[nodiscard]] ArraysByLabel planned(pmm::StepPlan const& step,
                                      std::set<pmm::Lifetime> const& lifetimes) const {
    constexpr std::int64_t word = 8; // Kokkos allocates whole words
    ArraysByLabel result;
    for (auto const& array : step.arrays())
      if (lifetimes.contains(array.lifetime) && array.label.starts_with("orthant::")) // others are vectors
        add(result, array.label, (array.bytes + word - 1) / word * word);
    return result;
  }

 private:
  struct Array {
    std::string label;
    std::int64_t bytes = 0;
  };

  static std::map<void const*, Array>& live() {
    static std::map<void const*, Array> arrays;
    return arrays;
  }

  /// An array without elements is reported with the length of its header: one of exactly that length cannot
  /// be told from it, so neither is compared.
  void add(ArraysByLabel& arrays, std::string const& label, std::int64_t bytes) const {
    if (bytes != empty_bytes_) arrays[label].insert(bytes);
  }

  std::int64_t empty_bytes_ = 0;
};

} // namespace orthant::testing
