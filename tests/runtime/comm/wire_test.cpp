// SPDX-License-Identifier: Apache-2.0
//
// Collectives over the 16-bit wire (docs/design.md, section 6), on every axis group of every grid: each
// addend rounded once, summed in fp32 in rank order, the result rounded once, the same bits on every rank;
// the error bound; bytes counted.
#include "runtime/comm/collectives.hpp"
#include "support/axis_groups.hpp"
#include "support/grids.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

constexpr std::array both_wires{Wire::bf16, Wire::fp16};

float rounded(Wire wire, float value) {
  return decode(wire, encode(wire, value));
}

/// The unit roundoff, and half of the smallest number: what a rounding near zero adds to u |x|.
double unit_of(Wire wire) {
  return wire == Wire::bf16 ? 0x1p-8 : 0x1p-11;
}
double underflow_of(Wire wire) {
  return wire == Wire::bf16 ? 0x1p-134 : 0x1p-25;
}

/// Numbers of both signs over the whole range that the wire can sum on `num_ranks` ranks: ordinary, large,
/// subnormal, zeros of both signs, and in every eighth place addends that cancel. The same on all ranks.
std::vector<float> values_of(Wire wire, int group, int owner, int num_ranks, std::int64_t count) {
  auto const largest = (wire == Wire::bf16 ? 3e38F : 65'000.0F) / static_cast<float>(num_ranks);
  std::mt19937 generator(static_cast<unsigned>(1 + 1000 * group + owner));
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    auto const uniform = std::ldexp(static_cast<float>(generator() >> 8), -23) - 1.0F; // in [-1, 1)
    switch (i % 8) {
    case 0:
      values.push_back(uniform * largest);
      break;
    case 1:
      values.push_back(uniform * 0x1p-20F); // subnormal in fp16
      break;
    case 2:
      values.push_back(uniform * 0x1p-127F); // subnormal in bf16 and fp32
      break;
    case 3:
      values.push_back(owner % 2 == 0 ? 0.0F : -0.0F);
      break;
    case 4:
      values.push_back((owner % 2 == 0 ? 1.0F : -1.0F) * (1.0F + uniform * 0x1p-6F)); // cancels
      break;
    default:
      values.push_back(std::ldexp(uniform, static_cast<int>(i % 13) - 6));
    }
  }
  return values;
}

/// Entry i of the reduction by its definition, serially.
float sum_by_definition(Wire wire, std::vector<std::vector<float>> const& values, std::size_t i) {
  auto sum = 0.0F;
  for (auto const& addends : values)
    sum += rounded(wire, addends[i]);
  return rounded(wire, sum);
}

/// |result - sum x| <= u (sum |x| + |sum x|) + O(u^2) + the fp32 summation's error, with the last two and
/// underflow written out:  addends and summation make E = (u + g (1 + u)) sum|x| + (1 + g) P eta, where
/// g = (P-1) 2^-24 / (1 - (P-1) 2^-24); the last rounding makes u (|sum x| + E) + eta.
void expect_within_bound(Wire wire, std::vector<std::vector<float>> const& values, std::size_t i,
                         float result) {
  auto exact = 0.0; // 8 addends of 24 bits: the sum's own error in double is below 2^-50 of the bound
  auto absolute = 0.0;
  for (auto const& addends : values) {
    exact += static_cast<double>(addends[i]);
    absolute += std::abs(static_cast<double>(addends[i]));
  }
  auto const u = unit_of(wire);
  auto const eta = underflow_of(wire);
  auto const num_ranks = static_cast<double>(values.size());
  auto const g = (num_ranks - 1) * 0x1p-24 / (1 - (num_ranks - 1) * 0x1p-24);
  auto const before = (u + g * (1 + u)) * absolute + (1 + g) * num_ranks * eta;
  auto const bound = before + u * (std::abs(exact) + before) + eta;
  ASSERT_LE(std::abs(static_cast<double>(result) - exact), bound * (1 + 0x1p-40))
      << "entry " << i << ", sum " << exact << ", of magnitudes " << absolute;
}

/// Bits, so that -0 and +0, and NaNs, are told apart.
std::vector<std::int32_t> bits_of(std::vector<float> const& values) {
  std::vector<std::int32_t> bits;
  for (auto const value : values)
    bits.push_back(std::bit_cast<std::int32_t>(value));
  return bits;
}

class WireCollectives {
 public:
  WireCollectives(Communicator const& comm, int group, Wire wire, bool is_asynchronous, std::int64_t count)
      : comm_(comm),
        wire_(wire),
        is_asynchronous_(is_asynchronous),
        count_(count),
        size_(static_cast<std::size_t>(comm.size())),
        rank_(static_cast<std::size_t>(comm.rank())) {
    for (int r = 0; r < comm.size(); ++r)
      values_.push_back(values_of(wire, group, r, comm.size(), count));
  }

