#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Unicode's normalization form C (Unicode Standard Annex 15), of Unicode 16: "e" and U+0301 become "é".

#include <string>
#include <string_view>

namespace orthant::tokens {

/// The text in normalization form C. Bytes that are not UTF-8 are not changed, and characters on both sides of them are not composed.
[[nodiscard]] std::string to_nfc(std::string_view text);

} // namespace orthant::tokens
