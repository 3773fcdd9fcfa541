// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/network_parameters.hpp"

#include "runtime/arrays/views.hpp"
#include "runtime/numbers/random.hpp"

#include <cmath>

namespace orthant::models {
namespace {

using runtime::part_of;

/// Layer number of the input projection, by which its weights are drawn; layers count from 0.
constexpr std::int64_t projection_index = -1;
/// Glorot & Bengio (2010): uniform in +- sqrt(6 / (in + out)), drawn by global row and column. `number`: index of the weight
/// within its layer. `fan`: rows plus columns of each matrix in it; 0: of the weight itself.
template<class T>
void draw_weight(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& weight, std::uint64_t seed,
                 std::uint32_t layer, std::uint64_t number, std::int64_t fan = 0) {
  auto const extents = weight.extents();
  auto const limit = std::sqrt(6.0 / static_cast<double>(fan > 0 ? fan : extents.rows + extents.columns));
  runtime::RandomStream const stream(seed, runtime::Purpose::weights, number, layer);
  pmm::fill(
      exec, weight, KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
        auto const u = stream.template uniform<double>(static_cast<std::uint64_t>(row),
                                                       static_cast<std::uint64_t>(column));
        return static_cast<T>(limit * (2 * u - 1));
      });
}

/// Parameters in one array begin at multiples of this many elements: kernels load 16 bytes at once.
constexpr std::int64_t numbers_apart = 16;

/// Those of scale, shift, running mean and running variance that the norm has.
std::vector<ParameterRole> roles_of(Norm norm) {
  using enum ParameterRole;
  if (norm == Norm::batch) return {norm_scale, norm_shift, statistic, statistic};
  if (norm == Norm::layer) return {norm_scale, norm_shift};
  return {norm_scale};
}

/// Settings of one layer. It has no bias with identity maps (arXiv 2007.02133, equation 5), or if types of vertices have biases.
NetworkSettings settings_of(NetworkLayerPlan const& layer, NetworkSettings settings) {
  if (layer.map_share || (layer.relations && layer.relations->has_own_biases())) settings.has_bias = false;
  return settings;
}

/// W, or all weights of relations.
pmm::Placement const& first_weight(NetworkLayerPlan const& layer) {
  return layer.relations ? layer.relations->weight() : layer.weight;
}

/// Rows plus columns of each matrix in that weight.
std::int64_t fan_of(NetworkLayerPlan const& layer) {
  if (!layer.relations) return layer.weight.extents.rows + layer.weight.extents.columns / layer.num_weights();
  auto const& weights = layer.relations->weights;
  return (weights.in + weights.out) / std::max<std::int64_t>(1, weights.num_blocks);
}

} // namespace

