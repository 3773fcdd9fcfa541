#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One operation of a group with its types erased: what collectives.hpp makes of a caller's buffers, and what
// backends carry out.

#include "runtime/comm/stream.hpp"
#include "runtime/numbers/wire.hpp"
#include "runtime/observe/ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>

namespace orthant::runtime {

enum class Reduction : std::uint8_t { sum, max, min };

/// A value and where it stands, for the arg-max reduction. Equal values: the smallest index wins.
template<class T>
struct ValueIndex {
  T value;
  std::int64_t index;
  friend bool operator==(ValueIndex const&, ValueIndex const&) = default;
};

namespace detail {

/// Tags above are the backends' own; MPI promises 32,767.
inline constexpr int max_user_tag = 32'000;

/// `byte`: encoded or 16-bit numbers, which a backend moves and never reduces.
enum class DataType : std::uint8_t { float32, float64, int32, int64, float32_index, float64_index, byte };

struct Call {
  Operation operation{};
  DataType type{};
  Reduction reduction = Reduction::sum;
  Wire wire = Wire::native;
  bool on_device = false;
  int peer = -1; // root, destination or source
  int tag = 0;
  void const* send = nullptr; // null: in place, or nothing to send
  void* receive = nullptr;
  std::int64_t send_count = 0; // elements, whole buffer
  std::int64_t receive_count = 0;
  std::span<std::int64_t const> send_counts; // per rank; empty: equal parts
  std::span<std::int64_t const> receive_counts;
  Stream stream;
  std::source_location where;
};

[[nodiscard]] constexpr std::size_t size_of(DataType type) {
  switch (type) {
  case DataType::byte:
    return 1;
  case DataType::float32:
  case DataType::int32:
    return 4;
  case DataType::float64:
  case DataType::int64:
    return 8;
  case DataType::float32_index:
    return sizeof(ValueIndex<float>);
  case DataType::float64_index:
    return sizeof(ValueIndex<double>);
  }
  return 0;
}

[[nodiscard]] inline bool reduces(Call const& call) {
  return call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter;
}
[[nodiscard]] inline bool is_arg_max(Call const& call) {
  return call.type == DataType::float32_index || call.type == DataType::float64_index;
}

} // namespace detail
} // namespace orthant::runtime
