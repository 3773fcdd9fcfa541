#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A device that is none: its memory is the host's and its queue is done at once, so that what happens to device
// buffers can be tested anywhere. It counts what is asked of it.

#include "runtime/comm/collectives.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstring>
#include <vector>

namespace orthant::testing {

struct FakeDevice {
  struct Counts {
    int fences = 0;
    int copies = 0;
    int encodings = 0;
    int sums = 0;
  };
  Counts* counts;
  void fence() const {}
};

/// A buffer in the memory of the fake device.
template<class T>
struct FakeDeviceVector {
  std::vector<T> values;
  T* data() { return values.data(); }
  T const* data() const { return values.data(); }
  [[nodiscard]] std::size_t size() const { return values.size(); }
};

} // namespace orthant::testing

namespace orthant::runtime {

template<>
struct StreamTraits<testing::FakeDevice> {
  static constexpr bool is_host = false;
  static testing::FakeDevice::Counts& counts(void const* exec) {
    return *static_cast<testing::FakeDevice const*>(exec)->counts;
  }
  static std::span<float const> floats(float const* values, std::int64_t count) {
    return {values, static_cast<std::size_t>(count)};
  }
  static std::size_t bytes(Wire wire, std::int64_t count) {
    return static_cast<std::size_t>(encoding_of(wire).encoded_bytes(count));
  }
  static constexpr Stream::DeviceFunctions functions{
      [](void const* exec, char const*) { ++counts(exec).fences; },
      [](void const* exec, void* destination, void const* source, std::size_t num_bytes, CopyDirection) {
        ++counts(exec).copies;
        if (num_bytes > 0) std::memcpy(destination, source, num_bytes);
      },
      [](void const*) -> void* { return nullptr; },
      [](void const* exec, Wire wire, float const* values, std::byte* encoded, std::int64_t count,
         int* overflows, float* residuals) {
        ++counts(exec).encodings;
        try {
          if (residuals != nullptr)
            encoding_of(wire).encode_with_feedback(floats(values, count),
                                                   {residuals, static_cast<std::size_t>(count)},
                                                   {encoded, bytes(wire, count)});
          else
            encoding_of(wire).encode(floats(values, count), {encoded, bytes(wire, count)});
        } catch (Error const&) {
          *overflows = 1;
        }
      },
      [](void const*, Wire wire, std::byte const* encoded, float* values, std::int64_t count) {
        encoding_of(wire).decode({encoded, bytes(wire, count)}, {values, static_cast<std::size_t>(count)});
      },
      [](void const* exec, Wire wire, std::byte const* parts, std::int64_t num_parts, std::byte* sums,
         std::int64_t count, int* overflows, float* residuals) {
        ++counts(exec).sums;
        try {
          encoding_of(wire).sum_in_order({parts, static_cast<std::size_t>(num_parts) * bytes(wire, count)},
                                         num_parts, {sums, bytes(wire, count)}, count,
                                         {residuals, static_cast<std::size_t>(residuals ? count : 0)});
        } catch (Error const&) {
          *overflows = 1;
        }
      }};
};

namespace detail {
template<class T>
inline constexpr bool is_device_buffer<testing::FakeDeviceVector<T>> = true;
} // namespace detail

} // namespace orthant::runtime