std::vector<PlannedParameter> parameters_of(NetworkPlan const& plan, NetworkSettings const& settings) {
  std::vector<PlannedParameter> all;
  auto const add_to = [&](bool has_bias, pmm::Placement const& weight, pmm::Placement const& output,
                          pmm::Placement const* self_weight) {
    all.push_back({ParameterRole::weight, weight});
    if (self_weight != nullptr) all.push_back({ParameterRole::weight, *self_weight});
    if (has_bias) all.push_back({ParameterRole::bias, output});
  };
  auto const add = [&](pmm::Placement const& weight, pmm::Placement const& output) {
    add_to(settings.has_bias, weight, output, nullptr);
  };
  if (plan.projection) add(plan.projection->weight, plan.projection->output);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (plan.layers[l].transforms())
      add_to(settings_of(plan.layers[l], settings).has_bias, first_weight(plan.layers[l]),
             plan.layers[l].output, plan.layers[l].has_self_weight ? &plan.layers[l].weight : nullptr);
    if (auto const& relations = plan.layers[l].relations)
      for (std::size_t i = 1; i < num_relation_parts; ++i) // all but the weight
        if (relations->parts[i].extents.rows > 0) all.push_back({relation_roles[i], relations->parts[i]});
    if (is_normalised(plan, settings, l))
      for (auto const role : roles_of(settings.norm))
        all.push_back({role, plan.layers[l].output});
    if (plan.layers[l].has_self_scale) all.push_back({ParameterRole::scalar, {{{}, {}}, {1, 1}}});
    if (auto const& attention = plan.layers[l].attention)
      for (auto const& extents : {pmm::Extents{attention->num_heads, attention->num_vector()},
                                  attention->edge_weight(), attention->edge_vectors()})
        if (extents.rows > 0) all.push_back({ParameterRole::weight, {{{}, {}}, extents}});
    if (auto const& second = plan.layers[l].second) add(second->weight, second->output);
    if (auto const& map = plan.layers[l].residual_map) add_to(false, map->weight, map->output, nullptr);
  }
  if (plan.head) add(plan.head->weight, plan.head->output);
  if (plan.jump)
    for (auto const& map : plan.jump->maps)
      add_to(false, map.weight, map.output, nullptr);
  if (settings.decoder_width > 0)
    for (auto const& extents :
         {pmm::Extents{settings.embedding_width, settings.decoder_width}, {settings.decoder_width, 1}})
      add({{{}, {}}, extents}, {{{}, {}}, extents});
  if (plan.layers.front().owners) {
    std::int64_t place = 0;
    for (auto& parameter : all) {
      parameter.place = place;
      place += (parameter.num_numbers() + numbers_apart - 1) / numbers_apart * numbers_apart;
    }
  }
  if (settings.trains_features) all.push_back({ParameterRole::embedding, plan.stored_features()});
  return all;
}

std::int64_t length_of_all(std::vector<PlannedParameter> const& parameters) {
  std::int64_t length = 0;
  for (auto const& parameter : parameters)
    if (parameter.place) length = *parameter.place + parameter.num_numbers();
  return length;
}

std::vector<std::int64_t> lengths_of(pmm::StepPlan const& step,
                                     std::vector<PlannedParameter> const& parameters) {
  pmm::FlatCut const cut(step.shape(), step.coordinates(), length_of_all(parameters));
  std::vector<std::int64_t> lengths;
  for (auto const& parameter : parameters)
    lengths.push_back(parameter.place ? cut.own_part(*parameter.place, parameter.num_numbers()).size()
                                      : length_of(parameter.role, step.block(parameter.placement)));
  return lengths;
}

UpdatedLengths updated_lengths_of(pmm::StepPlan const& step,
                                  std::vector<PlannedParameter> const& parameters) {
  auto const lengths = lengths_of(step, parameters);
  pmm::FlatCut const cut(step.shape(), step.coordinates(), length_of_all(parameters));
  UpdatedLengths updated;
  auto& trained = updated.trained;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto const& [role, placement, place] = parameters[p];
    if (is_preconditioned(role)) {
      trained.matrices.push_back(tiled_matrix(step, trained.lengths.size(), placement));
      if (place) trained.matrices.back().set_piece(cut.own_part(*place, parameters[p].num_numbers()));
    }
    (role == ParameterRole::statistic ? updated.statistics : trained.lengths).push_back(lengths[p]);
    if (role != ParameterRole::statistic)
      updated.normed.push_back(place ? lengths[p] : normed_length_of(step, role, placement));
  }
  return updated;
}

void plan_parameter_arrays(pmm::StepPlan& step, std::vector<PlannedParameter> const& parameters) {
  pmm::plan_flat_values(step, length_of_all(parameters), "orthant::models::parameters");
  pmm::plan_flat_sums(step, length_of_all(parameters), "orthant::models::parameter_gradients");
  for (auto const& [role, placement, place] : parameters) {
    if (place) continue;
    auto const add_both = [&, columns = placement.layout.columns,
                           length = placement.extents.columns](std::string const& label) {
      plan_vector(step, columns, length, label);
      plan_vector(step, columns, length, label + "_gradient");
    };
    if (role == ParameterRole::embedding) {
      plan_matrix(step, placement, "orthant::models::feature_gradient");
    } else if (!is_vector(role)) {
      plan_matrix(step, placement, "orthant::models::weight");
      plan_matrix(step, placement, "orthant::models::weight_gradient");
    } else {
      add_both(role == ParameterRole::bias         ? "orthant::models::bias"
               : role == ParameterRole::norm_scale ? "orthant::models::norm_scale"
               : role == ParameterRole::norm_shift ? "orthant::models::norm_shift"
               : role == ParameterRole::statistic  ? "orthant::models::norm_statistic"
                                                   : "orthant::models::epsilon");
    }
  }
}

