// SPDX-License-Identifier: Apache-2.0
#include "models/training/jorge/jorge.hpp"

#include "pmm/gemm/local_gemm.hpp"
#include "runtime/error.hpp"

#include <memory>
#include <utility>

namespace orthant::models {
namespace {

using pmm::GemmMath;
using pmm::Panel;
using pmm::Transpose;
using runtime::DefaultExec;
using runtime::Number;
using runtime::Vector;
using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

constexpr std::int64_t num_squares = 3; // of scratch memory
constexpr std::size_t num_norms = 4;
constexpr double ridge = 1e-5; // eps

/// g *= scale;  s := mu s + g
template<class T>
struct AddToMomentum {
  T* gradients;
  T* momentum;
  Number<double> scale;
  T decay;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    gradients[i] *= static_cast<T>(scale());
    momentum[i] = decay * momentum[i] + gradients[i];
  }
};

/// m := mu m + update, and the sum of the squares of m.
template<class T>
struct AddToDirection {
  T const* update;
  T* direction;
  T decay;
  KOKKOS_FUNCTION void operator()(std::int64_t i, double& sum) const {
    direction[i] = decay * direction[i] + update[i];
    sum += static_cast<double>(direction[i]) * static_cast<double>(direction[i]);
  }
};

template<class T>
struct SumSquares {
  T const* numbers;
  KOKKOS_FUNCTION void operator()(std::int64_t i, double& sum) const {
    sum += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
  }
};

/// result := m |s| / |m|; s if m is 0.
template<class T>
struct Graft {
  T const* direction;
  T const* momentum;
  T* result;
  Number<double> squared_direction;
  Number<double> squared_momentum;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const is_grafted = squared_direction() != 0;
    auto const ratio = is_grafted ? runtime::compat::sqrt(squared_momentum() / squared_direction()) : 1.0;
    result[i] = static_cast<T>(ratio) * (is_grafted ? direction[i] : momentum[i]);
  }
};

/// x := x / |x|
template<class T>
struct Normalize {
  T* numbers;
  Number<double> squared_norm;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    if (squared_norm() > 0)
      numbers[i] = static_cast<T>(static_cast<double>(numbers[i]) / runtime::compat::sqrt(squared_norm()));
  }
};

/// x := I - x / 8 + 9/128 square, for x [side x side].
template<class T>
struct InverseRootSeries {
  T* x;
  T const* square;
  std::int64_t side;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const unit = i / side == i % side ? T{1} : T{0};
    x[i] = unit - T(0.125) * x[i] + T(0.0703125) * square[i];
  }
};

/// root := b^(-1/4) (product + product^T) / 2, b = |X| / (|X| + 1); unchanged if X is 0. The product is symmetric but for rounding.
template<class T>
struct TakeRoot {
  T const* product;
  T* root;
  std::int64_t side;
  Number<double> squared_norm;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    if (squared_norm() == 0) return;
    auto const inverse = 1 + 1 / runtime::compat::sqrt(squared_norm());
    auto const factor = runtime::compat::sqrt(runtime::compat::sqrt(inverse));
    auto const mirrored = product[i % side * side + i / side];
    root[i] = static_cast<T>(0.5 * factor) * (product[i] + mirrored);
  }
};

/// value := the diagonal of the first root for a gradient; 0 if there is a root already, or if the gradient is 0. One work item.
template<class T>
struct FindFirstRoot {
  T const* root;
  std::int64_t side;
  Number<double> squared_gradient;
  Number<double> value;
  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    auto const is_first = root[0] == 0 && squared_gradient() > 0;
    value() = is_first ? runtime::compat::pow(squared_gradient() / static_cast<double>(side), -0.25) : 0.0;
  }
};

/// On the diagonals: moments += eps |G|^2, and root := value if it is not 0.
template<class T>
struct SetDiagonals {
  T* moments;
  T* root;
  std::int64_t side;
  Number<double> squared_gradient;
  Number<double> value;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    moments[i * (side + 1)] += static_cast<T>(ridge * squared_gradient());
    if (value() != 0) root[i * (side + 1)] = static_cast<T>(value());
  }
};

