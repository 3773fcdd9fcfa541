#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The queue that an operation is ordered with: the calling thread, or a device stream. Made implicitly from
// any Kokkos execution space (include runtime/arrays/views.hpp), so a caller just passes `exec`.

#include "runtime/numbers/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace orthant::runtime {

/// Specialised in views.hpp for execution spaces whose memory the host cannot reach.
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
    // Encodings on device memory (numbers/encoding.hpp); `overflows` is a flag that the device raises.
    void (*encode)(void const* exec, Wire wire, float const* values, std::byte* encoded, std::int64_t count,
                   int* overflows);
    void (*decode)(void const* exec, Wire wire, std::byte const* encoded, float* values, std::int64_t count);
    void (*sum_in_order)(void const* exec, Wire wire, std::byte const* parts, std::int64_t num_parts,
                         std::byte* sums, std::int64_t count, int* overflows);
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
  /// Waits for all that was enqueued. Nothing on the host.
  void fence(char const* why) const {
    if (!is_host()) functions_->fence(exec_.get(), why);
  }
  /// Enqueues a copy; fence before the host reads. Device streams only.
  void copy(void* destination, void const* source, std::size_t num_bytes, CopyDirection direction) const {
    functions_->copy(exec_.get(), destination, source, num_bytes, direction);
  }
  /// cudaStream_t or hipStream_t.
  [[nodiscard]] void* native() const { return functions_->native(exec_.get()); }
  void encode(Wire wire, float const* values, std::byte* encoded, std::int64_t count, int* overflows) const {
    functions_->encode(exec_.get(), wire, values, encoded, count, overflows);
  }
  void decode(Wire wire, std::byte const* encoded, float* values, std::int64_t count) const {
    functions_->decode(exec_.get(), wire, encoded, values, count);
  }
  void sum_in_order(Wire wire, std::byte const* parts, std::int64_t num_parts, std::byte* sums,
                    std::int64_t count, int* overflows) const {
    functions_->sum_in_order(exec_.get(), wire, parts, num_parts, sums, count, overflows);
  }

 private:
  std::shared_ptr<void const> exec_;
  DeviceFunctions const* functions_ = nullptr;
};

/// The calling thread: for buffers of the host.
inline Stream const host{};

} // namespace orthant::runtime
