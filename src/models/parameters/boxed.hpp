#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An optional value in memory of its own. Unlike std::optional it keeps objects small if most of them have no value.

#include <memory>
#include <utility>

namespace orthant::models {

template<class T>
class Boxed {
 public:
  Boxed() = default;
  Boxed(T value) : value_(std::make_unique<T>(std::move(value))) {} // NOLINT: as std::optional
  Boxed(Boxed const& other) : value_(other.value_ ? std::make_unique<T>(*other.value_) : nullptr) {}
  Boxed(Boxed&&) noexcept = default;
  Boxed& operator=(Boxed other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~Boxed() = default;

  [[nodiscard]] explicit operator bool() const { return value_ != nullptr; }
  [[nodiscard]] T& operator*() { return *value_; }
  [[nodiscard]] T const& operator*() const { return *value_; }
  [[nodiscard]] T* operator->() { return value_.get(); }
  [[nodiscard]] T const* operator->() const { return value_.get(); }

 private:
  std::unique_ptr<T> value_;
};

} // namespace orthant::models