template<class T>
NetworkParameters<T>::NetworkParameters(pmm::ProcessGrid const& grid, NetworkPlan const& plan,
                                        NetworkSettings const& settings)
    : grid_(grid),
      planned_(parameters_of(plan, settings)),
      values_(grid, length_of_all(planned_), "orthant::models::parameters"),
      gradients_(grid, length_of_all(planned_), "orthant::models::parameter_gradients") {
  if (plan.projection) projection_ = make("input", projection_index, settings);
  std::size_t last_dense = 0;
  auto without_bias = settings;
  without_bias.has_bias = false;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const index = plan.layers[l].index;
    if (!plan.layers[l].transforms()) {
      // A propagation has no parameters. If it adds a bias, this is the bias of the dense layer before it.
      layers_.push_back(plan.layers[l].adds_bias ? layers_[last_dense] : NetworkLayerParameters<T>());
      continue;
    }
    last_dense = l;
    auto const& attention = plan.layers[l].attention;
    layers_.push_back(make("layer" + std::to_string(l), index, settings_of(plan.layers[l], settings), 0,
                           plan.layers[l].has_self_weight, fan_of(plan.layers[l])));
    if (auto const& relations = plan.layers[l].relations)
      add_relations(index, *relations, settings.seed, layers_.back());
    if (is_normalised(plan, settings, l)) add_norm(index, settings.norm, layers_.back());
    if (plan.layers[l].has_self_scale) add_epsilon(index, layers_.back());
    if (attention) add_attention(index, *attention, settings.seed, layers_.back());
    if (plan.layers[l].second) seconds_[l] = make(fmt::format("layer{}.second", l), index, settings, 1);
    if (plan.layers[l].residual_map)
      residuals_[l] = make(fmt::format("layer{}.residual", l), index, without_bias, 3);
  }
  auto const num_layers = static_cast<std::int64_t>(plan.layers.size());
  if (plan.head) head_ = make("head", num_layers, settings);
  if (plan.jump && !plan.jump->maps.empty())
    for (auto const l : plan.jump->layers)
      jumps_[l] = make(fmt::format("layer{}.jump", l), num_layers, without_bias, l + 1);
  if (settings.decoder_width == 0) return;
  decoder_ = make("decoder", num_layers + 1, settings);
  decoder_second_ = make("decoder.second", num_layers + 1, settings, 1);
}

template<class T>
DecoderParameters<T> NetworkParameters<T>::decoder() const {
  auto const layer = [](NetworkLayerParameters<T> const& from) {
    return typename DecoderParameters<T>::Layer{from.weight.storage(), from.weight_gradient.storage(),
                                                from.bias.local(), from.bias_gradient.local()};
  };
  return {layer(decoder_), layer(decoder_second_)};
}

template<class T>
Parameter<T> NetworkParameters<T>::add(std::string const& name, std::int64_t layer,
                                       std::string const& label) {
  auto const& planned = planned_[list_.size()];
  auto const& [layout, extents, own_rows, own_columns, own_piece] = planned.placement;
  Parameter<T> whole;
  whole.name = name;
  whole.role = planned.role;
  whole.layer = layer;
  if (planned.place) {
    list_.push_back(place_in_array(whole, planned));
    return whole;
  }
  if (planned.is_vector()) {
    whole.vector = pmm::DistVector<T>(grid_, layout.columns, extents.columns, label);
    whole.vector_gradient = pmm::DistVector<T>(grid_, layout.columns, extents.columns, label + "_gradient");
  } else {
    whole.matrix = pmm::DistMatrix<T>(grid_, planned.placement, label);
    whole.matrix_gradient = pmm::DistMatrix<T>(grid_, planned.placement, label + "_gradient");
  }
  list_.push_back(whole);
  return whole;
}

