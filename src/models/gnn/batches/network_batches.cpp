// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/batches/network_batches.hpp"

#include "models/gnn/plan/network_settings.hpp"
#include "sampling/sampling_keys.hpp"
#include "sampling/vertex_sampler.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {
namespace {

using runtime::throw_user;

void require_fitting(graph::GraphStore const& store, SamplerSettings const& settings) {
  if (settings.edges == sampling::BatchEdges::renormalize &&
      store.facts().normalization == graph::Normalization::none)
    refuse(Refused::batch_edges, "give --batch-edges rescale, or --normalize sym or row");
  if (settings.kind == SamplerKind::uniform) return;
  if (settings.train_fraction) refuse(Refused::train_fraction, "leave one of them out");
  if (settings.kind == SamplerKind::clusters && store.facts().num_clusters == 0)
    throw_user(
        "{} has no clusters for --sampler clusters; partition the graph with --clusters K, such as 2 for "
        "each batch of an epoch",
        store.name());
}

} // namespace

SamplerKind parse_sampler(std::string_view word) {
  if (word == "uniform") return SamplerKind::uniform;
  if (word == "degree") return SamplerKind::degree;
  if (word == "clusters") return SamplerKind::clusters;
  throw_user("unknown sampler '{}': it is one of uniform, degree, clusters", word);
}

BatchPlace parse_batch_place(std::string_view word) {
  if (word == "auto") return BatchPlace::automatic;
  if (word == "device") return BatchPlace::device;
  if (word == "host") return BatchPlace::host;
  throw_user("unknown source of batches '{}': it is one of auto, device, host", word);
}

sampling::BatchEdges parse_batch_edges(std::string_view word) {
  if (word == "rescale") return sampling::BatchEdges::rescale;
  if (word == "renormalize") return sampling::BatchEdges::renormalize;
  throw_user("unknown weight of edges in a batch '{}': it is one of rescale, renormalize", word);
}

sampling::BatchEdges batch_edges_for(NetworkSettings const& model, sampling::BatchEdges asked) {
  return traits_of(model.model, model.aggregator).has_relations ? sampling::BatchEdges::relations : asked;
}

std::unique_ptr<sampling::Sampler const> make_sampler(pmm::ProcessGrid const& grid,
                                                      graph::GraphStore const& store,
                                                      SamplerSettings const& settings, std::uint64_t seed) {
  require_fitting(store, settings);
  auto const& facts = store.facts();
  auto const num_groups = std::int64_t{grid.size(pmm::Axis::data)};
  auto const num_train = facts.split_sizes[0];
  if (settings.kind == SamplerKind::degree)
    return std::make_unique<sampling::DegreeSampler>(
        sampling::DegreeSamplerOptions{seed, settings.batch_size, num_groups, settings.num_accumulated},
        sampling::count_degrees(grid.world(), store), num_train);
  if (settings.kind == SamplerKind::clusters)
    return std::make_unique<sampling::ClusterSampler>(
        sampling::ClusterSamplerOptions{seed, settings.batch_size, num_groups, settings.num_accumulated,
                                        settings.edges},
        sampling::count_strata(grid.world(), store, {sampling::Strata::By::cluster, {}},
                               static_cast<std::size_t>(facts.num_clusters)),
        num_train);
  return std::make_unique<sampling::VertexSampler>(
      sampling::VertexSamplerOptions{seed, settings.batch_size, num_groups, settings.num_accumulated,
                                     settings.train_fraction},
      facts.num_vertices, num_train);
}

template<class T>
BatchQueue<T>::BatchQueue(BatchMaker<T>& maker, sampling::Sampler const& sampler, std::int64_t group,
                          std::int64_t num_accumulated, std::int64_t num_epochs, Prefetch prefetch,
                          std::int64_t first_epoch, std::int64_t first_step)
    : maker_(maker),
      sampler_(sampler),
      group_(group),
      num_accumulated_(num_accumulated),
      num_epochs_(num_epochs),
      place_{first_epoch, first_step, 0} {
  if (prefetch == Prefetch::next_batch && !maker.uses_kernels()) task_.emplace([this] { fill_back(); });
  if (!is_at_end()) start_back();
}

template<class T>
void BatchQueue<T>::fill_back() {
  maker_.fill(place_.epoch, sampler_.batch_of(place_.step, group_, place_.accumulated), batches_[back_]);
}

template<class T>
void BatchQueue<T>::start_back() {
  if (maker_.uses_kernels())
    maker_.start(place_.epoch, sampler_.batch_of(place_.step, group_, place_.accumulated));
  else if (task_)
    task_->start();
}

template<class T>
void BatchQueue<T>::finish_back(runtime::Instruments& instruments) {
  if (maker_.uses_kernels()) return maker_.finish(batches_[back_]);
  if (!task_) return fill_back();
  task_->wait();
  if (task_start_) instruments.clock.wait_for_work(*task_start_, batches_[back_].seconds);
}

