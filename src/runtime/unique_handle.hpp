#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sole owner of one C handle (MPI_Comm, hid_t, ncclComm_t, FILE*, ..). A moved-from handle is empty and frees nothing.

#include <type_traits>
#include <utility>

namespace orthant::runtime {

/// Handle   trivially copyable C handle.
/// Empty    the value that owns nothing (MPI_COMM_NULL, H5I_INVALID_HID, nullptr).
/// Release  a function object type `void operator()(Handle) noexcept`.
template<class Handle, auto Empty, class Release>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) noexcept : handle_(handle) {}
  UniqueHandle(UniqueHandle const&) = delete;
  UniqueHandle& operator=(UniqueHandle const&) = delete;
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, empty())) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, empty());
    }
    return *this;
  }
  ~UniqueHandle() { reset(); }

  [[nodiscard]] Handle get() const noexcept { return handle_; }
  [[nodiscard]] bool owns() const noexcept { return !(handle_ == empty()); }
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, empty()); }
  void reset() noexcept {
    if (owns()) Release{}(std::exchange(handle_, empty()));
  }

 private:
  // A function, because the empty value of some handles (a cast pointer) is not a constant expression.
  static Handle empty() noexcept {
    if constexpr (std::is_invocable_v<decltype(Empty)>)
      return Empty();
    else
      return Empty;
  }
  Handle handle_ = empty();
};

} // namespace orthant::runtime
