// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/text_file.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <fstream>
#include <iterator>

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

std::string read_table_file(Communicator const& comm, std::filesystem::path const& path,
                            std::function<void(std::string_view)> const& check) {
  std::string text;
  together(comm, [&] {
    if (!comm.is_root()) return;
    if (!std::filesystem::is_regular_file(path))
      throw_user("cannot read the table '{}': there is no such file", path.string());
    std::ifstream file(path, std::ios::binary);
    if (!file.is_open()) throw_user("cannot read the table '{}': it cannot be opened", path.string());
    text.assign(std::istreambuf_iterator<char>(file), {});
    text.erase(0, text.size() - without_byte_order_mark(text, path.string()).size());
    check(text);
  });
  broadcast_text(comm, text, 0);
  return text;
}

} // namespace orthant::runtime
