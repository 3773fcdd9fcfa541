// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/token_embedding.hpp"

#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::models {

using runtime::DefaultExec;

pmm::Placement whole_table(pmm::Placement table) {
  table.layout.storage = pmm::Storage::replicated;
  return table;
}

pmm::Placement table_addends(pmm::Placement table) {
  table.layout.storage = pmm::Storage::partial;
  return table;
}

void plan_gather_table(pmm::StepPlan& step, pmm::Placement const& table) {
  pmm::plan_read(step, table, {});
}

void plan_reduce_table(pmm::StepPlan& step, pmm::Placement const& table) {
  pmm::plan_write(step, table, {});
}

void plan_table_arrays(pmm::StepPlan& step, pmm::Placement const& table) {
  pmm::BlockRead const read(step.shape(), step.coordinates(), table);
  pmm::BlockWrite const write(step.shape(), step.coordinates(), table, {});
  pmm::WorkspacePlan work;
  work.reserve(pmm::Slot::right, read.num_gathered);
  work.reserve(pmm::Slot::result, write.num_partial);
  work.list(step);
}

template<class T>
VocabularyTable<T>::VocabularyTable(pmm::ProcessGrid const& grid, LinearParameters<T> const& parameters)
    : parameters_(parameters),
      reader_(grid, parameters.weight.placement(), pmm::Wire::native, workspace_, pmm::Slot::right),
      writer_(grid, parameters.weight.placement(), {}, workspace_) {
  auto const& table = parameters_.weight.placement();
  writer_.with_partial(DefaultExec(), parameters_.weight_gradient, [&](runtime::Matrix<T> const& addends) {
    addends_ =
        pmm::DistMatrix<T>(grid, table_addends(table), runtime::Vector<T>(addends.data(), addends.size()));
  });
  auto const whole =
      grid.size(pmm::Axis::z) == 1
          ? parameters_.weight.storage()
          : workspace_->lend(pmm::Slot::right,
                             pmm::BlockRead(grid.shape(), grid.coordinates(), table).num_gathered);
  whole_ = pmm::DistMatrix<T>(grid, whole_table(table), whole);
}

template<class T>
void VocabularyTable<T>::gather(DefaultExec const& exec) {
  reader_.start(exec, parameters_.weight);
  static_cast<void>(reader_.finish()); // the result is in the memory of whole()
}

template<class T>
void VocabularyTable<T>::reduce(DefaultExec const& exec) {
  writer_.reduce(exec, parameters_.weight_gradient);
}

template class VocabularyTable<float>;
template class VocabularyTable<double>;

namespace {

using runtime::array_bytes, runtime::DefaultExec, runtime::Matrix, runtime::Vector;

constexpr auto ids_label = "orthant::models::TokenEmbedding/ids";
constexpr auto tokens_label = "orthant::models::TokenEmbedding/of_tokens";
constexpr auto positions_label = "orthant::models::TokenEmbedding/of_positions";

template<class T>
void add_row(T const* row, std::int64_t width, T* sum) {
  for (std::int64_t j = 0; j < width; ++j)
    sum[j] += row[j];
}

/// stream := rows of this rank's part of the table; zero for tokens of other ranks.
template<class T>
struct LookUp {
  std::int32_t const* ids;
  T const* table;
  T* stream;
  std::int64_t width;
  std::int64_t first_token, num_tokens;

  [[nodiscard]] KOKKOS_FUNCTION T const* found(std::int64_t i) const {
    auto const token = ids[i] - first_token;
    return token >= 0 && token < num_tokens ? table + token * width : nullptr;
  }
  KOKKOS_FUNCTION void element(std::int64_t i, std::int64_t j) const {
    auto const* const from = found(i);
    stream[i * width + j] = from == nullptr ? T{0} : from[j];
  }
  void row(std::int64_t i) const {
    auto* const to = stream + i * width;
    if (auto const* const from = found(i); from != nullptr)
      std::copy_n(from, width, to);
    else
      std::fill_n(to, width, T{0});
  }
};

template<class T>
struct AddPositions {
  T const* positions;
  T* stream;
  std::int64_t width, sequence;
  std::int64_t const* places; // [tokens], or null

