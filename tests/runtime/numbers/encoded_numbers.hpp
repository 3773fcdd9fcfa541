#pragma once
// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/formats.hpp"

namespace orthant::testing {

inline std::vector<std::byte> encoded(runtime::Wire wire, std::vector<float> const& values) {
  auto const& encoding = runtime::encoding_of(wire);
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(encoding.encoded_bytes(static_cast<std::int64_t>(values.size()))));
  encoding.encode(values, bytes);
  return bytes;
}

inline std::vector<float> decoded(runtime::Wire wire, std::span<std::byte const> bytes, std::size_t count) {
  std::vector<float> values(count);
  runtime::encoding_of(wire).decode(bytes, values);
  return values;
}

} // namespace orthant::testing
