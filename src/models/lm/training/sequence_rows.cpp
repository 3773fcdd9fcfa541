// SPDX-License-Identifier: Apache-2.0
#include "models/lm/training/sequence_rows.hpp"

#include "models/parameters/device_copy.hpp"

#include <algorithm>

namespace orthant::models {

/// Hashes the tokens: the finalizer of splitmix64 mixes each of them into 64 bits.
bool Goldfish::leaves_out(std::span<std::int32_t const> tokens) const {
  std::uint64_t hash = 0;
  for (auto const token : tokens) {
    hash += 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(token);
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
    hash ^= hash >> 31;
  }
  return hash % static_cast<std::uint64_t>(one_in) == 0;
}

template<class T>
SequenceSource<T>::SequenceSource(pmm::ProcessGrid const& grid, SequenceRows<T>& rows,
                                  tokens::TokenFile const& file, SequenceSettings const& settings)
    : grid_(grid),
      rows_(rows),
      settings_(settings),
      windows_(file.num_tokens(tokens::Part::train), settings.sequence, settings.seed) {}

template<class T>
void SequenceSource<T>::start_at(std::int64_t /*epoch*/, std::int64_t step) {
  ORTHANT_REQUIRE(step == 0, "step ", step, " of epochs that have one");
  k_ = 0;
}

template<class T>
std::uint64_t SequenceSource<T>::next(std::int64_t epoch, runtime::PhaseTimes& phases) {
  runtime::ScopedTimer const timer(grid_.world().instruments(), phases, "tokens");
  auto const pass = (epoch - 1) * settings_.num_accumulated + k_;
  auto const own = rows_.sequences();
  for (std::int64_t s = 0; s < own.size(); ++s)
    rows_.read(s, tokens::Part::train, windows_.begin_of(pass * settings_.num_sequences() + own.begin + s));
  rows_.bind(k_);
  k_ = (k_ + 1) % settings_.num_accumulated;
  return static_cast<std::uint64_t>(pass);
}

template class SequenceSource<float>;
template class SequenceSource<double>;

namespace {

constexpr auto groups_label = "orthant::models::sequence_groups";
constexpr auto classes_label = "orthant::models::sequence_classes";
constexpr std::int32_t ignored = -1;

} // namespace

void plan_sequence_rows_arrays(pmm::StepPlan& step, std::int64_t num_rows, std::int64_t num_accumulated) {
  step.add_array(groups_label, num_rows * static_cast<std::int64_t>(sizeof(std::int8_t)));
  for (std::int64_t k = 0; k < num_accumulated; ++k)
    step.add_array(classes_label, num_rows * static_cast<std::int64_t>(sizeof(std::int32_t)));
}

template<class T>
SequenceRows<T>::SequenceRows(Transformer<T>& network, pmm::RowLoss<T>& loss, tokens::TokenFile& file,
                              std::int64_t num_accumulated, Goldfish const& goldfish)
    : network_(network),
      loss_(loss),
      file_(file),
      tokens_(network.tokens()),
      goldfish_(goldfish),
      window_(static_cast<std::size_t>(tokens_.whole() + 1 + goldfish.history)),
      whole_ids_(static_cast<std::size_t>(tokens_.whole())),
      whole_classes_(whole_ids_.size()) {
  if (auto const num_tokens = file.vocabulary().size(); num_tokens > network.settings().vocabulary)
    runtime::throw_user("'{}' has tokens up to {}, beyond the model's vocabulary of {}", file.name(),
                        num_tokens - 1, network.settings().vocabulary);
  auto const num_rows = static_cast<std::size_t>(network.sequences().size() * tokens_.length);
  if (network.settings().masks_documents) {
    auto const& bpe = file.facts().bpe;
    if (!bpe || !bpe->end_token)
      runtime::throw_user(
          "--document-mask: '{}' has no end token between documents; tokenize with a tokenizer that has one",
          file.name());
    end_token_ = static_cast<std::int32_t>(*bpe->end_token);
    positions_.resize(num_rows * static_cast<std::size_t>(tokens_.num_parts));
  }
  ids_.resize(num_rows);
  classes_.resize(num_rows, ignored);
  groups_.resize(num_rows, std::int8_t{pmm::loss_row_group});
  device_groups_ = to_vector<std::int8_t>(groups_label, groups_);
  for (std::int64_t k = 0; k < num_accumulated; ++k)
    device_classes_.push_back(to_vector<std::int32_t>(classes_label, classes_));
}

/// Copies this rank's part of the sequence to rows of sequence `s`, and lists the positions of all its tokens.
template<class T>
void SequenceRows<T>::keep_own(std::int64_t s) {
  auto const first = static_cast<std::size_t>(s) * whole_ids_.size();
  for (std::size_t i = 0; !positions_.empty() && i < whole_ids_.size(); ++i)
    positions_[first + i] = i == 0 || whole_ids_[i - 1] == end_token_ ? 0 : positions_[first + i - 1] + 1;
  for (std::int64_t t = 0; t < tokens_.length; ++t) {
    auto const row = static_cast<std::size_t>(s * tokens_.length + t);
    auto const place = static_cast<std::size_t>(tokens_.place_of(t));
    ids_[row] = whole_ids_[place];
    classes_[row] = whole_classes_[place];
  }
}

template<class T>
void SequenceRows<T>::read(std::int64_t s, tokens::Part part, std::int64_t begin) {
  auto const num_before =
      part == tokens::Part::train && goldfish_.is_on() ? std::min(goldfish_.history, begin) : 0;
  auto const num_read = std::min(sequence() + 1, file_.num_tokens(part) - begin);
  auto const num_predicted = num_read - 1;
  auto const all = std::span(window_).first(static_cast<std::size_t>(num_before + num_read));
  file_.read(part, begin - num_before, all);
  auto const window = all.subspan(static_cast<std::size_t>(num_before));
  clear();
  std::ranges::copy(window.first(static_cast<std::size_t>(num_predicted)), whole_ids_.begin());
  std::ranges::copy(window.subspan(1), whole_classes_.begin());
  if (part == tokens::Part::train && goldfish_.is_on())
    for (std::int64_t t = 0; t < num_predicted; ++t)
      if (auto const first = num_before + t + 1 - goldfish_.history; first >= 0)
        if (goldfish_.leaves_out(
                all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(goldfish_.history))))
          whole_classes_[static_cast<std::size_t>(t)] = ignored;
  keep_own(s);
}

template<class T>
void SequenceRows<T>::clear() {
  std::ranges::fill(whole_ids_, 0);
  std::ranges::fill(whole_classes_, ignored);
}

template<class T>
void SequenceRows<T>::clear(std::int64_t s) {
  clear();
  keep_own(s);
}

template<class T>
void SequenceRows<T>::bind(std::int64_t k) {
  network_.set_tokens(ids_, positions_);
  auto const& classes = device_classes_.at(static_cast<std::size_t>(k));
  Kokkos::deep_copy(
      classes,
      Kokkos::View<std::int32_t const*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
          classes_.data(), classes_.size()));
  loss_.set_batch_targets({device_groups_, classes, {}, {}}, {groups_, classes_});
}

template class SequenceRows<float>;
template class SequenceRows<double>;

} // namespace orthant::models
