#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The arrays that kernels work on, and how a Kokkos execution space serves as a Stream. Matrices are row-major with one vertex or token per
// row. Global sizes and offsets are int64, local columns are int32 (docs/design.md, section 6).

#include "runtime/arrays/block_kernels.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/range.hpp"

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

namespace orthant::runtime {

using DefaultExec = Kokkos::DefaultExecutionSpace;

template<class T, class Exec = DefaultExec>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, typename Exec::memory_space>;

template<class T, class Exec = DefaultExec>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, typename Exec::memory_space>;

/// Sparse block in CSR. It is pattern-only if `values` is empty: every stored entry then counts as 1.
template<class T, class Exec = DefaultExec>
struct CsrMatrix {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  Vector<Offset, Exec> row_offsets;  // [num_rows + 1]
  Vector<LocalColumn, Exec> columns; // [nnz], ascending within a row
  Vector<T, Exec> values;            // [nnz] or empty

  [[nodiscard]] std::int64_t num_nonzeros() const { return static_cast<std::int64_t>(columns.extent(0)); }
};

namespace detail {
template<class T, class... Properties>
inline constexpr bool is_device_buffer<Kokkos::View<T, Properties...>> =
    !Kokkos::SpaceAccessibility<Kokkos::HostSpace,
                                typename Kokkos::View<T, Properties...>::memory_space>::accessible;

// Kernels that encode and decode, for formats that encode each number alone. They are separate functions because nvcc accepts no kernel
// inside a lambda of a class.
template<class Format, class Exec>
void encode_on(Exec const& exec, GivenNumbers const& numbers, std::byte* bytes, std::int64_t count,
               int* overflows) {
  auto* const encoded = reinterpret_cast<typename Format::Encoded*>(bytes);
  Kokkos::parallel_for(
      "orthant::runtime::encode", Kokkos::RangePolicy<Exec, std::int64_t>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const number = numbers.number(i);
        encoded[i] = Format::encode(number);
        numbers.keep_lost(i, number, Format::decode(encoded[i]));
        if (Format::has_overflowed(number, encoded[i])) *overflows = 1;
      });
}

template<class Format, class Exec>
void decode_on(Exec const& exec, std::byte const* bytes, float* values, std::int64_t count) {
  auto const* const encoded = reinterpret_cast<typename Format::Encoded const*>(bytes);
  Kokkos::parallel_for(
      "orthant::runtime::decode", Kokkos::RangePolicy<Exec, std::int64_t>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) { values[i] = Format::decode(encoded[i]); });
}

template<class Format, class Exec>
void sum_in_order_on(Exec const& exec, std::byte const* part_bytes, std::int64_t num_parts,
                     std::byte* sum_bytes, std::int64_t count, int* overflows, float* residuals) {
  auto const* const parts = reinterpret_cast<typename Format::Encoded const*>(part_bytes);
  auto* const sums = reinterpret_cast<typename Format::Encoded*>(sum_bytes);
  Kokkos::parallel_for(
      "orthant::runtime::sum_in_order", Kokkos::RangePolicy<Exec, std::int64_t>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto sum = 0.0F;
        for (std::int64_t p = 0; p < num_parts; ++p)
          sum += Format::decode(parts[p * count + i]);
        sums[i] = Format::encode(sum);
        if (residuals != nullptr) residuals[i] += sum - Format::decode(sums[i]);
        if (Format::has_overflowed(sum, sums[i])) *overflows = 1;
      });
}

/// Calls work(Fp8()) or work(Int8()).
template<class Work>
void with_block_format(Wire wire, Work&& work) {
  if (wire == Wire::fp8)
    work(Fp8());
  else
    work(Int8());
}

// One call for all wires.
template<class Exec>
void encode_wire_on(Exec const& exec, Wire wire, GivenNumbers const& numbers, std::byte* encoded,
                    std::int64_t count, int* overflows) {
  if (has_blocks(wire))
    return with_block_format(
        wire, [&](auto format) { encode_blocks_on<decltype(format)>(exec, numbers, encoded, count); });
  with_format(wire,
              [&](auto format) { encode_on<decltype(format)>(exec, numbers, encoded, count, overflows); });
}

