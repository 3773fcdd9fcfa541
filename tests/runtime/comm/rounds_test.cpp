// SPDX-License-Identifier: Apache-2.0
//
// Lists of rounds, followed on paper: what each rank has at the end, the number of rounds, and the parts that are sent.
#include "runtime/comm/algorithm_choice.hpp"
#include "runtime/comm/rounds.hpp"

#include <bit>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

constexpr std::array all_algorithms{Algorithm::ring, Algorithm::recursive, Algorithm::two_level,
                                    Algorithm::doubling, Algorithm::nvrar};
constexpr std::array list_operations{Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce};

std::vector<NodeShape> shapes_up_to(int most) {
  std::vector<NodeShape> shapes;
  for (int ranks = 1; ranks <= most; ++ranks)
    for (int nodes = 1; nodes <= ranks; ++nodes)
      if (ranks % nodes == 0) shapes.push_back({nodes, ranks / nodes});
  return shapes;
}

/// Ranks whose operands are in a part, each at most once.
using Addends = std::set<int>;

/// Follows the lists of all ranks. The k-th message from a rank to another one is the k-th that the other expects from it.
class OnPaper {
 public:
  OnPaper(Operation operation, Algorithm algorithm, NodeShape shape) : size_(shape.num_ranks()) {
    for (int r = 0; r < size_; ++r) {
      lists_.push_back(rounds_of(operation, algorithm, shape, r));
      std::vector<Addends> parts(static_cast<std::size_t>(size_));
      for (int part = 0; part < size_; ++part)
        if (operation != Operation::all_gather || part == r) parts[static_cast<std::size_t>(part)] = {r};
      has_.push_back(parts);
    }
    next_.resize(lists_.size());
    sent_.resize(lists_.size());
  }

  void run() {
    auto goes_on = true;
    while (goes_on) {
      goes_on = false;
      for (int r = 0; r < size_; ++r)
        goes_on = step(r) || goes_on;
    }
    for (int r = 0; r < size_; ++r)
      EXPECT_EQ(next_[at(r)], lists_[at(r)].size()) << "rank " << r << " waits for ever";
    for (auto const& [ranks, messages] : messages_)
      EXPECT_TRUE(messages.empty()) << "from " << ranks.first << " to " << ranks.second;
  }
  [[nodiscard]] Addends const& part(int rank, int part) const { return has_[at(rank)][at(part)]; }
  [[nodiscard]] int most_rounds() const {
    std::size_t most = 0;
    for (auto const& list : lists_)
      most = std::max(most, list.size());
    return static_cast<int>(most);
  }
  [[nodiscard]] int most_sent() const {
    int most = 0;
    for (auto const& list : lists_) {
      std::size_t sent = 0;
      for (auto const& round : list)
        sent += round.sent.size();
      most = std::max(most, static_cast<int>(sent));
    }
    return most;
  }

 private:
  using Message = std::vector<Addends>;
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  bool step(int rank) {
    auto& next = next_[at(rank)];
    if (next == lists_[at(rank)].size()) return false;
    auto const& round = lists_[at(rank)][next];
    if (round.to >= 0 && !std::exchange(sent_[at(rank)], true)) {
      Message message;
      for (auto const part : round.sent)
        message.push_back(has_[at(rank)][at(part)]);
      messages_[{rank, round.to}].push_back(message);
    }
    if (round.from >= 0) {
      auto& arriving = messages_[{round.from, rank}];
      if (arriving.empty()) return false;
      take(rank, round, arriving.front());
      arriving.erase(arriving.begin());
    }
    ++next;
    sent_[at(rank)] = false;
    return true;
  }

  void take(int rank, Round const& round, Message const& message) {
    ASSERT_EQ(message.size(), round.received.size());
    for (std::size_t i = 0; i < message.size(); ++i) {
      auto& own = has_[at(rank)][at(round.received[i])];
      if (!round.adds) {
        own = message[i];
        continue;
      }
      for (auto const addend : message[i])
        EXPECT_TRUE(own.insert(addend).second)
            << "rank " << rank << " adds the part of " << addend << " twice";
    }
  }

  int size_;
  std::vector<std::vector<Round>> lists_;
  std::vector<std::vector<Addends>> has_;
  std::vector<std::size_t> next_;
  std::vector<char> sent_;
  std::map<std::pair<int, int>, std::vector<Message>> messages_;
};