/// Refreshes L (R if `is_right`) for a gradient. `scratch`: three squares of L's side. `norms`: of Jorge.
template<class T>
void refresh(DefaultExec const& exec, Panel<T> const& root, Panel<T> const& gradient, bool is_right,
             T* scratch, Vector<double> const& norms) {
  auto const side = root.num_rows;
  auto const count = side * side;
  auto const a = Panel<T>(scratch, side, side);
  auto const b = Panel<T>(scratch + count, side, side);
  auto const c = Panel<T>(scratch + 2 * count, side, side);
  auto const norm = runtime::number_at(norms, 0);
  auto const of_gradient = runtime::number_at(norms, 2);
  auto const first_root = runtime::number_at(norms, 3);
  auto const multiply = [&](Panel<T> const& left, Panel<T> const& right, Panel<T> const& product) {
    pmm::local_gemm<T>(exec, 1, Transpose::no, left, Transpose::no, right, 0, product, GemmMath::fp32);
  };
  auto const first = is_right ? Transpose::yes : Transpose::no;
  auto const second = is_right ? Transpose::no : Transpose::yes;
  // All data groups must find the same bits, and on a device local_gemm() takes the form of A^T B that was faster.
  if constexpr (pmm::runs_on_host)
    pmm::local_gemm<T>(exec, 1, first, gradient, second, gradient, 0, a, GemmMath::fp32);
  else
    pmm::detail::library_gemm<T>(exec, 1, first, gradient, second, gradient, 0, a, GemmMath::fp32);
  Kokkos::parallel_for("orthant::models::jorge/first_root", Policy(exec, 0, 1),
                       FindFirstRoot<T>{root.data, side, of_gradient, first_root});
  Kokkos::parallel_for("orthant::models::jorge/diagonals", Policy(exec, 0, side),
                       SetDiagonals<T>{a.data, root.data, side, of_gradient, first_root});
  multiply(root, root, b);
  multiply(b, a, c);
  multiply(c, b, a); // X
  Kokkos::parallel_reduce("orthant::models::jorge/norm", Policy(exec, 0, count), SumSquares<T>{a.data}, norm);
  Kokkos::parallel_for("orthant::models::jorge/normalize", Policy(exec, 0, count),
                       Normalize<T>{a.data, norm});
  multiply(a, a, c);
  Kokkos::parallel_for("orthant::models::jorge/series", Policy(exec, 0, count),
                       InverseRootSeries<T>{a.data, c.data, side});
  multiply(a, root, b);
  multiply(b, a, c);
  Kokkos::parallel_for("orthant::models::jorge/root", Policy(exec, 0, count),
                       TakeRoot<T>{c.data, root.data, side, norm});
}

/// Passes over the states of a rank's tiles, in a step and in a refresh.
runtime::LocalPass pass_of_step(TileSizes const& sizes, std::int64_t scalar_bytes) {
  auto const of_tiles = 3 * sizes.num_owned * scalar_bytes; // G, S, M
  auto const of_roots = (sizes.num_left + sizes.num_right) * scalar_bytes;
  return {"jorge/step", of_tiles + of_roots, of_tiles, sizes.step_flops};
}
runtime::LocalPass pass_of_refresh(TileSizes const& sizes, std::int64_t scalar_bytes) {
  auto const of_roots = (sizes.num_left + sizes.num_right) * scalar_bytes;
  return {"jorge/refresh", sizes.num_owned * scalar_bytes + of_roots, of_roots, sizes.refresh_flops};
}

JorgeSettings const& checked(JorgeSettings const& settings) {
  ORTHANT_REQUIRE(settings.tile > 0 && settings.interval > 0, "tiles of side ", settings.tile,
                  " whose preconditioners are refreshed every ", settings.interval, " steps");
  return settings;
}

TileSizes planned_sizes(pmm::StepPlan const& step, JorgeSettings const& settings,
                        std::vector<TiledMatrix> const& matrices) {
  auto const tiles = deal_tiles(matrices, checked(settings).tile, step.shape().size(pmm::group_axes));
  return sizes_of(matrices, tiles, rank_within(step.shape(), step.coordinates(), pmm::group_axes));
}

} // namespace

std::int64_t num_state_numbers(JorgeSettings const& settings, std::vector<TiledMatrix> const& matrices) {
  auto const sizes = sizes_of(matrices, deal_tiles(matrices, settings.tile, 1), 0);
  return 2 * sizes.num_owned + sizes.num_left + sizes.num_right;
}

