// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_writer.hpp"

#include "graph/crc32.hpp"
#include "graph/store/vertex_owners.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <cerrno>
#include <cstring>
#include <unistd.h>
#include <vector>

namespace orthant::graph {

using runtime::Hdf5File;
using runtime::Hdf5Type;
using runtime::throw_user;
using runtime::together;

std::string checksums_of(std::string const& array) {
  return "/checksums" + array;
}

void require_output(runtime::Communicator const& comm, std::filesystem::path const& output, bool replaces) {
  together(comm, [&] {
    if (!comm.is_root()) return;
    std::error_code status;
    if (std::filesystem::is_directory(output, status))
      throw_user("{} is a directory; give a file name", output.string());
    if (!replaces && std::filesystem::exists(output, status))
      throw_user("{} exists; --force replaces it", output.string());
    auto const folder = output.has_parent_path() ? output.parent_path() : std::filesystem::path(".");
    if (::access(folder.c_str(), W_OK) != 0)
      throw_user("cannot write {}: {}", output.string(), std::strerror(errno));
  });
}

StoreWriter::StoreWriter(runtime::Communicator const& comm, std::filesystem::path const& output)
    : comm_(comm),
      file_(comm, output, "store") {}

StoreWriter::StoreWriter(runtime::Communicator const& self) : comm_(self), file_("memory") {
  ORTHANT_REQUIRE(self.size() == 1);
}

void StoreWriter::create_plain_array(std::string const& name, Hdf5Type type,
                                     Hdf5File::Extents const& extents) {
  file_.create_array(name, type, extents);
}

void StoreWriter::create_array(std::string const& name, Hdf5Type type, Hdf5File::Extents const& extents) {
  create_plain_array(name, type, extents);
  auto sums = extents;
  sums.back() = num_checksums(sums.back());
  create_plain_array(checksums_of(name), Hdf5Type::uint32, sums);
}

void StoreWriter::reserve_space() {
  file_.reserve_space();
}

void StoreWriter::write_checksums(std::string const& name, std::int64_t row, bool has_rows,
                                  std::int64_t begin, std::size_t count, std::span<std::byte const> bytes) {
  ORTHANT_REQUIRE(begin % elements_per_checksum == 0, name, " from ", begin);
  auto const chunk_bytes = bytes.size() / count * static_cast<std::size_t>(elements_per_checksum);
  std::vector<std::uint32_t> sums;
  for (std::size_t at = 0; at < bytes.size(); at += chunk_bytes)
    sums.push_back(crc32_of(bytes.subspan(at, std::min(chunk_bytes, bytes.size() - at))));
  auto const first = begin / elements_per_checksum;
  auto const length = static_cast<std::int64_t>(sums.size());
  std::span<std::uint32_t const> const data(sums);
  if (has_rows)
    file_.write(checksums_of(name), {row, first}, {1, length}, data);
  else
    file_.write(checksums_of(name), {first}, {length}, data);
}

void StoreWriter::write_facts(StoreFacts const& facts) {
  auto const text = facts.to_json();
  file_.write_attribute("/", "format", std::string("orthant graph store"));
  file_.write_attribute("/", "version", store_version);
  file_.write_attribute("/", "facts", text);
  file_.write_attribute("/", "facts_crc32",
                        static_cast<std::int64_t>(crc32_of(std::as_bytes(std::span(text)))));
}

std::int64_t StoreWriter::finish(StoreFacts const& facts) {
  write_facts(facts);
  return file_.publish();
}

Hdf5File StoreWriter::finish_in_memory(StoreFacts const& facts) {
  write_facts(facts);
  return file_.take_memory();
}

} // namespace orthant::graph
