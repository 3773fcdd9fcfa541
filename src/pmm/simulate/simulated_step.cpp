// SPDX-License-Identifier: Apache-2.0
#include "pmm/simulate/simulated_step.hpp"

#include "pmm/simulate/fair_flows.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>

namespace orthant::pmm {
namespace {

/// Work of a rank: it computes, calls, computes, calls, .. and computes.
struct RankWork {
  std::vector<double> computing; // seconds; one more than calls
  std::vector<PlannedCall> calls;
};

class Player {
 public:
  Player(GridShape const& shape, Machine const& machine, SimulationSettings const& settings)
      : shape_(shape),
        machine_(machine),
        settings_(settings),
        job_ranks_(shape.num_ranks()),
        flows_(links_of(machine, job_ranks_)),
        ranks_(static_cast<std::size_t>(job_ranks_)) {}

  SimulatedSeconds play(std::function<StepPlan(Coordinates const&)> const& list_of) {
    std::shared_ptr<RankWork const> first;
    for (int rank = 0; rank < job_ranks_; ++rank) {
      if (!first || !settings_.folds_ranks)
        first = std::make_shared<RankWork const>(work_of(list_of(coordinates_of(shape_, rank))));
      auto& state = state_of(rank);
      state.work = first;
      auto const slow = settings_.stragglers.find(rank);
      if (slow != settings_.stragglers.end()) state.slowness = slow->second;
      compute(rank, 0);
    }
    run();
    auto const mean = [&](double sum) { return sum / job_ranks_; };
    return {last_end_, mean(sums_.computing), mean(sums_.waiting), mean(sums_.calls)};
  }

 private:
  struct Rank {
    std::shared_ptr<RankWork const> work;
    std::size_t num_calls = 0; // calls that have begun or ended
    double slowness = 1;
    double arrival = 0; // at the current call
  };
  /// State of a group and its current call.
  struct Group {
    PlannedCall const* call = nullptr;
    int first = 0; // its first rank
    int num_arrived = 0;
    double begin = 0; // time at which all members had arrived
    std::optional<CollectiveRounds> rounds;
    int round = 0;
    int num_messages = 0; // messages of the round that have not arrived
  };
  enum class Kind : std::uint8_t { arrival, round, messages };
  struct Event {
    double time;
    std::int64_t number; // of two events at the same time, the smaller number comes first
    Kind kind;
    int of;    // number of the rank or group that the event belongs to
    int count; // of messages
    bool operator>(Event const& other) const {
      return std::tie(time, number) > std::tie(other.time, other.number);
    }
  };
  using GroupKey = std::tuple<int, int, int>; // ranks, stride, first

  static std::vector<double> links_of(Machine const& machine, int job_ranks) {
    auto const num_nodes = (job_ranks + machine.ranks_per_node - 1) / machine.ranks_per_node;
    return std::vector<double>(2 * static_cast<std::size_t>(num_nodes),
                               machine.collectives.bytes_per_second_between_nodes);
  }
  [[nodiscard]] Rank& state_of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Group& group_of(int number) { return groups_[static_cast<std::size_t>(number)]; }
  [[nodiscard]] int node_of(int rank) const { return rank / machine_.ranks_per_node; }

  [[nodiscard]] RankWork work_of(StepPlan const& step) const {
    RankWork work;
    work.computing.push_back(0);
    for (auto const& operation : step.operations()) {
      if (auto const* const call = std::get_if<PlannedCall>(&operation)) {
        work.calls.push_back(*call);
        work.computing.push_back(0);
        continue;
      }
      work.computing.back() += seconds_of(operation, step, machine_);
    }
    return work;
  }

  void add(double time, Kind kind, int of, int count = 0) {
    events_.push({time, num_events_++, kind, of, count});
  }

  void run() {
    while (true) {
      auto const of_events = events_.empty() ? never : events_.top().time;
      auto const of_flows = flows_.next_end();
      if (std::min(of_events, of_flows) == never) return;
      if (of_flows <= of_events) {
        do
          end_messages(flows_.end(), of_flows, 1);
        while (flows_.has_other_end());
        continue;
      }
      while (!events_.empty() && events_.top().time == of_events) {
        auto const event = events_.top();
        events_.pop();
        if (event.kind == Kind::arrival) arrive(event.of, event.time);
        if (event.kind == Kind::round) begin_round(event.of, event.time);
        if (event.kind == Kind::messages) end_messages(event.of, event.time, event.count);
      }
    }
  }

  void compute(int rank, double time) {
    auto const& state = state_of(rank);
    auto const seconds = state.slowness * state.work->computing[state.num_calls];
    sums_.computing += seconds;
    tell({rank, "compute", "", time, time + seconds, -1});
    add(time + seconds, Kind::arrival, rank);
  }