void plan_jorge_arrays(pmm::StepPlan& step, JorgeSettings const& settings,
                       std::vector<TiledMatrix> const& matrices) {
  auto const sizes = planned_sizes(step, settings, matrices);
  plan_tile_arrays(step, sizes);
  auto const squares = num_squares * sizes.longest_side * sizes.longest_side;
  step.add_array("orthant::models::jorge_momentum", step.scalar_bytes(sizes.num_owned));
  step.add_array("orthant::models::jorge_direction", step.scalar_bytes(sizes.num_owned));
  step.add_array("orthant::models::jorge_left", step.scalar_bytes(sizes.num_left));
  step.add_array("orthant::models::jorge_right", step.scalar_bytes(sizes.num_right));
  step.add_array("orthant::models::jorge_scratch", step.scalar_bytes(squares));
  step.add_array("orthant::models::jorge_squares", num_norms * sizeof(double));
}

void plan_jorge_step(pmm::StepPlan& step, JorgeSettings const& settings,
                     std::vector<TiledMatrix> const& matrices) {
  if (matrices.empty()) return;
  auto const sizes = planned_sizes(step, settings, matrices);
  plan_to_owners(step, sizes);
  auto refresh = pass_of_refresh(sizes, step.scalar_bytes(1));
  refresh.bytes_read /= settings.interval;
  refresh.bytes_written /= settings.interval;
  refresh.flops /= settings.interval;
  step.add_pass(refresh);
  step.add_pass(pass_of_step(sizes, step.scalar_bytes(1)));
  plan_from_owners(step, sizes);
}

template<class T>
Jorge<T>::Jorge(pmm::ProcessGrid const& grid, JorgeSettings const& settings, double momentum,
                std::vector<Parameter<T>> matrices)
    : grid_(&grid),
      settings_(checked(settings)),
      momentum_(static_cast<T>(momentum)),
      matrices_(std::move(matrices)),
      exchange_(grid, matrices_, settings_.tile) {
  auto const& sizes = exchange_.sizes();
  auto const count = static_cast<std::size_t>(sizes.num_owned);
  auto const side = static_cast<std::size_t>(sizes.longest_side);
  of_sgd_ = Vector<T>("orthant::models::jorge_momentum", count);
  direction_ = Vector<T>("orthant::models::jorge_direction", count);
  left_ = Vector<T>("orthant::models::jorge_left", static_cast<std::size_t>(sizes.num_left));
  right_ = Vector<T>("orthant::models::jorge_right", static_cast<std::size_t>(sizes.num_right));
  scratch_ = Vector<T>("orthant::models::jorge_scratch", num_squares * side * side);
  squares_ = Vector<double>("orthant::models::jorge_squares", num_norms);
}

template<class T>
typename Jorge<T>::TilePlace Jorge<T>::after(TilePlace const& place, Tile const& tile) {
  auto const m = tile.rows.size();
  auto const n = tile.columns.size();
  return {place.numbers + m * n, place.left + m * m, place.right + n * n};
}

template<class T>
void Jorge<T>::step(DefaultExec const& exec, Number<double> const& gradient_scale) {
  if (matrices_.empty()) return;
  exchange_.to_owners(exec);
  auto const& sizes = exchange_.sizes();
  auto const refreshes = num_steps_ % settings_.interval == 0;
  ++num_steps_;
  if (refreshes) grid_->passes().add(pass_of_refresh(sizes, sizeof(T)));
  grid_->passes().add(pass_of_step(sizes, sizeof(T)));
  Kokkos::parallel_for(
      "orthant::models::jorge/momentum", Policy(exec, 0, sizes.num_owned),
      AddToMomentum<T>{exchange_.numbers().data(), of_sgd_.data(), gradient_scale, momentum_});
  TilePlace place;
  for (auto const& tile : exchange_.own_tiles()) {
    precondition(exec, tile, place, refreshes);
    place = after(place, tile);
  }
  exchange_.from_owners(exec);
}