  void all() const {
    SCOPED_TRACE(::testing::Message()
                 << (wire_ == Wire::bf16 ? "bf16 " : "fp16 ") << count_ << " entries on " << comm_.axis()
                 << " of " << size_ << (is_asynchronous_ ? ", asynchronous" : ", blocking"));
    all_reduce();
    reduce_scatter();
    all_gather();
    broadcast();
    all_to_all();
  }

 private:
  using Floats = std::vector<float>;

  [[nodiscard]] Floats const& own() const { return values_[rank_]; }
  void finish(Request request) const { request.wait(); }

  /// A group of one copies and rounds nothing.
  [[nodiscard]] Floats on_wire(Floats values) const {
    if (size_ == 1) return values;
    for (auto& value : values)
      value = rounded(wire_, value);
    return values;
  }
  [[nodiscard]] Floats summed() const {
    if (size_ == 1) return own();
    Floats sums;
    for (std::size_t i = 0; i < own().size(); ++i)
      sums.push_back(sum_by_definition(wire_, values_, i));
    return sums;
  }
  void expect_bytes(Operation operation, LedgerEntry before, std::size_t elements) const {
    auto const& now = comm_.ledger()[operation];
    EXPECT_EQ(now.calls - before.calls, size_ == 1 ? 0 : 1) << name_of(operation);
    EXPECT_EQ(now.bytes - before.bytes, size_ == 1 ? 0 : 2 * static_cast<std::int64_t>(elements))
        << name_of(operation);
  }

  void all_reduce() const {
    auto data = own();
    auto const before = comm_.ledger()[Operation::all_reduce];

    if (is_asynchronous_)
      finish(start_all_reduce(host, comm_, data, Reduction::sum, wire_));
    else
      runtime::all_reduce(host, comm_, data, Reduction::sum, wire_);

    expect_bytes(Operation::all_reduce, before, data.size());
    EXPECT_EQ(bits_of(data), bits_of(summed())) << "all_reduce";
    for (std::size_t i = 0; i < data.size(); ++i)
      ASSERT_NO_FATAL_FAILURE(expect_within_bound(wire_, values_, i, data[i]));
    auto const bits = bits_of(data);
    auto smallest = bits;
    auto largest = bits;
    runtime::all_reduce(host, comm_, smallest, Reduction::min);
    runtime::all_reduce(host, comm_, largest, Reduction::max);
    EXPECT_EQ(smallest, bits) << "other bits on another rank";
    EXPECT_EQ(largest, bits) << "other bits on another rank";
  }