template<class Exec>
void decode_wire_on(Exec const& exec, Wire wire, std::byte const* encoded, float* values,
                    std::int64_t count) {
  if (has_blocks(wire))
    return with_block_format(
        wire, [&](auto format) { decode_blocks_on<decltype(format)>(exec, encoded, values, count); });
  with_format(wire, [&](auto format) { decode_on<decltype(format)>(exec, encoded, values, count); });
}

template<class Exec>
void sum_wire_in_order_on(Exec const& exec, Wire wire, std::byte const* parts, std::int64_t num_parts,
                          std::byte* sums, std::int64_t count, int* overflows, float* residuals) {
  if (has_blocks(wire))
    return with_block_format(wire, [&](auto format) {
      using Format = decltype(format);
      encode_blocks_on<Format>(
          exec, SummedNumbers<Format>{parts, num_parts, bytes_of_blocks(count), residuals}, sums, count);
    });
  with_format(wire, [&](auto format) {
    sum_in_order_on<decltype(format)>(exec, parts, num_parts, sums, count, overflows, residuals);
  });
}
} // namespace detail

template<class Exec>
requires(Kokkos::is_execution_space<Exec>::value &&
         !Kokkos::SpaceAccessibility<Kokkos::HostSpace,
                                     typename Exec::memory_space>::accessible) struct StreamTraits<Exec> {
  static constexpr bool is_host = false;
  static constexpr Stream::DeviceFunctions functions{
      [](void const* exec, char const* why) { compat::fence(*static_cast<Exec const*>(exec), why); },
      [](void const* exec, void* destination, void const* source, std::size_t num_bytes,
         CopyDirection direction) {
        using Host = Kokkos::View<char*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
        using Device = Kokkos::View<char*, typename Exec::memory_space, Kokkos::MemoryUnmanaged>;
        auto const& space = *static_cast<Exec const*>(exec);
        auto* const to = static_cast<char*>(destination);
        auto* const from = const_cast<char*>(static_cast<char const*>(source)); // never written
        if (direction == CopyDirection::to_host)
          Kokkos::deep_copy(space, Host(to, num_bytes), Device(from, num_bytes));
        else if (direction == CopyDirection::to_device)
          Kokkos::deep_copy(space, Device(to, num_bytes), Host(from, num_bytes));
        else
          Kokkos::deep_copy(space, Device(to, num_bytes), Device(from, num_bytes));
      },
      [](void const* exec) { return compat::native_stream(*static_cast<Exec const*>(exec)); },
      [](void const* exec, Wire wire, float const* values, std::byte* encoded, std::int64_t count,
         int* overflows, float* residuals) {
        detail::encode_wire_on(*static_cast<Exec const*>(exec), wire, {values, residuals}, encoded, count,
                               overflows);
      },
      [](void const* exec, Wire wire, std::byte const* encoded, float* values, std::int64_t count) {
        detail::decode_wire_on(*static_cast<Exec const*>(exec), wire, encoded, values, count);
      },
      [](void const* exec, Wire wire, std::byte const* parts, std::int64_t num_parts, std::byte* sums,
         std::int64_t count, int* overflows, float* residuals) {
        detail::sum_wire_in_order_on(*static_cast<Exec const*>(exec), wire, parts, num_parts, sums, count,
                                     overflows, residuals);
      }};
};

// Scalars in memory that kernels can access. A reduction stores its result there, so that the host need not wait.

template<class T, class Exec = DefaultExec>
using Number = Kokkos::View<T, Kokkos::LayoutRight, typename Exec::memory_space, Kokkos::MemoryUnmanaged>;

/// Element `i` of an array. It shares the array's memory and does not keep it alive.
template<class T>
[[nodiscard]] Number<T> number_at(Vector<T> const& numbers, std::size_t i) {
  return Number<T>(numbers.data() + i);
}

/// The elements in `range` of an array. They share the array's memory and do not keep it alive.
template<class T>
[[nodiscard]] Vector<T> part_of(Vector<T> const& numbers, Range const& range) {
  return Vector<T>(numbers.data() + range.begin, static_cast<std::size_t>(range.size()));
}
/// The `count` elements from element `begin` on. They share the array's memory and do not keep it alive.
template<class T>
[[nodiscard]] Vector<T> part_of(Vector<T> const& numbers, std::int64_t begin, std::int64_t count) {
  return part_of(numbers, Range{begin, begin + count});
}

} // namespace orthant::runtime