template<class T>
void BatchQueue<T>::advance() {
  if (++place_.accumulated < num_accumulated_) return;
  place_.accumulated = 0;
  if (++place_.step < sampler_.num_steps()) return;
  place_.step = 0;
  ++place_.epoch;
}

template<class T>
PreparedBatch<T>& BatchQueue<T>::next(runtime::Instruments& instruments, runtime::PhaseTimes& phases) {
  ORTHANT_REQUIRE(!is_at_end(), "there is no batch after the last of epoch ", num_epochs_);
  {
    runtime::ScopedTimer const timer(instruments, phases, "sampling_wait");
    finish_back(instruments);
  }
  auto& batch = batches_[back_];
  if (!maker_.uses_kernels()) phases.add("sampling", batch.seconds);
  advance();
  if (!task_ && !maker_.uses_kernels()) return batch; // without prefetching there is only this batch
  // The caller has finished with the other batch, so its memory can be filled.
  back_ = 1 - back_;
  if (is_at_end() || maker_.uses_kernels()) return batch;
  task_start_ = instruments.clock.now();
  start_back();
  return batch;
}

template<class T>
void BatchQueue<T>::start_kernels(runtime::Instruments& instruments, runtime::PhaseTimes& phases) {
  if (!maker_.uses_kernels() || is_at_end()) return;
  runtime::ScopedTimer const timer(instruments, phases, "sampling");
  // Passes of the same step may still use the memory of the batch before.
  if (num_accumulated_ > 1)
    runtime::compat::fence(runtime::DefaultExec(), "orthant::models::BatchQueue/the batch before is used");
  start_back();
}

template class BatchQueue<float>;
template class BatchQueue<double>;

namespace {

/// Unique among the batches of a run, and different from the keys of full-graph epochs, which are the epoch numbers.
std::uint64_t dropout_key(std::int64_t epoch, std::int64_t batch) {
  return static_cast<std::uint64_t>(batch + 1) << 32 | static_cast<std::uint64_t>(epoch);
}

} // namespace

BatchSizes sizes_of(MiniBatchSettings const& settings, bool is_evaluated) {
  auto const trains_full_graph = settings.num_full_epochs > 0;
  return {.num_vertices = settings.batch_size,
          .num_accumulated = settings.num_accumulated,
          .has_full_graph = is_evaluated || trains_full_graph,
          .renormalizes = settings.edges != sampling::BatchEdges::rescale,
          .trains_full_graph = trains_full_graph,
          .has_strata = settings.has_strata(),
          .prefetches = settings.prefetch == Prefetch::next_batch,
          .are_made_by_kernels = settings.place == BatchPlace::device ||
                                 (settings.place == BatchPlace::automatic && !pmm::runs_on_host)};
}

template<class T>
NetworkBatches<T>::NetworkBatches(pmm::ProcessGrid const& grid, GraphNetwork<T>& network,
                                  pmm::RowLoss<T>& loss, std::unique_ptr<BatchMaker<T>> maker,
                                  sampling::Sampler const& sampler, MiniBatchSettings const& settings,
                                  std::int64_t num_epochs, std::int64_t num_train)
    : grid_(grid),
      network_(network),
      loss_(loss),
      maker_(std::move(maker)),
      sampler_(sampler),
      settings_(settings),
      num_epochs_(num_epochs),
      nominal_count_(std::max<std::int64_t>(1, num_train / sampler.num_steps())) {}

template<class T>
double NetworkBatches<T>::num_kept_neighbours() {
  ORTHANT_REQUIRE(!queue_, "the queue's thread has the maker");
  constexpr std::int64_t most_batches = 4;
  auto const num_batches = std::min(most_batches, sampler_.num_batches());
  auto sum = 0.0;
  for (std::int64_t batch = 0; batch < num_batches; ++batch)
    sum += maker_->num_kept_neighbours(1, batch);
  return sum / static_cast<double>(num_batches);
}

template<class T>
void NetworkBatches<T>::start_at(std::int64_t epoch, std::int64_t step) {
  ORTHANT_REQUIRE(step < num_steps(), "step ", step, " of epochs that have ", num_steps());
  queue_.reset(); // stops its thread, which uses the maker
  queue_ = std::make_unique<BatchQueue<T>>(*maker_, sampler_, grid_.coordinate(pmm::Axis::data),
                                           settings_.num_accumulated, num_epochs_, settings_.prefetch, epoch,
                                           step);
}

template<class T>
std::uint64_t NetworkBatches<T>::next(std::int64_t epoch, runtime::PhaseTimes& phases) {
  ORTHANT_REQUIRE(queue_, "batches before start_at()");
  auto& instruments = grid_.world().instruments();
  auto& batch = queue_->next(instruments, phases);
  runtime::ScopedTimer const timer(instruments, phases, "bind");
  network_.unbind();
  network_.rebind(maker_->operands(batch));
  loss_.rebind(network_.plan().logits());
  maker_->set_targets(batch, loss_);
  queue_->start_kernels(instruments, phases);
  return dropout_key(epoch, batch.sample.index);
}

template class NetworkBatches<float>;
template class NetworkBatches<double>;

} // namespace orthant::models