TEST(Rounds, BringEveryPartWhereItBelongs) {
  for (auto const shape : shapes_up_to(16))
    for (auto const operation : list_operations)
      for (auto const algorithm : all_algorithms) {
        if (!is_possible(operation, algorithm, shape)) continue;
        SCOPED_TRACE(::testing::Message() << name_of(operation) << " by " << name_of(algorithm) << " on "
                                          << shape.num_nodes << " x " << shape.per_node);
        OnPaper paper(operation, algorithm, shape);
        paper.run();
        auto const size = shape.num_ranks();
        Addends all;
        for (int r = 0; r < size; ++r)
          all.insert(r);
        for (int r = 0; r < size; ++r)
          for (int part = 0; part < size; ++part) {
            if (operation == Operation::reduce_scatter && part != r) continue;
            auto const& expected = operation == Operation::all_gather ? Addends{part} : all;
            EXPECT_EQ(paper.part(r, part), expected) << "part " << part << " on rank " << r;
          }
      }
}

/// Rounds and parts that the busiest rank sends: the table at the head of comm/rounds.hpp.
std::pair<int, int> closed_form(Operation operation, Algorithm algorithm, NodeShape shape) {
  auto const size = shape.num_ranks();
  auto const [nodes, per_node] = shape;
  auto const log_up = [](int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1))); };
  auto const doublings = [&](int n) {
    auto const power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
    auto const is_power = power == n;
    return std::pair(log_up(power) + (is_power ? 0 : 2), log_up(power) + (is_power ? 0 : 1));
  };
  auto const passes = operation == Operation::all_reduce ? 2 : 1;
  switch (algorithm) {
  case Algorithm::ring:
    return {passes * (size - 1), passes * (size - 1)};
  case Algorithm::recursive:
    return {passes * log_up(size), passes * (size - 1)};
  case Algorithm::two_level:
    return {passes * (log_up(nodes) + per_node - 1), passes * (size - 1)};
  case Algorithm::doubling:
    return {doublings(size).first, size * doublings(size).second};
  default:
    return {doublings(nodes).first + 2 * (per_node - 1),
            nodes * (doublings(nodes).second + 2 * (per_node - 1))};
  }
}

TEST(Rounds, AreAsManyAsTheirClosedForms) {
  for (auto const shape : shapes_up_to(16))
    for (auto const operation : list_operations)
      for (auto const algorithm : all_algorithms) {
        if (!is_possible(operation, algorithm, shape)) continue;
        OnPaper const paper(operation, algorithm, shape);
        EXPECT_EQ(std::pair(paper.most_rounds(), paper.most_sent()), closed_form(operation, algorithm, shape))
            << name_of(operation) << " by " << name_of(algorithm) << " on " << shape.num_nodes << " x "
            << shape.per_node;
      }
}

// Parts of 24 words. PCCL (arXiv 2504.18658) and NVRAR (arXiv 2511.09557) count these steps and words.
TEST(Rounds, HaveTheCountsOfThePapers) {
  auto const count = [](Operation operation, Algorithm algorithm, NodeShape shape) {
    OnPaper const paper(operation, algorithm, shape);
    return std::pair(paper.most_rounds(), 24 * paper.most_sent());
  };
  using Counts = std::pair<int, int>;
  for (auto const operation : {Operation::all_gather, Operation::reduce_scatter}) {
    EXPECT_EQ(count(operation, Algorithm::ring, {4, 4}), Counts(15, 360));
    EXPECT_EQ(count(operation, Algorithm::recursive, {4, 4}), Counts(4, 360));
    EXPECT_EQ(count(operation, Algorithm::two_level, {4, 4}), Counts(5, 360));
    EXPECT_EQ(count(operation, Algorithm::two_level, {4, 2}), Counts(3, 168));
    EXPECT_EQ(count(operation, Algorithm::two_level, {2, 4}), Counts(4, 168));
    EXPECT_EQ(count(operation, Algorithm::two_level, {3, 4}), Counts(5, 264));
  }
  EXPECT_EQ(count(Operation::all_reduce, Algorithm::two_level, {4, 4}), Counts(10, 720));
  EXPECT_EQ(count(Operation::all_reduce, Algorithm::nvrar, {4, 4}), Counts(8, 768));
  EXPECT_EQ(count(Operation::all_reduce, Algorithm::two_level, {4, 2}), Counts(6, 336));
  EXPECT_EQ(count(Operation::all_reduce, Algorithm::nvrar, {4, 2}), Counts(4, 384));
  EXPECT_EQ(count(Operation::all_reduce, Algorithm::two_level, {2, 4}), Counts(8, 336));
  EXPECT_EQ(count(Operation::all_reduce, Algorithm::nvrar, {2, 4}), Counts(7, 336));
}

