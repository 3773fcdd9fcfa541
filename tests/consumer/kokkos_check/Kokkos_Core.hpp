#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// As much of a Kokkos as cmake/OrthantKokkosCheck.cpp needs, sound or broken as a macro says.

#include <cstdlib>

namespace Kokkos {

struct HostSpace {};
struct DeviceSpace {};

struct DefaultExecutionSpace {
#ifdef FOR_DEVICE
  using memory_space = DeviceSpace;
#else
  using memory_space = HostSpace;
#endif
};

template<class To, class Of>
struct SpaceAccessibility {
  static constexpr bool accessible = false;
};
template<class Space>
struct SpaceAccessibility<Space, Space> {
  static constexpr bool accessible = true;
};

inline void initialize() {
#if defined(FOR_DEVICE) || defined(CANNOT_START)
  std::abort();
#endif
}
inline void finalize() {}

template<class T, class Space>
class View {
 public:
  View() = default;
  View(int* data, int extent) : data_(data), extent_(extent) {}
  View(char const*, int extent) : data_(memory()), extent_(extent), is_managed_(true) {}
  View(View const&) = default;
  View& operator=([[maybe_unused]] View const& other) {
#ifdef CRASHES
    std::abort();
#elif defined(CRASHES_IF_MANAGED)
    if (other.is_managed_) std::abort();
#endif
#ifndef FORGETS
    data_ = other.data_;
    extent_ = other.extent_;
#endif
    return *this;
  }
  [[nodiscard]] int* data() const {
    return data_;
  }
  [[nodiscard]] int extent(int) const {
    return extent_;
  }

 private:
  static int* memory() {
    static int numbers[5];
    return numbers;
  }
  int* data_ = nullptr;
  int extent_ = 0;
  bool is_managed_ = false;
};

} // namespace Kokkos
