// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_arrays.hpp"

#include "graph/crc32.hpp"
#include "graph/store/distribution.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <unistd.h>

namespace orthant::graph {

using runtime::Hdf5Type;
using runtime::index;
using runtime::throw_user;

namespace {

/// Compares checksums of the chunks that are completely in `data`, whose first element is element `begin` of `length`.
template<class T>
void check_chunks(StoreFile const& file, std::string const& name, std::int64_t row, std::int64_t begin,
                  std::int64_t length, std::span<T const> data) {
  auto const end = begin + static_cast<std::int64_t>(data.size());
  auto const first = (begin + elements_per_checksum - 1) / elements_per_checksum;
  auto const last = end == length ? num_checksums(length) : end / elements_per_checksum;
  if (first >= last) return;
  auto const sums = file.read<std::uint32_t>(checksums_of(name), row, {first, last});
  for (auto chunk = first; chunk < last; ++chunk) {
    auto const from = chunk * elements_per_checksum - begin;
    auto const count = std::min(elements_per_checksum, length - chunk * elements_per_checksum);
    if (crc32_of(std::as_bytes(data.subspan(index(from), index(count)))) != sums[index(chunk - first)])
      report_wrong_checksum(file, name, fmt::format("elements from {}", chunk * elements_per_checksum));
  }
}

template<class T>
void check_part(StoreFile const& file, std::string const& name, int part, int num_parts) {
  auto const& extents = file.array(name).extents;
  auto const num_rows = extents.size() == 2 ? extents[0] : 1;
  auto const length = extents.back();
  auto const chunks = runtime::balanced_range(num_checksums(length), num_parts, part);
  constexpr std::int64_t chunks_at_once = 1024;
  for (std::int64_t row = 0; row < num_rows; ++row)
    for (auto chunk = chunks.begin; chunk < chunks.end; chunk += chunks_at_once) {
      auto const end = std::min(chunks.end, chunk + chunks_at_once);
      Range const piece{chunk * elements_per_checksum, std::min(length, end * elements_per_checksum)};
      auto const data = file.read<T>(name, row, piece);
      check_chunks(file, name, row, piece.begin, length, std::span<T const>(data));
      if constexpr (std::is_floating_point_v<T>)
        if (!name.starts_with("/labels/")) // in labels nan is valid: no target
          require_finite(file, name, std::span<T const>(data), piece.begin);
    }
}

} // namespace

void report_wrong_checksum(StoreFile const& file, std::string const& name, std::string const& place) {
  throw_user("{} is damaged: wrong checksum in {} ({}); partition the graph again", file.name(), name, place);
}

template<class T>
void require_between(StoreFile const& file, std::string const& name, std::span<T const> values,
                     std::int64_t first, T low, T high) {
  auto const bad = std::ranges::find_if(values, [=](T value) { return value < low || value > high; });
  if (bad != values.end())
    throw_user("{} is damaged: element {} of {} is {}; it must be between {} and {}", file.name(),
               first + (bad - values.begin()), name, std::int64_t{*bad}, std::int64_t{low},
               std::int64_t{high});
}

template<class T>
void require_finite(StoreFile const& file, std::string const& name, std::span<T const> values,
                    std::int64_t first) {
  auto const bad = std::ranges::find_if(values, [](T value) { return !std::isfinite(value); });
  if (bad != values.end())
    throw_user("{} is damaged: element {} of {} is {}, which is not a finite number", file.name(),
               first + (bad - values.begin()), name, *bad);
}

template<class T>
std::vector<T> read_checked(StoreFile const& file, std::string const& name, std::int64_t row, Range wanted) {
  if (file.holds(name)) return file.read<T>(name, row, wanted);
  auto const length = file.array(name).extents.back();
  // For such a range, whole chunks add at most 2 % to the bytes that are read.
  constexpr std::int64_t long_range = 100 * elements_per_checksum;
  auto range = wanted;
  if (wanted.size() >= long_range && wanted.end <= length) {
    range.begin -= range.begin % elements_per_checksum;
    range.end = std::min(length, num_checksums(range.end) * elements_per_checksum);
  }
  auto data = file.read<T>(name, row, range);
  check_chunks(file, name, row, range.begin, length, std::span<T const>(data));
  data.resize(index(wanted.end - range.begin));
  data.erase(data.begin(), data.begin() + (wanted.begin - range.begin));
  return data;
}

std::vector<std::int64_t> read_integers(StoreFile const& file, std::string const& name, Range wanted,
                                        std::int64_t low, std::int64_t high, std::int64_t row) {
  auto values = [&]() -> std::vector<std::int64_t> {
    if (file.array(name).type == Hdf5Type::int64) return read_checked<std::int64_t>(file, name, row, wanted);
    auto const narrow = read_checked<std::int32_t>(file, name, row, wanted);
    return {narrow.begin(), narrow.end()};
  }();
  require_between(file, name, std::span<std::int64_t const>(values), wanted.begin, low, high);
  return values;
}

std::vector<std::string> read_names(StoreFile const& file, std::string const& group, Range wanted) {
  auto const num_names = file.array(group + "/offsets").extents.back() - 1;
  auto const num_bytes = file.array(group + "/text").extents.back();
  auto const offsets = read_integers(file, group + "/offsets", {wanted.begin, wanted.end + 1}, 0, num_bytes);
  bool const fits = std::ranges::adjacent_find(offsets, std::greater_equal<>()) == offsets.end() &&
                    (wanted.begin > 0 || offsets.front() == 0) &&
                    (wanted.end < num_names || offsets.back() == num_bytes);
  if (!fits)
    throw_user("{} is damaged: {}/offsets does not cut the {} bytes of the text into names", file.name(),
               group, num_bytes);
  auto const text = read_checked<std::uint8_t>(file, group + "/text", 0, {offsets.front(), offsets.back()});
  std::vector<std::string> names(index(wanted.size()));
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto const begin = text.begin() + (offsets[i] - offsets.front());
    names[i].assign(begin, begin + (offsets[i + 1] - offsets[i]));
    std::ranges::replace_if(
        names[i], [](unsigned char c) { return c < ' ' || c == 127; }, '?'); // text on one line
  }
  return names;
}

