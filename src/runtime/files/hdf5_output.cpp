// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/hdf5_output.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <bit>
#include <functional>
#include <new>
#include <numeric>
#include <utility>

namespace orthant::runtime {

static_assert(std::endian::native == std::endian::little, "files are little-endian and written as memory is");

namespace {

std::int64_t product_from(Hdf5Output::Extents const& extents, std::size_t first) {
  return std::accumulate(extents.begin() + static_cast<std::ptrdiff_t>(first), extents.end(), std::int64_t{1},
                         std::multiplies<>());
}

/// Calls visit(offset, length), both in elements, for the runs of a row-major array that make up a box, in
/// the order of the box's own elements. The box is not empty.
template<class Visit>
void for_each_run(Hdf5Output::Extents const& extents, Hdf5Output::Extents const& begin,
                  Hdf5Output::Extents const& counts, Visit&& visit) {
  // Dimensions behind `last` are whole, so that a run covers them and a range of `last`.
  auto last = extents.size() - 1;
  while (last > 0 && counts[last] == extents[last])
    --last;
  auto const stride = product_from(extents, last + 1);
  auto const num_runs = product_from(counts, 0) / product_from(counts, last);
  for (std::int64_t run = 0; run < num_runs; ++run) {
    std::int64_t offset = begin[last] * stride;
    auto scale = stride * extents[last];
    for (auto dim = last, index = static_cast<std::size_t>(run); dim-- > 0;) {
      auto const count = static_cast<std::size_t>(counts[dim]);
      offset += (begin[dim] + static_cast<std::int64_t>(index % count)) * scale;
      index /= count;
      scale *= extents[dim];
    }
    visit(offset, counts[last] * stride);
  }
}

} // namespace

Hdf5Output::Hdf5Output(Communicator const& comm, std::filesystem::path const& path, std::string purpose)
    : comm_(&comm),
      staged_(StagedFile::create(comm, path, std::move(purpose))),
      structure_(Hdf5File::lay_out(path.string(), recording_)) {}

Hdf5Output::Hdf5Output(std::string name) : structure_(Hdf5File::create_in_memory(std::move(name))) {}

Hdf5Output::Place const& Hdf5Output::place_of(std::string const& name) const {
  auto const found = places_.find(name);
  ORTHANT_REQUIRE(found != places_.end(), "no array ", name);
  return found->second;
}

void Hdf5Output::create_array(std::string const& name, Hdf5Type type, Extents const& extents) {
  structure_.create_array(name, type, extents);
  places_[name] = {type, extents, structure_.offset_bytes(name)};
}

void Hdf5Output::reserve_space() {
  if (!staged_.is_open()) return;
  auto const end = structure_.end_of_arrays();
  ORTHANT_REQUIRE(all_reduced(*comm_, end, Reduction::max) == end, "ranks lay the file out differently");
  constexpr std::int64_t for_structure = 1 << 16;
  together(*comm_, [&] {
    if (!comm_->is_root()) return;
    staged_.file().reserve(end + for_structure);
    // A network file system's client fills what it takes for the end of a file with zeros, over its
    // neighbours' data.
    staged_.file().set_size(end);
  });
}

void Hdf5Output::write_box(std::string const& name, Extents const& begin, Extents const& counts,
                           Hdf5Type type, std::span<std::byte const> data) {
  auto const& place = place_of(name);
  auto const element_bytes = static_cast<std::int64_t>(size_of(type));
  ORTHANT_REQUIRE(type == place.type && counts.size() == place.extents.size(), "array ", name,
                  " has another type or shape");
  for (std::size_t dim = 0; dim < counts.size(); ++dim)
    ORTHANT_REQUIRE(begin[dim] >= 0 && begin[dim] + counts[dim] <= place.extents[dim], name, ": box of ",
                    counts[dim], " elements from ", begin[dim], " of ", place.extents[dim]);
  ORTHANT_REQUIRE(product_from(counts, 0) * element_bytes == static_cast<std::int64_t>(data.size()), name,
                  ": data of ", data.size(), " bytes");
  if (data.empty()) return;
  for_each_run(place.extents, begin, counts, [&](std::int64_t offset, std::int64_t length) {
    auto const num_bytes = static_cast<std::size_t>(length * element_bytes);
    staged_.file().write_at(place.offset_bytes + offset * element_bytes, data.first(num_bytes));
    data = data.subspan(num_bytes);
  });
}

void Hdf5Output::close_structure() {
  structure_.close(); // from now on everything is recorded
  if (recording_.is_out_of_memory) throw std::bad_alloc();
}

void Hdf5Output::write_structure() {
  for (auto const& [offset, bytes] : recording_.writes)
    staged_.file().write_at(offset, bytes);
  staged_.file().set_size(recording_.size);
}

std::int64_t Hdf5Output::publish() {
  together(*comm_, [&] {
    close_structure();
    if (comm_->is_root()) write_structure();
  });
  staged_.publish(*comm_);
  return recording_.size;
}

std::int64_t Hdf5Output::commit() {
  write_structure();
  staged_.publish();
  return recording_.size;
}

} // namespace orthant::runtime
