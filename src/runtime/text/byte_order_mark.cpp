// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/byte_order_mark.hpp"

#include "runtime/error.hpp"

namespace orthant::runtime {

using namespace std::string_view_literals;

std::size_t byte_order_mark_bytes(std::string_view text) {
  constexpr auto mark = "\xef\xbb\xbf"sv;
  return text.starts_with(mark) ? mark.size() : 0;
}

void refuse_wide_text(std::string_view text, std::string const& name) {
  auto const* const encoding = text.starts_with("\0\0\xfe\xff"sv) || text.starts_with("\xff\xfe\0\0"sv)
                                   ? "UTF-32"
                               : text.starts_with("\xfe\xff"sv) || text.starts_with("\xff\xfe"sv) ? "UTF-16"
                                                                                                  : nullptr;
  if (encoding != nullptr)
    throw_user("{} is a text in {}, as its byte order mark says, and UTF-8 is wanted: `iconv -f {} -t UTF-8` "
               "converts it",
               name, encoding, encoding);
}

std::string_view without_byte_order_mark(std::string_view text, std::string const& name) {
  refuse_wide_text(text, name);
  return text.substr(byte_order_mark_bytes(text));
}

} // namespace orthant::runtime