  [[nodiscard]] KOKKOS_FUNCTION T const* position(std::int64_t i) const {
    return positions + (places == nullptr ? i % sequence : places[i]) * width;
  }
  KOKKOS_FUNCTION void element(std::int64_t i, std::int64_t j) const {
    stream[i * width + j] += position(i)[j];
  }
  void row(std::int64_t i) const { add_row(position(i), width, stream + i * width); }
};

/// to[0, width) := or += sum over k in [0, count) of row(k), computed for 16 columns at a time.
template<class T, class Row>
void sum_in_columns(std::int64_t width, std::int64_t count, Row const& row, bool adds, T* to) {
  constexpr std::int64_t num_sums = 16;
  for (std::int64_t first = 0; first < width; first += num_sums) {
    auto const num_columns = std::min(num_sums, width - first);
    T sums[num_sums] = {};
    for (std::int64_t k = 0; k < count; ++k)
      add_row(row(k) + first, num_columns, sums);
    if (adds)
      add_row<T>(sums, num_columns, to + first);
    else
      std::copy_n(sums, num_columns, to + first);
  }
}

/// Row of the table's gradient := or += the sum of the gradient over the rows of its token.
template<class T>
struct SumTokenRows {
  std::int32_t const* offsets;
  std::int32_t const* rows;
  T const* gradient;
  T* table;
  std::int64_t width;
  bool adds;

  [[nodiscard]] KOKKOS_FUNCTION bool stays(std::int64_t token) const {
    return adds && offsets[token] == offsets[token + 1];
  }
  KOKKOS_FUNCTION void element(std::int64_t token, std::int64_t j) const {
    if (stays(token)) return;
    auto sum = T{0};
    for (auto k = offsets[token]; k < offsets[token + 1]; ++k)
      sum += gradient[rows[k] * width + j];
    auto& number = table[token * width + j];
    number = adds ? number + sum : sum;
  }
  void row(std::int64_t token) const {
    if (stays(token)) return;
    auto const* const of_token = rows + offsets[token];
    sum_in_columns(
        width, offsets[token + 1] - offsets[token],
        [=, *this](std::int64_t k) { return gradient + of_token[k] * width; }, adds, table + token * width);
  }
};

/// Row of the positions' gradient := the sum of the gradient over the sequences. Positions after the sequences of this pass get
/// zero.
template<class T>
struct SumPlaces {
  T const* gradient;
  T* positions;
  std::int64_t width, sequence, num_sequences;

  KOKKOS_FUNCTION void element(std::int64_t place, std::int64_t j) const {
    auto sum = T{0};
    for (std::int64_t s = 0; place < sequence && s < num_sequences; ++s)
      sum += gradient[(s * sequence + place) * width + j];
    positions[place * width + j] = sum;
  }
  void row(std::int64_t place) const {
    sum_in_columns(
        width, place < sequence ? num_sequences : 0,
        [=, *this](std::int64_t s) { return gradient + (s * sequence + place) * width; }, false,
        positions + place * width);
  }
};

template<class Number>
void copy_to_kernels(std::vector<Number> const& source, Vector<Number> const& to) {
  using Host = Kokkos::View<Number const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
  auto const part = Kokkos::subview(to, std::pair(std::size_t{0}, source.size()));
  Kokkos::deep_copy(part, Host(source.data(), source.size()));
}

bool lists_positions(TransformerPlan const& plan) {
  return plan.stage.has_embedding() && plan.lists_positions() &&
         plan.settings.positions == Positions::learned;
}

/// Bytes that the kernels read and write, if every row of the stream has a different token and no other tokens occur.
struct EmbeddingBytes {
  EmbeddingBytes(pmm::StepPlan const& step, TransformerPlan const& plan)
      : stream(step.scalar_bytes(step.block(plan.stream).num_stored)),
        positions(plan.settings.positions == Positions::learned
                      ? step.scalar_bytes(step.block(plan.positions).num_stored)
                      : 0),
        table(step.scalar_bytes(step.block(whole(plan.table)).num_stored)),
        ids(step.block(plan.stream).rows.size() * std::int64_t{sizeof(std::int32_t)}),
        offsets((step.block(plan.table).rows.size() + 1) * std::int64_t{sizeof(std::int32_t)}),
        position_offsets(lists_positions(plan)
                             ? (plan.settings.max_sequence + 1) * std::int64_t{sizeof(std::int32_t)}
                             : 0) {}
  static pmm::Placement whole(pmm::Placement table) {
    table.layout.storage = pmm::Storage::replicated;
    return table;
  }
  std::int64_t stream, positions, table, ids, offsets, position_offsets;
};

} // namespace

void plan_embedding(pmm::StepPlan& step, TransformerPlan const& plan) {
  EmbeddingBytes const bytes(step, plan);
  step.add_pass({"embedding", bytes.ids + bytes.stream, bytes.stream});
  step.add_call(runtime::Operation::all_reduce, plan.table.layout.rows, bytes.stream);
  if (bytes.positions > 0) step.add_pass({"add_positions", bytes.stream + bytes.positions, bytes.stream});
}