/// The tile's gradient := M |S| / |M|.
template<class T>
void Jorge<T>::precondition(DefaultExec const& exec, Tile const& tile, TilePlace const& place,
                            bool refreshes) const {
  auto const m = tile.rows.size();
  auto const n = tile.columns.size();
  auto const gradient = Panel<T>(exchange_.numbers().data() + place.numbers, m, n);
  auto const left = Panel<T>(left_.data() + place.left, m, m);
  auto const right = Panel<T>(right_.data() + place.right, n, n);
  auto const of_direction = runtime::number_at(squares_, 0);
  auto const of_momentum = runtime::number_at(squares_, 1);
  if (refreshes) {
    auto const of_gradient = runtime::number_at(squares_, 2);
    Kokkos::parallel_reduce("orthant::models::jorge/norm", Policy(exec, 0, tile.size()),
                            SumSquares<T>{gradient.data}, of_gradient);
    refresh(exec, left, gradient, false, scratch_.data(), squares_);
    refresh(exec, right, gradient, true, scratch_.data(), squares_);
  }
  auto const half = Panel<T>(scratch_.data(), m, n);
  pmm::local_gemm<T>(exec, 1, Transpose::no, left, Transpose::no, gradient, 0, half, GemmMath::fp32);
  pmm::local_gemm<T>(exec, 1, Transpose::no, half, Transpose::no, right, 0, gradient, GemmMath::fp32);
  auto* const direction = direction_.data() + place.numbers;
  auto const* const momentum = of_sgd_.data() + place.numbers;
  Policy const numbers(exec, 0, tile.size());
  Kokkos::parallel_reduce("orthant::models::jorge/direction", numbers,
                          AddToDirection<T>{gradient.data, direction, momentum_}, of_direction);
  Kokkos::parallel_reduce("orthant::models::jorge/norm", numbers, SumSquares<T>{momentum}, of_momentum);
  Kokkos::parallel_for("orthant::models::jorge/graft", numbers,
                       Graft<T>{direction, momentum, gradient.data, of_direction, of_momentum});
}

namespace {

std::int64_t all_numbers(std::int64_t m, std::int64_t n) {
  return m * n;
}
std::int64_t square_of_height(std::int64_t m, std::int64_t /*n*/) {
  return m * m;
}
std::int64_t square_of_width(std::int64_t /*m*/, std::int64_t n) {
  return n * n;
}

} // namespace

/// S and M are stored like the matrix; the squares L and R of all tiles of a matrix one after the other. `count_of`: numbers of a tile.
template<class T>
void Jorge<T>::add_states(std::string const& name, Vector<T> const& numbers,
                          std::int64_t (*count_of)(std::int64_t, std::int64_t),
                          std::vector<State>& states) const {
  using Extents = runtime::Hdf5File::Extents;
  auto const is_square = count_of != all_numbers;
  auto const own_rank = grid_->coordinate(pmm::group_axes);
  auto tile = exchange_.tiles().begin();
  std::int64_t begin = 0; // of this rank's tiles of a matrix in `numbers`
  for (std::size_t p = 0; p < matrices_.size(); ++p) {
    auto place = matrices_[p];
    OwnBoxes boxes;
    boxes.extents = is_square ? Extents{0} : extents_of(place);
    if (is_square) // also if another stage has the matrix
      for (auto const& [m, n] : tile_extents(place.matrix.extents(), settings_.tile))
        boxes.extents[0] += count_of(m, n);
    std::int64_t length = 0, held = 0; // of the tiles of the matrix so far, and of those of this rank
    for (; tile != exchange_.tiles().end() && tile->matrix == p; ++tile) {
      auto const count = count_of(tile->rows.size(), tile->columns.size());
      if (tile->owner == own_rank) {
        auto const first = is_square ? Extents{length} : Extents{tile->rows.begin, tile->columns.begin};
        auto const counts = is_square ? Extents{count} : Extents{tile->rows.size(), tile->columns.size()};
        boxes.boxes.push_back({first, counts, held});
        held += count;
      }
      length += count;
    }
    place.boxes = std::make_shared<OwnBoxes>(std::move(boxes));
    states.push_back({name, std::move(place), runtime::part_of(numbers, begin, held)});
    begin += held;
  }
}

template<class T>
std::vector<typename Jorge<T>::State> Jorge<T>::states() const {
  std::vector<State> states;
  add_states("momentum_buffer", of_sgd_, all_numbers, states);
  add_states("direction", direction_, all_numbers, states);
  add_states("left", left_, square_of_height, states);
  add_states("right", right_, square_of_width, states);
  return states;
}

template class Jorge<float>;
template class Jorge<double>;

} // namespace orthant::models
