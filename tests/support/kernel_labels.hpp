#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The labels of the kernels that are launched, as Kokkos reports them: what no list of the project's own can
// forget.

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <set>
#include <string>

namespace orthant::testing {

/// Those that are launched while it lives. One at a time: Kokkos has one set of callbacks.
class KernelLabels {
 public:
  KernelLabels() {
    labels().clear();
    Kokkos::Tools::Experimental::set_begin_parallel_for_callback(add);
    Kokkos::Tools::Experimental::set_begin_parallel_reduce_callback(add);
    Kokkos::Tools::Experimental::set_begin_parallel_scan_callback(add);
  }
  KernelLabels(KernelLabels const&) = delete;
  KernelLabels& operator=(KernelLabels const&) = delete;
  ~KernelLabels() {
    Kokkos::Tools::Experimental::set_begin_parallel_for_callback(nullptr);
    Kokkos::Tools::Experimental::set_begin_parallel_reduce_callback(nullptr);
    Kokkos::Tools::Experimental::set_begin_parallel_scan_callback(nullptr);
  }

  [[nodiscard]] std::set<std::string> const& all() const { return labels(); }

 private:
  static void add(char const* label, std::uint32_t /*device*/, std::uint64_t* /*kernel*/) {
    labels().insert(label);
  }
  static std::set<std::string>& labels() {
    static std::set<std::string> launched;
    return launched;
  }
};

} // namespace orthant::testing