  void reduce_scatter() const {
    std::vector<std::int64_t> counts(size_, 0); // all to the last rank but a few
    for (std::size_t r = 0; r + 1 < size_; ++r)
      counts[r] = std::min<std::int64_t>(static_cast<std::int64_t>(r) % 3, count_ / 8);
    counts.back() = count_ - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    auto const begin =
        std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank_), std::int64_t{0});
    Floats out(static_cast<std::size_t>(counts[rank_]));
    auto const before = comm_.ledger()[Operation::reduce_scatter];

    if (is_asynchronous_)
      finish(start_reduce_scatterv(host, comm_, own(), out, counts, Reduction::sum, wire_));
    else
      runtime::reduce_scatterv(host, comm_, own(), out, counts, Reduction::sum, wire_);

    expect_bytes(Operation::reduce_scatter, before, own().size());
    auto const sums = summed();
    auto const first = sums.begin() + begin;
    EXPECT_EQ(bits_of(out), bits_of(Floats(first, first + counts[rank_]))) << "reduce_scatterv";

    if (count_ % static_cast<std::int64_t>(size_) != 0) return;
    Floats equal(own().size() / size_);
    runtime::reduce_scatter(host, comm_, own(), equal, Reduction::sum, wire_);
    auto const part = sums.begin() + static_cast<std::ptrdiff_t>(rank_ * equal.size());
    EXPECT_EQ(bits_of(equal), bits_of(Floats(part, part + std::ssize(equal)))) << "reduce_scatter";
  }

  void all_gather() const {
    Floats out(own().size() * size_);
    auto const before = comm_.ledger()[Operation::all_gather];

    if (is_asynchronous_)
      finish(start_all_gather(host, comm_, own(), out, wire_));
    else
      runtime::all_gather(host, comm_, own(), out, wire_);

    expect_bytes(Operation::all_gather, before, out.size());
    Floats expected;
    for (auto const& values : values_)
      expected.insert(expected.end(), values.begin(), values.end());
    EXPECT_EQ(bits_of(out), bits_of(on_wire(expected))) << "all_gather";

    // In place and with counts: every rank's part already stands in `out`.
    auto in_place = expected;
    std::vector<std::int64_t> const counts(size_, count_);
    runtime::all_gatherv(host, comm_, std::span(in_place).subspan(rank_ * own().size(), own().size()),
                         in_place, counts, wire_);
    EXPECT_EQ(bits_of(in_place), bits_of(on_wire(expected))) << "all_gather in place";
  }

  void broadcast() const {
    auto const root = comm_.size() - 1;
    auto const negated = [](Floats values) { // other numbers than the calls before left in scratch memory
      for (auto& value : values)
        value = -value;
      return values;
    };
    auto data = negated(own());
    auto const before = comm_.ledger()[Operation::broadcast];

    if (is_asynchronous_)
      finish(start_broadcast(host, comm_, data, root, wire_));
    else
      runtime::broadcast(host, comm_, data, root, wire_);

    expect_bytes(Operation::broadcast, before, data.size());
    EXPECT_EQ(bits_of(data), bits_of(on_wire(negated(values_.back())))) << "broadcast";
  }

  /// Rank s sends its values to all, but of rank d's part the first d entries are left out.
  void all_to_all() const {
    std::vector<std::int64_t> send_counts;
    Floats in;
    auto const left_out = [&](std::size_t r) { return std::min(r, own().size()); };
    for (std::size_t r = 0; r < size_; ++r) {
      in.insert(in.end(), own().begin() + static_cast<std::ptrdiff_t>(left_out(r)), own().end());
      send_counts.push_back(static_cast<std::int64_t>(own().size() - left_out(r)));
    }
    std::vector<std::int64_t> const receive_counts(size_, send_counts[rank_]);
    Floats out(static_cast<std::size_t>(receive_counts[0]) * size_);
    auto const before = comm_.ledger()[Operation::all_to_all];

    if (is_asynchronous_)
      finish(start_all_to_allv(host, comm_, in, send_counts, out, receive_counts, wire_));
    else
      runtime::all_to_allv(host, comm_, in, send_counts, out, receive_counts, wire_);

    expect_bytes(Operation::all_to_all, before, in.size() - static_cast<std::size_t>(send_counts[rank_]));
    Floats expected;
    for (auto const& values : values_)
      expected.insert(expected.end(), values.begin() + static_cast<std::ptrdiff_t>(left_out(rank_)),
                      values.end());
    EXPECT_EQ(bits_of(out), bits_of(on_wire(expected))) << "all_to_allv";
  }

  Communicator const& comm_;
  Wire wire_;
  bool is_asynchronous_;
  std::int64_t count_;
  std::size_t size_;
  std::size_t rank_;
  std::vector<Floats> values_;
};

class WireOnGrids : public ::testing::TestWithParam<std::array<int, 4>> {};

TEST_P(WireOnGrids, EqualsItsDefinitionToTheBit) {
  Communicator const world(MPI_COMM_WORLD, "world");
  world.set_chunk_limit(7);

  for (auto const& [comm, identity] : axis_groups(world, GetParam()))
    for (auto const wire : both_wires)
      for (auto const is_asynchronous : {false, true})
        for (auto const count : {0, 1, 24, 61})
          WireCollectives(comm, identity, wire, is_asynchronous, count).all();
}

INSTANTIATE_TEST_SUITE_P(Grids, WireOnGrids, ::testing::ValuesIn(grids_4d(world_size())), GridName{});

/// A View of nothing has no memory: that is no operation in place.
TEST(Wire, ARankWithoutNumbersTakesPart) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const size = static_cast<std::size_t>(world.size());
  for (auto const wire : both_wires) {
    std::vector<float> part(world.rank() == 0 ? 0 : 3, static_cast<float>(world.rank()));
    std::vector<std::int64_t> counts(size, 3);
    counts[0] = 0;
    std::span<float const> const in = part.empty() ? std::span<float const>() : std::span<float const>(part);
    std::vector<float> whole(3 * (size - 1), -1);
    all_gatherv(host, world, in, whole, counts, wire);
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_EQ(whole[i], static_cast<float>(i / 3 + 1));

    std::vector<float> sum(part.size(), -1);
    std::span<float> const out = sum.empty() ? std::span<float>() : std::span<float>(sum);
    reduce_scatterv(host, world, whole, out, counts, Reduction::sum, wire);
    EXPECT_EQ(sum, std::vector<float>(part.size(), static_cast<float>(world.rank() * world.size())));
  }
}

TEST(Wire, EqualsItsDefinitionOnLongBuffers) {
  Communicator const world(MPI_COMM_WORLD, "world");

  for (auto const limit : {std::int64_t{1000}, std::int64_t{1} << 30}) {
    world.set_chunk_limit(limit);
    for (auto const wire : both_wires)
      WireCollectives(world, 77, wire, limit == 1000, 4800).all();
  }
}

} // namespace
} // namespace orthant::testing
