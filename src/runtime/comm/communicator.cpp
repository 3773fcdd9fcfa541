// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/communicator.hpp"

#include "runtime/comm/backend.hpp"
#include "runtime/comm/pending.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>

namespace orthant::runtime {
namespace {

detail::MpiComm duplicate(MPI_Comm parent) {
  MPI_Comm copy = MPI_COMM_NULL;
  ORTHANT_MPI(MPI_Comm_dup(parent, &copy));
  return detail::MpiComm(copy);
}

bool is_in_shared_memory(MPI_Comm comm, int num_ranks) {
  if (num_ranks == 1) return true;
  MPI_Comm node = MPI_COMM_NULL;
  ORTHANT_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  detail::MpiComm const part(node);
  int num_here = 0;
  ORTHANT_MPI(MPI_Comm_size(part.get(), &num_here));
  return num_here == num_ranks;
}

using Backends = std::vector<std::unique_ptr<detail::Backend>>;

/// The MPI and the staged backend. `whole` are the backends of the communicator that this one is split from.
Backends backends_of_part(Backends const& whole) {
  Backends part;
  part.push_back(detail::make_mpi_backend(whole.empty() ? nullptr : whole[whole.size() - 2]->progress()));
  part.push_back(detail::make_staged_backend(*part.front()));
  return part;
}

} // namespace

void detail::FreeMpiGroup::operator()(MPI_Group group) const noexcept {
  MPI_Group_free(&group);
}

void detail::FreeMpiComm::operator()(MPI_Comm comm) const noexcept {
  if (std::uncaught_exceptions() > 0) return; // freeing is collective, and this rank may have failed alone
  int is_finalised = 0;
  MPI_Finalized(&is_finalised);
  if (is_finalised == 0) MPI_Comm_free(&comm);
}

Communicator::Communicator(MPI_Comm parent, std::string axis, std::shared_ptr<Instruments> instruments)
    : Communicator(duplicate(parent), std::move(axis), std::move(instruments)) {}

Communicator::Communicator(detail::MpiComm comm, std::string axis, std::shared_ptr<Instruments> instruments)
    : comm_(std::move(comm)),
      axis_(std::move(axis)),
      state_(std::make_unique<State>()),
      instruments_(std::move(instruments)) {
  // Otherwise MPI aborts on errors and never returns an error code.
  ORTHANT_MPI(MPI_Comm_set_errhandler(comm_.get(), MPI_ERRORS_RETURN));
  ORTHANT_MPI(MPI_Comm_rank(comm_.get(), &rank_));
  ORTHANT_MPI(MPI_Comm_size(comm_.get(), &size_));
  shares_memory_ = is_in_shared_memory(comm_.get(), size_);
  state_->virtual_calls = std::make_unique<detail::VirtualCalls>();
  state_->backends = backends_of_part({});
}

Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

std::span<int const> Communicator::job_ranks() const {
  auto& ranks = state_->job_ranks;
  if (!ranks.empty()) return ranks;
  MPI_Group own = MPI_GROUP_NULL;
  MPI_Group job = MPI_GROUP_NULL;
  ORTHANT_MPI(MPI_Comm_group(comm_.get(), &own));
  detail::MpiGroup const own_owner(own);
  ORTHANT_MPI(MPI_Comm_group(MPI_COMM_WORLD, &job));
  detail::MpiGroup const job_owner(job);
  std::vector<int> places(static_cast<std::size_t>(size_));
  std::iota(places.begin(), places.end(), 0);
  ranks.resize(places.size());
  ORTHANT_MPI(MPI_Group_translate_ranks(own, size_, places.data(), job, ranks.data()));
  return ranks;
}

bool Communicator::is_on_one_node() const {
  auto const* const machine = instruments_->clock.machine();
  if (machine == nullptr) return shares_memory_;
  auto const node_of = [&](int rank) { return rank / machine->ranks_per_node; };
  return std::ranges::all_of(job_ranks(),
                             [&](int rank) { return node_of(rank) == node_of(job_ranks().front()); });
}

/// Takes ownership of `comm`.
Communicator Communicator::make_part(MPI_Comm comm, std::string axis) const {
  Communicator result(detail::MpiComm(comm), std::move(axis), instruments_);
  result.state_->backends = backends_of_part(state_->backends);
  result.state_->algorithms = state_->algorithms;
  result.set_chunk_limit(chunk_limit());
  result.add_round_backend();
  return result;
}

void Communicator::use_algorithms(AlgorithmChoice choice, std::vector<int> node_of_rank) const {
  ORTHANT_REQUIRE(!state_->algorithms, "algorithms are chosen once");
  state_->algorithms =
      std::make_shared<JobAlgorithms>(JobAlgorithms{std::move(choice), std::move(node_of_rank)});
  add_round_backend();
}

void Communicator::add_round_backend() const {
  if (!state_->algorithms) return;
  auto const& of_host = state_->backends[state_->backends.size() - 2];
  if (auto backend = detail::make_round_backend(*this, state_->algorithms, of_host->progress()))
    use_backend(std::move(backend));
}

Communicator Communicator::split(int color, int key, std::string axis) const {
  RunClock::Paused const paused(instruments_->clock);
  MPI_Comm part = MPI_COMM_NULL;
  ORTHANT_MPI(MPI_Comm_split(comm_.get(), color, key, &part));
  return make_part(part, std::move(axis));
}

Communicator Communicator::subgroup(std::vector<int> const& ranks, std::string axis) const {
  RunClock::Paused const paused(instruments_->clock);
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm part = MPI_COMM_NULL;
  constexpr int tag = 0;               // the same for all: a rank creates its groups one after the other
  std::optional<WaitingScope> waiting; // the watchdog sees ranks that create different groups
  if (ranks.size() > 1) waiting.emplace(instruments_->position, "making a communicator");
  ORTHANT_MPI(MPI_Comm_group(comm_.get(), &all));
  detail::MpiGroup const all_owner(all);
  ORTHANT_MPI(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members));
  detail::MpiGroup const members_owner(members);
  ORTHANT_MPI(MPI_Comm_create_group(comm_.get(), members, tag, &part));
  ORTHANT_REQUIRE(part != MPI_COMM_NULL, "a group without the rank that makes it");
  return make_part(part, std::move(axis));
}