void check_array_part(StoreFile const& file, std::string const& name, int part, int num_parts) {
  switch (file.array(name).type) {
  case Hdf5Type::int8:
    return check_part<std::int8_t>(file, name, part, num_parts);
  case Hdf5Type::uint8:
    return check_part<std::uint8_t>(file, name, part, num_parts);
  case Hdf5Type::uint16:
    return check_part<std::uint16_t>(file, name, part, num_parts);
  case Hdf5Type::int32:
    return check_part<std::int32_t>(file, name, part, num_parts);
  case Hdf5Type::uint32:
    return check_part<std::uint32_t>(file, name, part, num_parts);
  case Hdf5Type::int64:
    return check_part<std::int64_t>(file, name, part, num_parts);
  case Hdf5Type::float32:
    return check_part<float>(file, name, part, num_parts);
  case Hdf5Type::float64:
    return check_part<double>(file, name, part, num_parts);
  }
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::vector<T> read_checked(StoreFile const&, std::string const&, std::int64_t, Range);
ORTHANT_INSTANTIATE(std::int8_t)
ORTHANT_INSTANTIATE(std::uint8_t)
ORTHANT_INSTANTIATE(std::int32_t)
ORTHANT_INSTANTIATE(std::uint32_t)
ORTHANT_INSTANTIATE(std::int64_t)
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE
#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void require_between(StoreFile const&, std::string const&, std::span<T const>, std::int64_t, T, T);
ORTHANT_INSTANTIATE(std::int8_t)
ORTHANT_INSTANTIATE(std::uint8_t)
ORTHANT_INSTANTIATE(std::uint16_t)
ORTHANT_INSTANTIATE(std::int32_t)
ORTHANT_INSTANTIATE(std::int64_t)
#undef ORTHANT_INSTANTIATE
template void require_finite(StoreFile const&, std::string const&, std::span<float const>, std::int64_t);
template void require_finite(StoreFile const&, std::string const&, std::span<double const>, std::int64_t);

using runtime::Hdf5File;
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
  file_.write_attribute("/", "version", facts.version());
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
