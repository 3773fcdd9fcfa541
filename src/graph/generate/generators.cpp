// SPDX-License-Identifier: Apache-2.0
#include "graph/generate/generators.hpp"

#include "graph/generate/computed_streams.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"
#include "runtime/suggestion.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>

namespace orthant::graph {

using runtime::checked_range;
using runtime::throw_user;

namespace {

using Values = std::map<std::string, std::string, std::less<>>;

struct Description {
  std::string kind;
  Values values;
};

Description parse(std::string_view text) {
  Description result;
  auto const colon = text.find(':');
  result.kind = text.substr(0, colon);
  auto rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  while (!rest.empty()) {
    auto const comma = rest.find(',');
    auto const pair = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    auto const equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size())
      throw_user("data set {}: \"{}\" is not key=value", text, pair);
    auto const key = std::string(pair.substr(0, equals));
    if (!result.values.emplace(key, pair.substr(equals + 1)).second)
      throw_user("data set {}: {} is given twice", text, key);
  }
  return result;
}

double to_number(std::string const& key, std::string const& value) {
  char* end = nullptr;
  auto const number = std::strtod(value.c_str(), &end);
  if (end != value.c_str() + value.size() || !std::isfinite(number))
    throw_user("data set: {}={} is not a number", key, value);
  return number;
}

/// Integers may be written as 1e6.
std::int64_t to_count(std::string const& key, std::string const& value) {
  auto const* const end = value.data() + value.size();
  auto count = std::int64_t{0};
  auto const digits = std::from_chars(value.data(), end, count);
  if (digits.ec == std::errc() && digits.ptr == end && count >= 0) return count;
  auto const number = to_number(key, value);
  constexpr auto all_whole = 0x1p53; // above it a double cannot represent all integers
  if (number < 0 || number != std::floor(number) || number > all_whole)
    throw_user("data set: {}={} is not a whole number from 0 to {}", key, value,
               std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(number);
}

using Setters =
    std::map<std::string, std::function<void(std::string const& key, std::string const& value)>, std::less<>>;

void apply_values(Description const& description, Setters const& setters) {
  std::vector<std::string> known;
  for (auto const& [key, set] : setters)
    known.push_back(key);
  for (auto const& [key, value] : description.values) {
    auto const setter = setters.find(key);
    if (setter == setters.end())
      throw_user("data set {}: unknown key '{}'{}", description.kind, key, runtime::did_you_mean(key, known));
    setter->second(key, value);
  }
}

} // namespace

std::unique_ptr<GraphSource> open_dataset(runtime::Communicator const& comm, std::string_view text,
                                          std::uint64_t seed) {
  auto const description = parse(text);
  auto const count_into = [](std::int64_t& target) {
    return [&target](std::string const& key, std::string const& value) { target = to_count(key, value); };
  };
  auto const number_into = [](double& target) {
    return [&target](std::string const& key, std::string const& value) { target = to_number(key, value); };
  };
  if (description.kind == "karate") {
    std::int64_t num_classes = 2;
    Setters setters;
    setters.emplace("classes", count_into(num_classes));
    apply_values(description, setters);
    return karate_club(comm, num_classes);
  }
  std::vector<std::string> const known{"karate", "sbm", "rmat", "grid2d", "ring"};
  if (std::ranges::find(known, description.kind) == known.end())
    throw_user("unknown data set \"{}\"{}; known: karate, sbm, rmat, grid2d, ring", description.kind,
               runtime::did_you_mean(description.kind, known));

  GeneratorOptions options;
  options.kind = parse_generator_kind(description.kind);
  options.num_vertices = 2000;
  options.num_features = 32;
  options.num_classes = 8;
  options.seed = seed;
  auto seed_given = static_cast<std::int64_t>(seed);
  std::int64_t directed = 0;
  Setters setters{{"vertices", count_into(options.num_vertices)},
                  {"edges", count_into(options.num_edges)},
                  {"features", count_into(options.num_features)},
                  {"classes", count_into(options.num_classes)},
                  {"seed", count_into(seed_given)},
                  {"train", number_into(options.split_fractions[0])},
                  {"valid", number_into(options.split_fractions[1])},
                  {"test", number_into(options.split_fractions[2])},
                  {"separation", number_into(options.separation)}};
  bool const is_drawn = options.kind == GeneratorKind::rmat || options.kind == GeneratorKind::sbm;
  if (is_drawn) setters.emplace("directed", count_into(directed));
  if (options.kind == GeneratorKind::sbm) setters.emplace("homophily", number_into(options.homophily));
  if (options.kind == GeneratorKind::rmat)
    for (std::size_t i = 0; i < 3; ++i)
      setters.emplace(std::string(1, "abc"[i]), number_into(options.corners[i]));
  apply_values(description, setters);
  options.seed = static_cast<std::uint64_t>(seed_given);
  options.is_directed = checked_range(directed, 0, 1, "data set: directed") == 1;
  return generate_graph(comm, options);
}

using runtime::Purpose;
using runtime::RandomStream;

namespace {

constexpr std::int64_t default_edges_per_vertex = 8;
constexpr std::int64_t default_blocks = 8;
constexpr double largest_separation = 1e6;                 // in units of the noise
constexpr std::int64_t most_means = std::int64_t{1} << 30; // features times classes: 4 GiB per rank
constexpr std::array<std::pair<std::string_view, GeneratorKind>, 4> kinds{{{"rmat", GeneratorKind::rmat},
                                                                           {"sbm", GeneratorKind::sbm},
                                                                           {"grid2d", GeneratorKind::grid2d},
                                                                           {"ring", GeneratorKind::ring}}};

std::string_view name_of(GeneratorKind kind) {
  return kinds[static_cast<std::size_t>(kind)].first;
}

/// Sets the default number of edges. Throws UserError for impossible options.
GeneratorOptions checked(GeneratorOptions options) {
  auto const n = options.num_vertices;
  auto const kind = options.kind;
  if (n < 2) throw_user("a graph of {} vertices cannot be generated; at least 2 are wanted", n);
  std::ignore = checked_range(n, 2, most_vertices, "the number of vertices");
  std::ignore = checked_range(options.num_edges, 0, most_edges, "the number of edges");
  std::ignore = checked_range(options.num_features, 0, most_generated_columns, "the number of features");
  std::ignore = checked_range(options.num_classes, 0, most_generated_columns, "the number of classes");
  std::ignore = checked_range(options.num_features * std::max<std::int64_t>(options.num_classes, 1), 0,
                              most_means, "the number of features times the number of classes");
  if (options.num_classes > n) throw_user("{} classes among {} vertices: too many", options.num_classes, n);
  auto const all_pairs = n > (std::int64_t{1} << 31) ? std::int64_t{1} << 61 : n * (n - 1) / 2;
  if (options.num_edges == 0)
    options.num_edges = kind == GeneratorKind::grid2d ? detail::count_grid2d_edges(n)
                        : kind == GeneratorKind::ring ? std::min(n, all_pairs)
                                                      : default_edges_per_vertex * n;
  if (kind == GeneratorKind::ring && options.num_edges > all_pairs)
    throw_user("a ring of {} vertices has at most {} edges, not {}", n, all_pairs, options.num_edges);
  auto const full_grid = detail::count_grid2d_edges(n);
  if (kind == GeneratorKind::grid2d && (options.num_edges < n - 1 || options.num_edges > full_grid))
    throw_user("a connected grid of {} vertices has {} to {} edges, not {}", n, n - 1, full_grid,
               options.num_edges);
  if (!(std::fabs(options.separation) <= largest_separation))
    throw_user("separation {} is not between {} and {}", options.separation, -largest_separation,
               largest_separation);
  auto const& [a, b, c] = options.corners;
  if (!(a >= 0 && b >= 0 && c >= 0 && a + b + c <= 1))
    throw_user("rmat's corners {}, {}, {} are not probabilities that sum to at most 1", a, b, c);
  if (!(options.homophily >= 0 && options.homophily <= 1))
    throw_user("homophily {} is not between 0 and 1", options.homophily);
  return options;
}

using ClassOf = std::function<std::int64_t(std::int64_t vertex)>;

LabelPart computed_labels(GeneratorOptions const& options, ClassOf const& class_of, Range rows) {
  auto const fill = [class_of](LabelBatch& batch) {
    batch.classes.resize(static_cast<std::size_t>(batch.rows.size()));
    for (auto vertex = batch.rows.begin; vertex < batch.rows.end; ++vertex)
      batch.classes[static_cast<std::size_t>(vertex - batch.rows.begin)] = class_of(vertex);
  };
  return {LabelKind::single, options.num_classes, [=](std::int64_t batch_rows) {
            return std::make_unique<ComputedRows<LabelBatch>>(rows, batch_rows, fill);
          }};
}

FeaturePart informative_features(GeneratorOptions const& options, ClassOf const& class_of, Range rows) {
  auto const num_features = options.num_features;
  // In each feature, two means differ by a normal number of variance 2 scale^2: |m - m'| = scale sqrt(2 D).
  auto const scale = options.separation / std::sqrt(2.0 * static_cast<double>(num_features));
  auto means = std::make_shared<std::vector<float>>();
  RandomStream const mean_stream(options.seed, Purpose::generator_features, 1);
  for (std::int64_t c = 0; c < options.num_classes; ++c)
    for (std::int64_t feature = 0; feature < num_features; ++feature)
      means->push_back(
          static_cast<float>(scale * mean_stream.normal<double>(static_cast<std::uint64_t>(c),
                                                                static_cast<std::uint64_t>(feature))));
  auto const fill = [=,
                     noise = RandomStream(options.seed, Purpose::generator_features)](FeatureBatch& batch) {
    batch.dense.resize(static_cast<std::size_t>(batch.rows.size() * num_features));
    auto* out = batch.dense.data();
    for (auto vertex = batch.rows.begin; vertex < batch.rows.end; ++vertex) {
      auto const* const mean = means->empty() ? nullptr : means->data() + class_of(vertex) * num_features;
      for (std::int64_t feature = 0; feature < num_features; feature += 2) {
        auto const block =
            noise.block(static_cast<std::uint64_t>(vertex), static_cast<std::uint64_t>(feature) / 2);
        auto const pair = runtime::normal_pair(block);
        *out++ = static_cast<float>(pair.first) + (mean != nullptr ? mean[feature] : 0.0f);
        if (feature + 1 < num_features)
          *out++ = static_cast<float>(pair.second) + (mean != nullptr ? mean[feature + 1] : 0.0f);
      }
    }
  };
  return {FeatureKind::dense, num_features, [=](std::int64_t batch_rows) {
            return std::make_unique<ComputedRows<FeatureBatch>>(rows, batch_rows, fill);
          }};
}

ClassOf classes_of(GeneratorOptions const& options, detail::Blocks const& blocks) {
  if (options.kind == GeneratorKind::sbm)
    return [blocks](std::int64_t vertex) { return blocks.block_of(vertex); };
  auto const num_classes = options.num_classes;
  if (options.kind == GeneratorKind::rmat)
    return
        [num_classes, stream = RandomStream(options.seed, Purpose::generator_labels)](std::int64_t vertex) {
          return static_cast<std::int64_t>(
              stream.integer(static_cast<std::uint64_t>(num_classes), static_cast<std::uint64_t>(vertex)));
        };
  // Stripes are balanced parts of the ids.
  return [num_classes, n = options.num_vertices](std::int64_t vertex) {
    auto const guess = static_cast<std::int64_t>(static_cast<double>(vertex) / static_cast<double>(n) *
                                                 static_cast<double>(num_classes));
    for (auto stripe = std::max<std::int64_t>(guess - 1, 0);; ++stripe)
      if (runtime::balanced_range(n, num_classes, stripe).contains(vertex)) return stripe;
  };
}

EdgePart edges_of(GeneratorOptions const& options, detail::Blocks const& blocks, Share share) {
  switch (options.kind) {
  case GeneratorKind::rmat:
    return detail::rmat_edges(options, share);
  case GeneratorKind::sbm:
    return detail::sbm_edges(options, blocks, share);
  case GeneratorKind::grid2d:
    return detail::grid2d_edges(options, share);
  case GeneratorKind::ring:
    return detail::ring_edges(options, share);
  }
  ORTHANT_REQUIRE(false, "no such kind of graph");
  return {};
}

} // namespace

EdgePart detail::computed_edges(Range indices, std::int64_t most_per_index,
                                std::function<void(Range, std::vector<Edge>&)> append) {
  EdgePart part;
  part.promised_by = "its definition";
  part.open = [=](std::int64_t batch_size) {
    auto const step = std::max<std::int64_t>(batch_size / most_per_index, 1);
    return std::make_unique<ComputedEdges>(indices, step, append);
  };
  return part;
}

GeneratorKind parse_generator_kind(std::string_view word) {
  for (auto const& [name, kind] : kinds)
    if (name == word) return kind;
  throw_user("unknown kind of graph \"{}\"; known: rmat, sbm, grid2d, ring", word);
}

std::unique_ptr<GraphSource> generate_graph(runtime::Communicator const& comm,
                                            GeneratorOptions const& given) {
  auto const options = checked(given);
  Share const share{comm.rank(), comm.size()};
  auto const num_blocks =
      std::min(options.num_classes > 0 ? options.num_classes : default_blocks, options.num_vertices);
  detail::Blocks const blocks(options.num_vertices, num_blocks, options.seed);
  auto const class_of = classes_of(options, blocks);
  auto const rows = runtime::balanced_range(options.num_vertices, share.count, share.index);

  SourceParts parts;
  parts.format = std::string(name_of(options.kind));
  parts.name = parts.format;
  parts.num_vertices = options.num_vertices;
  parts.is_directed = options.is_directed;
  parts.edges = edges_of(options, blocks, share);
  parts.edges.num_edges = options.num_edges;
  if (options.num_features > 0) parts.features = informative_features(options, class_of, rows);
  if (options.num_classes > 0) {
    parts.labels = computed_labels(options, class_of, rows);
    parts.split = random_split(options.num_vertices, options.split_fractions, options.seed, share);
  }
  return assemble_source(std::move(parts));
}

} // namespace orthant::graph
