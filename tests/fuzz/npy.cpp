// SPDX-License-Identifier: Apache-2.0
//
// One .npy array: its header, then all of its elements as integers and as floats.

#include "graph/arrays/npy.hpp"
#include "fuzz/fuzz_target.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using namespace orthant;

class MemoryBytes final : public runtime::ByteSource {
 public:
  explicit MemoryBytes(std::span<std::uint8_t const> bytes) : bytes_(bytes) {}
  std::string const& name() const override { return name_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(bytes_.size()); }
  void read(std::int64_t offset, std::span<std::byte> out) override {
    auto const begin = static_cast<std::size_t>(offset);
    if (begin > bytes_.size() || out.size() > bytes_.size() - begin)
      runtime::throw_user("{}: no bytes at {}", name_, offset);
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + begin, out.size());
    num_read_ += static_cast<std::int64_t>(out.size());
  }
  std::int64_t bytes_read() const override { return num_read_; }

 private:
  std::span<std::uint8_t const> bytes_;
  std::string name_ = "input.npy";
  std::int64_t num_read_ = 0;
};

template<class T>
void read_all(graph::NpyArray& array) {
  std::vector<T> part(1000);
  for (std::int64_t first = 0; first < array.num_elements(); first += 1000) {
    auto const count = std::min<std::int64_t>(1000, array.num_elements() - first);
    array.read(first, std::span(part).first(static_cast<std::size_t>(count)));
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  return fuzz::accept_or_refuse([&] {
    graph::NpyArray array(std::make_unique<MemoryBytes>(std::span(data, size)));
    if (array.is_integer()) read_all<std::int64_t>(array);
    read_all<float>(array);
  });
}