  void arrive(int rank, double time) {
    auto& state = state_of(rank);
    if (state.num_calls == state.work->calls.size()) {
      last_end_ = std::max(last_end_, time);
      return;
    }
    auto const& call = state.work->calls[state.num_calls++];
    state.arrival = time;
    auto const [num_ranks, stride] = call.span;
    auto const first = rank - rank / stride % num_ranks * stride;
    auto const [place, is_new] =
        numbers_.try_emplace({num_ranks, stride, first}, static_cast<int>(groups_.size()));
    if (is_new) groups_.emplace_back();
    auto& group = group_of(place->second);
    if (group.num_arrived == 0 || rank == first) group.call = &call;
    ORTHANT_REQUIRE(group.call->operation == call.operation && group.call->axis == call.axis,
                    "ranks of a group make different calls: ", runtime::name_of(call.operation), " on ",
                    call.axis);
    group.first = first;
    if (++group.num_arrived < num_ranks) return;
    group.begin = time;
    group.round = 0;
    group.rounds.emplace(*group.call, algorithm_for(*group.call),
                         members_on_node(machine_, group.call->span));
    add(time + machine_.collectives.call_seconds + machine_.collectives.step_seconds, Kind::round,
        place->second);
  }

  Algorithm algorithm_for(PlannedCall const& call) {
    auto const key = std::tuple(call.operation, call.axis, call.span.num_ranks, call.span.stride, call.bytes);
    auto const found = algorithms_.find(key);
    if (found != algorithms_.end()) return found->second;
    auto const chosen = chosen_algorithm(machine_, call, job_ranks_);
    return algorithms_[key] =
               chosen == Algorithm::library ? fastest_algorithm(machine_, call, job_ranks_) : chosen;
  }

  void begin_round(int number, double time) {
    auto& group = group_of(number);
    auto const stride = group.call->span.stride;
    auto const messages = group.rounds->messages(group.round);
    group.num_messages = static_cast<int>(messages.size());
    auto num_inside = 0;
    auto const between_nodes = machine_.collectives.bytes_per_second_between_nodes;
    for (auto const& [from, to, bytes] : messages) {
      auto const sender = node_of(group.first + from * stride);
      auto const receiver = node_of(group.first + to * stride);
      if (sender == receiver)
        ++num_inside;
      else
        flows_.begin(time, {2 * sender, 2 * receiver + 1}, between_nodes, bytes, number);
    }
    if (num_inside == 0) return;
    GroupSpan const inside{members_on_node(machine_, group.call->span), stride};
    auto const speed = bytes_per_second(machine_, inside, std::min(machine_.ranks_per_node, job_ranks_));
    add(time + messages.front().bytes / speed, Kind::messages, number, num_inside);
  }

  void end_messages(int number, double time, int count) {
    auto& group = group_of(number);
    group.num_messages -= count;
    if (group.num_messages > 0) return;
    if (++group.round < group.rounds->size())
      add(time + machine_.collectives.step_seconds, Kind::round, number);
    else
      end_call(group, time);
  }

  void end_call(Group& group, double time) {
    auto const call = *group.call;
    auto const begin = group.begin;
    auto const first = group.first;
    group.num_arrived = 0; // now, because members may begin the next call at the same time
    for (int place = 0; place < call.span.num_ranks; ++place) {
      auto const rank = first + place * call.span.stride;
      auto const& state = state_of(rank);
      sums_.waiting += begin - state.arrival;
      sums_.calls += time - begin;
      tell({rank, runtime::name_of(call.operation), call.axis, state.arrival, time, call.bytes});
      compute(rank, time);
    }
  }

  void tell(SimulatedStretch const& stretch) const {
    if (settings_.watch && stretch.end > stretch.begin) settings_.watch(stretch);
  }

  static constexpr auto never = std::numeric_limits<double>::infinity();
  GridShape shape_;
  Machine const& machine_;
  SimulationSettings const& settings_;
  int job_ranks_;
  FairFlows flows_; // link 2n leaves node n, 2n + 1 enters it
  std::vector<Rank> ranks_;
  std::vector<Group> groups_;
  std::map<GroupKey, int> numbers_; // of groups
  std::map<std::tuple<runtime::Operation, std::string, int, int, std::int64_t>, Algorithm> algorithms_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t num_events_ = 0;
  double last_end_ = 0;
  SimulatedSeconds sums_;
};

} // namespace

SimulatedSeconds simulate_step(GridShape const& shape,
                               std::function<StepPlan(Coordinates const&)> const& list_of,
                               Machine const& machine, SimulationSettings const& settings) {
  return Player(shape, machine, settings).play(list_of);
}

} // namespace orthant::pmm
