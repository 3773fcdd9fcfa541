// SPDX-License-Identifier: Apache-2.0
#include "graph/generate/computed_streams.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <cmath>

namespace orthant::graph {

using runtime::Purpose;
using runtime::RandomStream;

namespace {
Range rows_of(std::int64_t num_vertices, Share share) {
  return runtime::balanced_range(num_vertices, share.count, share.index);
}
} // namespace

FeaturePart random_features(std::int64_t num_vertices, std::int64_t num_features, std::uint64_t seed,
                            Share share) {
  RandomStream const stream(seed, Purpose::features);
  auto const fill = [stream, num_features](FeatureBatch& batch) {
    batch.dense.resize(static_cast<std::size_t>(batch.rows.size() * num_features));
    auto* out = batch.dense.data();
    for (auto vertex = batch.rows.begin; vertex < batch.rows.end; ++vertex)
      for (std::int64_t feature = 0; feature < num_features; feature += 2) {
        auto const pair = runtime::normal_pair(
            stream.block(static_cast<std::uint64_t>(vertex), static_cast<std::uint64_t>(feature) / 2));
        *out++ = static_cast<float>(pair.first);
        if (feature + 1 < num_features) *out++ = static_cast<float>(pair.second);
      }
  };
  auto const rows = rows_of(num_vertices, share);
  return {FeatureKind::dense, num_features, [=](std::int64_t batch_rows) {
            return std::make_unique<ComputedRows<FeatureBatch>>(rows, batch_rows, fill);
          }};
}

LabelPart random_labels(std::int64_t num_vertices, std::int64_t num_classes, std::uint64_t seed,
                        Share share) {
  RandomStream const stream(seed, Purpose::labels);
  auto const fill = [stream, num_classes](LabelBatch& batch) {
    batch.classes.resize(static_cast<std::size_t>(batch.rows.size()));
    auto* out = batch.classes.data();
    for (auto vertex = batch.rows.begin; vertex < batch.rows.end; ++vertex)
      *out++ = static_cast<std::int64_t>(
          stream.integer(static_cast<std::uint64_t>(num_classes), static_cast<std::uint64_t>(vertex)));
  };
  auto const rows = rows_of(num_vertices, share);
  return {LabelKind::single, num_classes, [=](std::int64_t batch_rows) {
            return std::make_unique<ComputedRows<LabelBatch>>(rows, batch_rows, fill);
          }};
}

SplitPart random_split(std::int64_t num_vertices, std::array<double, 3> fractions, std::uint64_t seed,
                       Share share) {
  auto const [train, valid, test] = fractions;
  bool const are_fractions = train >= 0 && valid >= 0 && test >= 0 && train + valid + test <= 1 + 1e-9;
  if (!are_fractions)
    runtime::throw_user(
        "the split {},{},{} is not three fractions of train, valid and test that sum to at most 1", train,
        valid, test);
  auto const cut = [&](double fraction) {
    auto const exact = fraction * static_cast<double>(num_vertices);
    return std::min(num_vertices, static_cast<std::int64_t>(std::llround(exact)));
  };
  std::array<std::int64_t, 3> const ends{cut(train), cut(train + valid), cut(train + valid + test)};
  runtime::KeyedBijection const order(static_cast<std::uint64_t>(num_vertices),
                                      RandomStream(seed, Purpose::split).key());
  auto const read = [rows = rows_of(num_vertices, share), order, ends](std::int64_t) {
    SplitShare share_of_rank;
    for (auto vertex = rows.begin; vertex < rows.end; ++vertex) {
      auto const place = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(vertex)));
      if (place < ends[0])
        share_of_rank.train.push_back(vertex);
      else if (place < ends[1])
        share_of_rank.valid.push_back(vertex);
      else if (place < ends[2])
        share_of_rank.test.push_back(vertex);
    }
    return share_of_rank;
  };
  return {"random", read};
}

} // namespace orthant::graph
