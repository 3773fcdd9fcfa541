// SPDX-License-Identifier: Apache-2.0
//
// Collectives over the wires of blocks, on every axis group of every grid: equal to their definition to the bit, on all ranks; bytes as
// computed; what error feedback keeps.
#include "runtime/comm/collectives.hpp"
#include "runtime/numbers/counts.hpp"
#include "runtime/range.hpp"
#include "support/axis_groups.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace orthant::testing::block_wire {
namespace {

using namespace orthant::runtime;
using Floats = std::vector<float>;

constexpr std::array block_wires{Wire::fp8, Wire::int8};

/// A message is 4 bytes of scale and 1 byte a number per 128 numbers; the last block is filled up to 4.
std::int64_t bytes_of(std::int64_t count) {
  auto const rest = count % 128;
  return count / 128 * 132 + (rest == 0 ? 0 : 4 + (rest + 3) / 4 * 4);
}

Floats values_of(int group, int owner, std::int64_t count, unsigned step = 0) {
  std::mt19937 generator(1U + 1000U * static_cast<unsigned>(group) + static_cast<unsigned>(owner) +
                         77U * step);
  Floats values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(std::ldexp(std::ldexp(static_cast<float>(generator() >> 8), -23) - 1.0F,
                                static_cast<int>(generator() % 9) - 8));
  return values;
}

Floats on_wire(Wire wire, std::span<float const> values) {
  auto const& encoding = encoding_of(wire);
  std::vector<std::byte> bytes(index(encoding.encoded_bytes(std::ssize(values))));
  encoding.encode(values, bytes);
  Floats result(values.size());
  encoding.decode(bytes, result);
  return result;
}

Floats part_of(Floats const& values, std::int64_t begin, std::int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

/// The sum of the ranks' numbers [begin, begin + count), every one encoded before, and the sum encoded after.
Floats sum_by_definition(Wire wire, std::vector<Floats> const& values, std::int64_t begin,
                         std::int64_t count) {
  Floats sums(index(count), 0.0F);
  for (auto const& addends : values) {
    auto const rounded = on_wire(wire, part_of(addends, begin, count));
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += rounded[i];
  }
  return on_wire(wire, sums);
}

void expect_same_on_all_ranks(Communicator const& comm, Floats const& values) {
  std::vector<std::int32_t> bits;
  for (auto const value : values)
    bits.push_back(std::bit_cast<std::int32_t>(value));
  auto smallest = bits, largest = bits;
  runtime::all_reduce(host, comm, smallest, Reduction::min);
  runtime::all_reduce(host, comm, largest, Reduction::max);
  EXPECT_EQ(smallest, largest);
}

class BlockWires {
 public:
  BlockWires(Communicator const& comm, int group, Wire wire, bool is_asynchronous, std::int64_t count)
      : comm_(comm),
        wire_(wire),
        is_asynchronous_(is_asynchronous),
        count_(count) {
    for (int r = 0; r < comm.size(); ++r) {
      values_.push_back(values_of(group, r, count));
      counts_.push_back(r % 3 == 1 ? 0 : balanced_range(count, comm.size(), r).size());
    }
    counts_.back() += count - sum_of(counts_);
    begins_ = begins_of(counts_);
  }

  void all() const {
    SCOPED_TRACE(::testing::Message() << (wire_ == Wire::fp8 ? "fp8 " : "int8 ") << count_ << " numbers on "
                                      << comm_.axis() << " of " << comm_.size());
    all_reduce();
    reduce_scatter();
    all_gather();
    all_to_all();
  }

 private:
  [[nodiscard]] std::size_t rank() const { return index(comm_.rank()); }
  [[nodiscard]] bool is_alone() const { return comm_.size() == 1; }
  void expect_bytes(Operation operation, std::int64_t before, std::int64_t bytes) const {
    EXPECT_EQ(comm_.ledger()[operation].bytes - before, is_alone() ? 0 : bytes) << name_of(operation);
  }
  [[nodiscard]] std::int64_t bytes_of_parts() const {
    std::int64_t sum = 0;
    for (auto const count : counts_)
      sum += bytes_of(count);
    return sum;
  }

  void all_reduce() const {
    auto data = values_[rank()];
    auto const before = comm_.ledger()[Operation::all_reduce].bytes;
    if (is_asynchronous_)
      start_all_reduce(host, comm_, data, Reduction::sum, wire_).wait();
    else
      runtime::all_reduce(host, comm_, data, Reduction::sum, wire_);
    expect_bytes(Operation::all_reduce, before, bytes_of(count_)); // cut between blocks
    Floats expected;
    auto const num_blocks = (count_ + 127) / 128;
    for (int r = 0; r < comm_.size(); ++r) {
      auto const blocks = balanced_range(num_blocks, comm_.size(), r);
      auto const begin = std::min(count_, 128 * blocks.begin);
      auto const part = sum_by_definition(wire_, values_, begin, std::min(count_, 128 * blocks.end) - begin);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(data, is_alone() ? values_[0] : expected);
    expect_same_on_all_ranks(comm_, data);
  }

  void reduce_scatter() const {
    Floats out(index(counts_[rank()]));
    auto const before = comm_.ledger()[Operation::reduce_scatter].bytes;
    if (is_asynchronous_)
      start_reduce_scatterv(host, comm_, values_[rank()], out, counts_, Reduction::sum, wire_).wait();
    else
      reduce_scatterv(host, comm_, values_[rank()], out, counts_, Reduction::sum, wire_);
    expect_bytes(Operation::reduce_scatter, before, bytes_of_parts());
    EXPECT_EQ(out,
              is_alone() ? values_[0] : sum_by_definition(wire_, values_, begins_[rank()], counts_[rank()]));
  }

  void all_gather() const {
    Floats out(index(count_));
    auto const own = part_of(values_[rank()], begins_[rank()], counts_[rank()]);
    auto const before = comm_.ledger()[Operation::all_gather].bytes;
    if (is_asynchronous_)
      start_all_gatherv(host, comm_, own, out, counts_, wire_).wait();
    else
      all_gatherv(host, comm_, own, out, counts_, wire_);
    expect_bytes(Operation::all_gather, before, bytes_of_parts());
    Floats expected;
    for (std::size_t r = 0; r < values_.size(); ++r) {
      auto const part = on_wire(wire_, part_of(values_[r], begins_[r], counts_[r]));
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(out, is_alone() ? own : expected);
    expect_same_on_all_ranks(comm_, out);

    Floats equal(index(count_) * values_.size());
    auto const before_equal = comm_.ledger()[Operation::all_gather].bytes;
    runtime::all_gather(host, comm_, values_[rank()], equal, wire_);
    expect_bytes(Operation::all_gather, before_equal, comm_.size() * bytes_of(count_));
  }

  /// Rank s sends part d of its numbers to rank d.
  void all_to_all() const {
    std::vector<std::int64_t> const received(values_.size(), counts_[rank()]);
    Floats out(index(sum_of(received)));
    auto const before = comm_.ledger()[Operation::all_to_all].bytes;
    if (is_asynchronous_)
      start_all_to_allv(host, comm_, values_[rank()], counts_, out, received, wire_).wait();
    else
      all_to_allv(host, comm_, values_[rank()], counts_, out, received, wire_);
    expect_bytes(Operation::all_to_all, before, bytes_of_parts() - bytes_of(counts_[rank()]));
    Floats expected;
    for (auto const& values : values_) {
      auto const part = on_wire(wire_, part_of(values, begins_[rank()], counts_[rank()]));
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(out, is_alone() ? values_[0] : expected);
  }

  Communicator const& comm_;
  Wire wire_;
  bool is_asynchronous_;
  std::int64_t count_;
  std::vector<Floats> values_;
  std::vector<std::int64_t> counts_, begins_;
};

class BlockWiresOnGrids : public ::testing::TestWithParam<std::array<int, 4>> {};

TEST_P(BlockWiresOnGrids, EqualTheirDefinitionToTheBit) {
  Communicator const world(MPI_COMM_WORLD, "world");
  world.set_chunk_limit(7);
  for (auto const& [comm, identity] : axis_groups(world, GetParam()))
    for (auto const wire : block_wires)
      for (auto const is_asynchronous : {false, true})
        for (auto const count : {0, 1, 61, 128, 700})
          BlockWires(comm, identity, wire, is_asynchronous, count).all();
}

/// In every step, what arrives and what the ranks keep is what they have given: errors do not add up. Without feedback, they would.
TEST_P(BlockWiresOnGrids, FeedbackKeepsWhatAnAllReduceLoses) {
  Communicator const world(MPI_COMM_WORLD, "world");
  constexpr std::int64_t count = 700;
  constexpr unsigned num_steps = 20;
  for (auto const& [comm, identity] : axis_groups(world, GetParam()))
    for (auto const wire : {Wire::bf16, Wire::fp8, Wire::int8}) {
      Floats residuals(count, 0.0F);
      std::vector<double> missing(count, 0); // given by all ranks and not arrived so far
      for (unsigned step = 0; step < num_steps; ++step) {
        for (int r = 0; r < comm.size(); ++r) {
          auto const values = values_of(identity, r, count, step);
          std::ranges::transform(missing, values, missing.begin(), std::plus<>());
        }
        auto data = values_of(identity, comm.rank(), count, step);
        if (step % 2 == 0)
          all_reduce_with_feedback(host, comm, data, residuals, wire);
        else
          start_all_reduce_with_feedback(host, comm, data, residuals, wire).wait();
        std::ranges::transform(missing, data, missing.begin(), std::minus<>());
        expect_same_on_all_ranks(comm, data);
      }
      std::vector<double> kept(residuals.begin(), residuals.end());
      runtime::all_reduce(host, comm, kept);
      for (std::size_t i = 0; i < count; ++i) // fp32 rounds sums of numbers below 4 P
        ASSERT_NEAR(missing[i], kept[i], num_steps * 4.0 * comm.size() * comm.size() * 0x1p-24) << i;
      if (comm.size() > 1) {
        EXPECT_GT(comm.ledger().loss().lost, 0);
        EXPECT_LT(comm.ledger().loss().lost, 1e-2 * comm.ledger().loss().sent);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Grids, BlockWiresOnGrids, ::testing::ValuesIn(grids_4d(world_size())), GridName{});

TEST(BlockWires, RefuseFeedbackOnTheNativeWire) {
  Communicator const world(MPI_COMM_WORLD, "world");
  Floats data(3, 1.0F), residuals(3, 0.0F);
  EXPECT_THROW(all_reduce_with_feedback(host, world, data, residuals, Wire::native), Error);
}

} // namespace
} // namespace orthant::testing::block_wire