template<class T>
Parameter<T> NetworkParameters<T>::place_in_array(Parameter<T>& whole, PlannedParameter const& planned) {
  auto const place = planned.place.value();
  auto const count = planned.num_numbers();
  pmm::FlatCut const cut(grid_.shape(), grid_.coordinates(), length_of_all(planned_));
  auto const own = cut.own_part(place, count);
  auto const place_in_piece = own.size() == 0 ? 0 : place + own.begin - cut.piece.begin;
  auto const values = part_of(values_.whole(), place, count);
  auto const addends = part_of(gradients_.whole(), place, count);
  auto const own_values = part_of(values_.piece(), place_in_piece, own.size());
  auto const own_gradient = part_of(gradients_.piece(), place_in_piece, own.size());
  auto piece = whole;
  if (planned.is_vector()) {
    auto const length = planned.placement.extents.columns;
    whole.vector = pmm::DistVector<T>(grid_, length, values);
    whole.vector_gradient = pmm::DistVector<T>(grid_, length, addends);
    piece.vector = pmm::DistVector<T>(grid_, length, own_values, own);
    piece.vector_gradient = pmm::DistVector<T>(grid_, length, own_gradient, own);
  } else {
    auto placement = planned.placement;
    whole.matrix = pmm::DistMatrix<T>(grid_, placement, values);
    placement.layout.storage = pmm::Storage::partial;
    whole.matrix_gradient = pmm::DistMatrix<T>(grid_, placement, addends);
    placement.layout.storage = pmm::Storage::flat_sharded;
    placement.own_piece = own;
    piece.matrix = pmm::DistMatrix<T>(grid_, placement, own_values);
    piece.matrix_gradient = pmm::DistMatrix<T>(grid_, placement, own_gradient);
  }
  return piece;
}

template<class T>
NetworkLayerParameters<T> NetworkParameters<T>::make(std::string const& name, std::int64_t index,
                                                     NetworkSettings const& settings, std::uint64_t number,
                                                     bool has_self_weight, std::int64_t fan) {
  NetworkLayerParameters<T> made;
  auto const weight = add(name + ".weight", index, "orthant::models::weight");
  made.weight = weight.matrix;
  made.weight_gradient = weight.matrix_gradient;
  auto const layer = static_cast<std::uint32_t>(index);
  draw_weight(runtime::DefaultExec(), made.weight, settings.seed, layer, number, fan);
  if (has_self_weight) {
    auto const own = add(name + ".self_weight", index, "orthant::models::weight");
    made.self_weight = own.matrix;
    made.self_weight_gradient = own.matrix_gradient;
    draw_weight(runtime::DefaultExec(), made.self_weight, settings.seed, layer, 1);
  }
  if (settings.has_bias) {
    auto const bias = add(name + ".bias", index, "orthant::models::bias");
    made.bias = bias.vector;
    made.bias_gradient = bias.vector_gradient;
  }
  return made;
}

template<class T>
void NetworkParameters<T>::add_norm(std::int64_t index, Norm kind, NetworkLayerParameters<T>& layer) {
  auto const name = "layer" + std::to_string(index) + ".norm";
  auto const scale = add(name, index, "orthant::models::norm_scale");
  layer.norm_scale = scale.vector;
  layer.norm_scale_gradient = scale.vector_gradient;
  Kokkos::deep_copy(layer.norm_scale.local(), T{1});
  if (!is_centered(kind)) return;
  CenteredNormParameters<T> centered;
  auto const shift = add(name + "_shift", index, "orthant::models::norm_shift");
  centered.shift = shift.vector;
  centered.shift_gradient = shift.vector_gradient;
  if (kind == Norm::batch) {
    auto const mean = add(name + "_mean", index, "orthant::models::norm_statistic");
    centered.mean = mean.vector;
    centered.mean_of_batch = mean.vector_gradient;
    auto const variance = add(name + "_variance", index, "orthant::models::norm_statistic");
    centered.variance = variance.vector;
    centered.variance_of_batch = variance.vector_gradient;
    Kokkos::deep_copy(centered.variance.local(), T{1});
  }
  layer.centered = std::move(centered);
}