void plan_embedding_backward(pmm::StepPlan& step, TransformerPlan const& plan) {
  EmbeddingBytes const bytes(step, plan);
  auto const lists = bytes.offsets + bytes.ids;
  if (plan.adds_to_head_gradient()) {
    auto const rows = std::min(bytes.stream, bytes.table);
    step.add_pass({"embedding_backward", bytes.stream + lists + rows, rows});
  } else {
    step.add_pass({"embedding_backward", bytes.stream + lists, bytes.table});
  }
  auto const of_positions = bytes.position_offsets > 0 ? bytes.position_offsets + bytes.ids : 0;
  if (bytes.positions > 0)
    step.add_pass({"positions_backward", bytes.stream + of_positions, bytes.positions});
}

void plan_embedding_arrays(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (!plan.stage.has_embedding()) return;
  EmbeddingBytes const bytes(step, plan);
  step.add_array(ids_label, bytes.ids);
  step.add_array(std::string(tokens_label) + "/offsets", bytes.offsets);
  step.add_array(std::string(tokens_label) + "/rows", bytes.ids);
  if (!lists_positions(plan)) return;
  step.add_array(std::string(positions_label) + "/offsets", bytes.position_offsets);
  step.add_array(std::string(positions_label) + "/rows", bytes.ids);
}

RowLists::RowLists(std::string const& label, std::int64_t num_keys, std::int64_t num_rows)
    : offsets_(label + "/offsets", static_cast<std::size_t>(num_keys + 1)),
      rows_(label + "/rows", static_cast<std::size_t>(num_rows)) {}

void RowLists::set(std::span<std::int32_t const> key_of_row, std::int64_t first_key) {
  auto const num_keys = static_cast<std::int64_t>(offsets_.extent(0)) - 1;
  auto const is_listed = [&](std::int32_t key) { return key >= first_key && key < first_key + num_keys; };
  auto const place_of = [&](std::int32_t key) { return static_cast<std::size_t>(key - first_key); };
  // Sorts the rows by key (counting sort).
  host_offsets_.assign(offsets_.extent(0), 0);
  for (auto const key : key_of_row)
    if (is_listed(key)) ++host_offsets_[place_of(key) + 1];
  std::partial_sum(host_offsets_.begin(), host_offsets_.end(), host_offsets_.begin());
  auto next = host_offsets_;
  host_rows_.assign(key_of_row.size(), 0);
  for (std::size_t row = 0; row < key_of_row.size(); ++row)
    if (is_listed(key_of_row[row]))
      host_rows_[static_cast<std::size_t>(next[place_of(key_of_row[row])]++)] =
          static_cast<std::int32_t>(row);
  copy_to_kernels(host_offsets_, offsets_);
  copy_to_kernels(host_rows_, rows_);
}

template<class T>
TokenEmbedding<T>::TokenEmbedding(pmm::ProcessGrid const& grid, TransformerPlan const& plan)
    : grid_(grid),
      plan_(plan) {
  if (!plan.stage.has_embedding()) return;
  vocabulary_ = block_of(grid, plan.table).rows;
  auto const num_rows = block_of(grid, plan.stream).rows.size();
  ids_ = Vector<std::int32_t>(std::string(ids_label), static_cast<std::size_t>(num_rows));
  of_tokens_ = RowLists(tokens_label, vocabulary_.size(), num_rows);
  if (lists_positions(plan)) of_positions_ = RowLists(positions_label, plan.settings.max_sequence, num_rows);
}

template<class T>
void TokenEmbedding<T>::set_tokens(std::span<std::int32_t const> ids) {
  if (!plan_.stage.has_embedding()) return;
  ORTHANT_REQUIRE(ids.size() == ids_.extent(0), ids.size(), " tokens for ", ids_.extent(0), " rows");
  auto const size = plan_.settings.vocabulary;
  auto const wrong = std::find_if(ids.begin(), ids.end(), [&](auto id) { return id < 0 || id >= size; });
  ORTHANT_REQUIRE(wrong == ids.end(), "token ", *wrong, " is not in the vocabulary of ", size);
  copy_to_kernels(std::vector(ids.begin(), ids.end()), ids_);
  of_tokens_.set(ids, vocabulary_.begin);
}