Communicator Communicator::split_by_node() const {
  RunClock::Paused const paused(instruments_->clock);
  MPI_Comm part = MPI_COMM_NULL;
  ORTHANT_MPI(MPI_Comm_split_type(comm_.get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part));
  return make_part(part, "node");
}

void Communicator::set_chunk_limit(std::int64_t num_elements) const {
  ORTHANT_REQUIRE(num_elements >= 1 && num_elements <= (std::int64_t{1} << 30), "chunk limit ", num_elements);
  state_->chunk_limit = num_elements;
}

void Communicator::use_backend(std::unique_ptr<detail::Backend> backend) const {
  state_->backends.insert(state_->backends.begin(), std::move(backend));
}

std::span<std::unique_ptr<detail::Backend> const> Communicator::backends(bool for_device) const {
  auto& all = state_->backends;
  if (for_device && !std::exchange(state_->has_tried_nccl, true))
    if (auto nccl = detail::make_nccl_backend(comm_.get())) all.insert(all.end() - 2, std::move(nccl));
  return all;
}

void Communicator::prepare_shared_memory() const {
  auto& all = state_->backends;
  if (!std::exchange(state_->has_tried_shared_memory, true))
    if (auto shared = detail::make_shared_memory_backend(*this)) all.insert(all.end() - 2, std::move(shared));
}

bool Communicator::works_on_streams() const {
  return std::ranges::any_of(backends(true),
                             [](auto const& backend) { return backend->is_ordered_by_stream(); });
}

std::vector<std::byte> Communicator::lend_scratch(std::size_t num_bytes) const {
  auto& pool = state_->scratch;
  // The smallest buffer that is large enough, otherwise the largest one, which then grows.
  auto best = pool.end();
  for (auto it = pool.begin(); it != pool.end(); ++it) {
    if (best == pool.end()) {
      best = it;
      continue;
    }
    auto const fits = it->size() >= num_bytes;
    auto const best_fits = best->size() >= num_bytes;
    if (fits ? (!best_fits || it->size() < best->size()) : (!best_fits && it->size() > best->size()))
      best = it;
  }
  std::vector<std::byte> buffer;
  if (best != pool.end()) {
    std::swap(*best, pool.back());
    buffer = std::move(pool.back());
    pool.pop_back();
  }
  if (buffer.size() < num_bytes) {
    buffer.clear(); // the content is not needed: a growing resize would copy it
    buffer.resize(num_bytes);
  }
  return buffer;
}

void Communicator::give_back(std::vector<std::byte> scratch) const {
  if (!scratch.empty()) state_->scratch.push_back(std::move(scratch));
}

} // namespace orthant::runtime