/// Draws a_h of each head, or each half of it, as a separate weight. Biases of attention by dot products start at 0.
template<class T>
void NetworkParameters<T>::add_attention(std::int64_t index, AttentionPlan const& attention,
                                         std::uint64_t seed, NetworkLayerParameters<T>& layer) {
  auto const vectors = add("layer" + std::to_string(index) + ".attention", index, "orthant::models::weight");
  typename NetworkLayerParameters<T>::Attention made{vectors.matrix, vectors.matrix_gradient, {}, {}, {}, {}};
  auto const add_more = [&](char const* name, std::uint64_t number, auto& value, auto& gradient) {
    auto const parameter = add(fmt::format("layer{}.{}", index, name), index, "orthant::models::weight");
    value = parameter.matrix;
    gradient = parameter.matrix_gradient;
    draw_weight(runtime::DefaultExec(), value, seed, static_cast<std::uint32_t>(index), number);
  };
  if (attention.num_edge_features > 0)
    add_more("edge_weight", 6, made.edge_weight, made.edge_weight_gradient);
  if (attention.edge_vectors().rows > 0)
    add_more("edge_attention", 7, made.edge_vectors, made.edge_vectors_gradient);
  layer.attention = std::move(made);
  if (attention.has_dots()) return;
  draw_weight(runtime::DefaultExec(), vectors.matrix, seed, static_cast<std::uint32_t>(index), 2,
              vectors.matrix.extents().rows +
                  vectors.matrix.extents().columns / (attention.is_dynamic() ? 1 : 2));
}

template<class T>
void NetworkParameters<T>::add_relations(std::int64_t index, RelationPlan const& relations,
                                         std::uint64_t seed, NetworkLayerParameters<T>& layer) {
  typename NetworkLayerParameters<T>::Relations parts;
  parts[0] = {layer.weight, layer.weight_gradient};
  for (std::size_t i = 1; i < num_relation_parts; ++i) {
    if (relations.parts[i].extents.rows == 0) continue;
    auto const made =
        add(fmt::format("layer{}.{}", index, relation_names[i]), index, "orthant::models::weight");
    parts[i] = {made.matrix, made.matrix_gradient};
    if (made.role != ParameterRole::weight) continue;
    constexpr ByRelationPart<std::uint64_t> numbers{0, 2, 1, 0, 4, 5}; // within a layer
    draw_weight(runtime::DefaultExec(), made.matrix, seed, static_cast<std::uint32_t>(index), numbers[i],
                relations.fans[i]);
  }
  layer.relations = std::move(parts);
}

template<class T>
void NetworkParameters<T>::add_epsilon(std::int64_t index, NetworkLayerParameters<T>& layer) {
  auto const epsilon = add("layer" + std::to_string(index) + ".epsilon", index, "orthant::models::epsilon");
  layer.epsilon = epsilon.vector;
  layer.epsilon_gradient = epsilon.vector_gradient;
}

template<class T>
void NetworkParameters<T>::add_features(pmm::DistMatrix<T> const& features,
                                        std::shared_ptr<std::vector<std::int64_t> const> ids,
                                        NetworkSettings const& settings) {
  features_gradient_ =
      pmm::DistMatrix<T>(features.grid(), features.placement(), "orthant::models::feature_gradient");
  list_.push_back({"features", ParameterRole::embedding, 0, features, features_gradient_, {}, {}});
  list_.back().row_numbers = std::move(ids);
  list_.back().num_fixed = settings.num_fixed_rows.value_or(0) * features.extents().columns;
}

template<class T>
std::int64_t NetworkParameters<T>::num_numbers() const {
  auto count = std::int64_t{0};
  for (auto const& parameter : list_)
    if (parameter.is_trained()) count += parameter.num_numbers();
  return count;
}

template class NetworkParameters<float>;
template class NetworkParameters<double>;

} // namespace orthant::models
