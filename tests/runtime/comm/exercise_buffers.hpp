#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where the buffers of the collective exercises live: in host memory, or in Views on a stream.

#include "runtime/arrays/views.hpp"
#include "runtime/comm/call.hpp"

#include <Kokkos_Core.hpp>
#include <vector>

namespace orthant::testing {

struct InVector {
  template<class T>
  static std::vector<T> put(std::vector<T> values) {
    return values;
  }
  template<class T>
  static std::vector<T> get(std::vector<T> const& buffer) {
    return buffer;
  }
  static runtime::Stream stream() { return runtime::host; }
};

struct InView {
  template<class T>
  using Unmanaged = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

  template<class T>
  static runtime::Vector<T> put(std::vector<T> values) {
    runtime::Vector<T> view("orthant::testing::buffer", values.size());
    Kokkos::deep_copy(view, Unmanaged<T>(values.data(), values.size()));
    return view;
  }
  template<class T>
  static std::vector<T> get(runtime::Vector<T> const& view) {
    std::vector<T> values(view.extent(0));
    Kokkos::deep_copy(Unmanaged<T>(values.data(), values.size()), view);
    return values;
  }
  static runtime::Stream stream() { return runtime::DefaultExec{}; }
};

} // namespace orthant::testing
