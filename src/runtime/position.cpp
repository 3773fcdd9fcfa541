// SPDX-License-Identifier: Apache-2.0
#include "runtime/position.hpp"

#include <algorithm>

namespace orthant::runtime {
namespace {

template<std::size_t Size>
void assign(std::array<char, Size>& field, std::string_view text) {
  auto const length = std::min(text.size(), Size - 1);
  std::copy_n(text.data(), length, field.data());
  field[length] = '\0';
}

} // namespace

void Position::enter(std::string_view what, std::string_view axis, std::int64_t sequence, std::int64_t bytes,
                     std::source_location where) {
  auto const path = std::string_view(where.file_name());
  auto const slash = path.find_last_of('/');
  std::lock_guard const lock(mutex_);
  now_.is_waiting = true;
  now_.sequence = sequence;
  now_.bytes = bytes;
  now_.line = where.line();
  assign(now_.what, what);
  assign(now_.axis, axis);
  assign(now_.file, slash == std::string_view::npos ? path : path.substr(slash + 1));
  since_ = Clock::now();
}

void Position::leave() {
  std::lock_guard const lock(mutex_);
  now_.is_waiting = false;
  since_ = Clock::now();
}

Whereabouts Position::read() const {
  std::lock_guard const lock(mutex_);
  auto copy = now_;
  copy.seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  return copy;
}

} // namespace orthant::runtime
