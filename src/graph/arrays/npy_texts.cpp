// SPDX-License-Identifier: Apache-2.0
//
// Texts of .npy arrays.
#include "graph/arrays/npy.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace orthant::graph {
namespace {

/// Appends a character in UTF-8. Returns false if there is no such character.
bool append_utf8(std::string& text, std::uint32_t c) {
  auto const tail = [&](int shift) { text.push_back(static_cast<char>(0x80 | (c >> shift & 0x3f))); };
  if (c >= 0x110000 || (c >= 0xd800 && c < 0xe000)) return false;
  if (c < 0x80) {
    text.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    text.push_back(static_cast<char>(0xc0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    text.push_back(static_cast<char>(0xe0 | c >> 12));
    tail(6);
    tail(0);
  } else {
    text.push_back(static_cast<char>(0xf0 | c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
  return true;
}

/// True if the text is valid UTF-8: decodes each character, and compares its encoding with the bytes.
bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    auto const first = static_cast<unsigned char>(text[0]);
    std::size_t const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    std::uint32_t c = length == 1 ? first : first & (0x7fU >> length);
    for (auto const byte : text.substr(1, length - 1))
      c = c << 6 | (static_cast<unsigned char>(byte) & 0x3fU);
    std::string again;
    if (!append_utf8(again, c) || !text.starts_with(again)) return false;
    text.remove_prefix(again.size());
  }
  return true;
}

/// Appends the characters of an element of type "<U5", for example. Returns false if one of them is not a Unicode character.
bool append_characters(std::string& text, std::span<std::byte const> element) {
  for (; !element.empty(); element = element.subspan(sizeof(std::uint32_t))) {
    std::uint32_t c = 0;
    std::memcpy(&c, element.data(), sizeof(c));
    if (c == 0) return true;
    if (!append_utf8(text, c)) return false;
  }
  return true;
}

} // namespace

void NpyArray::read(std::int64_t first, std::span<std::string> out) {
  ORTHANT_REQUIRE(is_text());
  constexpr std::size_t most_bytes = std::size_t{1} << 20;
  auto const width = static_cast<std::size_t>(element_bytes_);
  auto const most = most_bytes / width; // an element has at most a quarter of them
  while (!out.empty()) {
    auto const part = out.first(std::min(out.size(), most));
    buffer_.resize(part.size() * width);
    bytes_->read(byte_of(first), std::span(buffer_));
    for (std::size_t i = 0; i < part.size(); ++i, ++first) {
      auto const element = std::span<std::byte const>(buffer_).subspan(i * width, width);
      part[i].clear();
      auto is_valid = true;
      if (type_[1] == 'U') {
        is_valid = append_characters(part[i], element);
      } else {
        auto const end = std::ranges::find(element, std::byte{0});
        part[i].assign(reinterpret_cast<char const*>(element.data()),
                       static_cast<std::size_t>(end - element.begin()));
        is_valid = is_utf8(part[i]);
      }
      if (!is_valid)
        runtime::throw_user("{}: element {} (byte {}) is not valid Unicode", name(), first, byte_of(first));
    }
    out = out.subspan(part.size());
  }
}

} // namespace orthant::graph
