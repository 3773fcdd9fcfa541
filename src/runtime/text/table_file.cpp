// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/table_file.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/text/byte_order_mark.hpp"

#include <fstream>
#include <iterator>

namespace orthant::runtime {

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