template<class T>
void TokenEmbedding<T>::set_positions(std::span<std::int64_t const> positions, TokenNumbers const& to) {
  auto const tokens = plan_.tokens();
  auto const is_masked = plan_.settings.masks_documents;
  auto const num_tokens = is_masked ? plan_.sequences.size() * plan_.whole_sequence() : 0;
  ORTHANT_REQUIRE(std::ssize(positions) == num_tokens, positions.size(), " positions in documents, not ",
                  num_tokens);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    auto const is_first = static_cast<std::int64_t>(i) % tokens.whole() == 0;
    ORTHANT_REQUIRE(positions[i] == 0 || (!is_first && positions[i] == positions[i - 1] + 1), "token ", i,
                    " at position ", positions[i],
                    " of its document: it must be 0, or one more than that of the token before");
  }
  std::vector<std::int64_t> places(to.own.extent(0));
  for (std::int64_t row = 0; row < std::ssize(places); ++row)
    places[static_cast<std::size_t>(row)] = is_masked
                                                ? positions[static_cast<std::size_t>(tokens.token_of(row))]
                                                : tokens.place_of(row % tokens.length);
  copy_to_kernels(places, to.own);
  if (plan_.exchanges_heads() && is_masked)
    copy_to_kernels(std::vector(positions.begin(), positions.end()), to.attended);
  if (lists_positions(plan_)) of_positions_.set(std::vector<std::int32_t>(places.begin(), places.end()), 0);
}

template<class T>
void TokenEmbedding<T>::forward(DefaultExec const& exec, pmm::DistMatrix<T> const& table,
                                pmm::DistMatrix<T> const& positions, pmm::DistMatrix<T> const& stream,
                                Vector<std::int64_t> const& places) const {
  auto const width = stream.block().columns.size();
  auto const num_rows = stream.block().rows.size();
  auto const& numbers = stream.storage();
  auto const bytes = array_bytes(numbers);
  grid_.passes().add({"embedding", array_bytes(ids_) + bytes, bytes});
  pmm::for_each_row_or_element(exec, "orthant::models::embedding", num_rows,
                               LookUp<T>{ids_.data(), table.storage().data(), numbers.data(), width,
                                         vocabulary_.begin, vocabulary_.size()});
  runtime::all_reduce(exec, grid_.over(plan_.table.layout.rows), numbers);
  if (positions.storage().extent(0) == 0) return;
  grid_.passes().add({"add_positions", bytes + array_bytes(positions.storage()), bytes});
  pmm::for_each_row_or_element(exec, "orthant::models::add_positions", num_rows,
                               AddPositions<T>{positions.storage().data(), numbers.data(), width,
                                               plan_.sequence,
                                               places.extent(0) == 0 ? nullptr : places.data()});
}

template<class T>
void TokenEmbedding<T>::backward(DefaultExec const& exec, pmm::DistMatrix<T> const& stream_gradient,
                                 pmm::Update update, pmm::DistMatrix<T> const& table_gradient,
                                 pmm::DistMatrix<T> const& positions_gradient) const {
  auto const width = stream_gradient.block().columns.size();
  auto const& gradient = stream_gradient.storage();
  auto const& table = table_gradient.storage();
  auto const adds = update == pmm::Update::add;
  auto const lists = array_bytes(of_tokens_.offsets(), of_tokens_.rows());
  auto const rows = std::min(array_bytes(gradient), array_bytes(table));
  grid_.passes().add({"embedding_backward", array_bytes(gradient) + lists + (adds ? rows : 0),
                      adds ? rows : array_bytes(table)});
  pmm::for_each_row_or_element(exec, "orthant::models::embedding_backward", vocabulary_.size(),
                               SumTokenRows<T>{of_tokens_.offsets().data(), of_tokens_.rows().data(),
                                               gradient.data(), table.data(), width, adds});
  auto const& positions = positions_gradient.storage();
  if (positions.extent(0) == 0) return;
  auto const& of_places = of_positions_.offsets();
  grid_.passes().add({"positions_backward",
                      array_bytes(gradient) + array_bytes(of_places, of_positions_.rows()),
                      array_bytes(positions)});
  auto const run = [&](auto const& sum) {
    pmm::for_each_row_or_element(exec, "orthant::models::positions_backward",
                                 positions_gradient.block().stored_rows.size(), sum);
  };
  if (of_places.extent(0) > 0)
    run(SumTokenRows<T>{of_places.data(), of_positions_.rows().data(), gradient.data(), positions.data(),
                        width, false});
  else
    run(SumPlaces<T>{gradient.data(), positions.data(), width, plan_.sequence, plan_.sequences.size()});
}

template class TokenEmbedding<float>;
template class TokenEmbedding<double>;

} // namespace orthant::models