TEST(NodeShapes, AreEqualNumbersOfConsecutiveRanks) {
  std::vector<int> const nodes{0, 0, 0, 0, 1, 1, 1, 1, 2, 2};
  auto const shape = [&](std::vector<int> const& ranks) { return shape_of(ranks, nodes); };
  EXPECT_EQ(shape({0, 1, 2, 3, 4, 5, 6, 7}), (NodeShape{2, 4}));
  EXPECT_EQ(shape({0, 2, 4, 6}), (NodeShape{2, 2}));
  EXPECT_EQ(shape({1, 5, 9}), (NodeShape{3, 1}));
  EXPECT_EQ(shape({0, 1, 2}), (NodeShape{1, 3}));
  EXPECT_EQ(shape({0, 1, 4, 5, 8, 9}), (NodeShape{3, 2}));
  EXPECT_EQ(shape({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), (NodeShape{1, 10})) << "two ranks on the last node";
  EXPECT_EQ(shape({0, 4, 1, 5}), (NodeShape{1, 4})) << "nodes in turn";
}

TEST(AlgorithmChoice, IsTheNamedOneOrTheNearestThatFits) {
  AlgorithmChoice choice{Algorithm::nvrar, {{"x", Algorithm::two_level}, {"y", Algorithm::library}}, {}};
  EXPECT_EQ(choice.of(Operation::all_reduce, "z", {2, 4}, 100), Algorithm::nvrar);
  EXPECT_EQ(choice.of(Operation::all_gather, "z", {2, 4}, 100), Algorithm::two_level);
  EXPECT_EQ(choice.of(Operation::all_reduce, "z", {1, 8}, 100), Algorithm::library);
  EXPECT_EQ(choice.of(Operation::all_reduce, "z", {8, 1}, 100), Algorithm::doubling);
  EXPECT_EQ(choice.of(Operation::reduce_scatter, "z", {8, 1}, 100), Algorithm::recursive);
  EXPECT_EQ(choice.of(Operation::all_to_all, "z", {2, 4}, 100), Algorithm::two_level);
  EXPECT_EQ(choice.of(Operation::all_to_all, "x", {1, 8}, 100), Algorithm::library);
  EXPECT_EQ(choice.of(Operation::all_reduce, "x", {1, 8}, 100), Algorithm::library);
  EXPECT_EQ(choice.of(Operation::broadcast, "x", {2, 4}, 100), Algorithm::library);
  EXPECT_TRUE(choice.is_library("y"));
  EXPECT_FALSE(choice.is_library("z"));
  EXPECT_TRUE(AlgorithmChoice{}.is_library("x"));
  choice.of_axis["data"] = Algorithm::ring;
  EXPECT_EQ(choice.of(Operation::all_reduce, "expert+context+data", {2, 4}, 100), Algorithm::ring);
}

TEST(AlgorithmChoice, OfATableIsTheNearestMeasurement) {
  AlgorithmChoice choice;
  choice.measurements = {{Operation::all_reduce, {1, 8}, 1024, Algorithm::doubling},
                         {Operation::all_reduce, {1, 8}, 1 << 20, Algorithm::ring},
                         {Operation::all_reduce, {4, 4}, 1 << 20, Algorithm::two_level},
                         {Operation::all_gather, {1, 8}, 1024, Algorithm::recursive}};
  EXPECT_EQ(choice.of(Operation::all_reduce, "x", {1, 8}, 4), Algorithm::doubling);
  EXPECT_EQ(choice.of(Operation::all_reduce, "x", {1, 8}, 31 << 10), Algorithm::doubling);
  EXPECT_EQ(choice.of(Operation::all_reduce, "x", {1, 8}, 33 << 10), Algorithm::ring);
  EXPECT_EQ(choice.of(Operation::all_reduce, "x", {4, 8}, 1 << 22), Algorithm::two_level);
  EXPECT_EQ(choice.of(Operation::all_reduce, "x", {32, 1}, 1 << 22), Algorithm::ring) << "without two levels";
  EXPECT_EQ(choice.of(Operation::reduce_scatter, "x", {1, 8}, 1024), Algorithm::library);
  EXPECT_FALSE(choice.is_library("x"));
}

} // namespace
} // namespace orthant::testing
