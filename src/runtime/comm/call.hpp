#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One operation of a group with its types erased. collectives.hpp creates it from the caller's buffers, and backends carry it out.

#include "runtime/numbers/formats.hpp"
#include "runtime/observe/ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>

namespace orthant::runtime {

// The queue that orders an operation: the calling thread, or a device stream. Any Kokkos execution space converts to a Stream implicitly
// (include runtime/arrays/views.hpp), so that callers just pass `exec`.

/// Specialized in views.hpp for execution spaces whose memory the host cannot access.
template<class Exec>
struct StreamTraits {
  static constexpr bool is_host = true;
};

enum class CopyDirection { to_host, to_device, within_device };

class Stream {
 public:
  struct DeviceFunctions {
    void (*fence)(void const* exec, char const* why);
    void (*copy)(void const* exec, void* destination, void const* source, std::size_t num_bytes,
                 CopyDirection direction);
    void* (*native)(void const* exec);
    // Encodings in device memory (numbers/formats.hpp). The device sets `overflows` to 1 if a number does not fit. `residuals`: null, or
    // the residuals of error feedback, one per number.
    void (*encode)(void const* exec, Wire wire, float const* values, std::byte* encoded, std::int64_t count,
                   int* overflows, float* residuals);
    void (*decode)(void const* exec, Wire wire, std::byte const* encoded, float* values, std::int64_t count);
    void (*sum_in_order)(void const* exec, Wire wire, std::byte const* parts, std::int64_t num_parts,
                         std::byte* sums, std::int64_t count, int* overflows, float* residuals);
  };

  Stream() = default;
  template<class Exec>
  requires requires(Exec const& exec) { exec.fence(); }
  Stream(Exec const& exec) { // NOLINT: implicit on purpose
    if constexpr (!StreamTraits<Exec>::is_host) {
      exec_ = std::make_shared<Exec>(exec);
      functions_ = &StreamTraits<Exec>::functions;
    }
  }

  [[nodiscard]] bool is_host() const { return functions_ == nullptr; }
  /// Waits for all work enqueued so far. Does nothing on the host.
  void fence(char const* why) const {
    if (!is_host()) functions_->fence(exec_.get(), why);
  }
  /// Enqueues a copy; call fence() before the host reads the destination. Device streams only.
  void copy(void* destination, void const* source, std::size_t num_bytes, CopyDirection direction) const {
    functions_->copy(exec_.get(), destination, source, num_bytes, direction);
  }
  /// cudaStream_t or hipStream_t.
  [[nodiscard]] void* native() const { return functions_->native(exec_.get()); }
  void encode(Wire wire, float const* values, std::byte* encoded, std::int64_t count, int* overflows,
              float* residuals) const {
    functions_->encode(exec_.get(), wire, values, encoded, count, overflows, residuals);
  }
  void decode(Wire wire, std::byte const* encoded, float* values, std::int64_t count) const {
    functions_->decode(exec_.get(), wire, encoded, values, count);
  }
  void sum_in_order(Wire wire, std::byte const* parts, std::int64_t num_parts, std::byte* sums,
                    std::int64_t count, int* overflows, float* residuals) const {
    functions_->sum_in_order(exec_.get(), wire, parts, num_parts, sums, count, overflows, residuals);
  }

 private:
  std::shared_ptr<void const> exec_;
  DeviceFunctions const* functions_ = nullptr;
};

/// The calling thread, for host buffers.
inline Stream const host{};

enum class Reduction : std::uint8_t { sum, max, min };

/// A value and its position, for the arg-max reduction. Of equal values, the one with the smallest index wins.
template<class T>
struct ValueIndex {
  T value;
  std::int64_t index;
  friend bool operator==(ValueIndex const&, ValueIndex const&) = default;
};

namespace detail {

/// Tags above this one are reserved for backends; MPI guarantees tags up to 32,767.
inline constexpr int max_user_tag = 32'000;

/// `byte` is for encoded or 16-bit numbers, which a backend moves and never reduces.
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
  std::int64_t send_count = 0; // elements of the whole buffer
  std::int64_t receive_count = 0;
  std::span<std::int64_t const> send_counts; // per rank; empty: equal parts
  std::span<std::int64_t const> receive_counts;
  float* residuals =
      nullptr; // of an all_reduce on a wire with error feedback: one per element, in the memory of the buffers
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
