#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The optimizer Jorge: Shampoo whose inverse roots are updated by products alone. For a tile W [m x n] of a matrix (matrix_tiles.hpp) with
// gradient G, and |X| the Frobenius norm:
//
//   every k-th step     A  := G G^T + eps |G|^2 I,  X := L^2 A L^2,  X1 := X / |X|,  b := |X| / (|X| + 1)
//                       P  := I - X1 / 8 + 9/128 X1^2       approximates (I + X1)^(-1/8)
//                       L  := b^(-1/4) P L P
//                       R  likewise with G^T G
//   every step          S  := mu S + G                      momentum of SGD
//                       M  := mu M + L G R
//                       W  -= lr (M |S| / |M| + wd W)       a step as long as one of SGD; S itself if M is 0
//
// with eps = 1e-5. L approximates H^(-1/4) of the mean H := b H + (1 - b) A. L and R are 0 at first. The first refresh whose gradient is not 0
// sets L := (|G|^2 / m)^(-1/4) I before the update above; until then M is 0, and the tile is updated by S. Other parameters, and embeddings of
// vertices, are updated by S alone.
//
// The paper has L (I - X1 / 4 + 5/32 X1^2) with X = L^4 G G^T, which is the same if L and A commute, and otherwise not symmetric. Its
// symmetric part becomes indefinite, but P L P does not (docs/optimizers.md). Without eps, L grows without bound where the gradient is 0.
//
// A tile's owner has S, M, L and R of the whole tile, so these states are distributed over the group. The gradients are sent to the owners,
// and M |S| / |M| back in their place. Data groups compute the same.
//
// Sources: Singh, Sating & Bhatele, Jorge (arXiv 2310.12298). Tiles, each with a norm of its own: Anil et al. (arXiv 2002.09018), section 4.

#include "models/training/jorge/tile_exchange.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orthant::models {

struct JorgeSettings {
  std::int64_t tile = 1024;   // largest side of a tile
  std::int64_t interval = 10; // k
};

/// Whether Jorge preconditions a parameter of this role.
[[nodiscard]] constexpr bool is_preconditioned(ParameterRole role) {
  return role == ParameterRole::weight;
}

/// Numbers of the states of all ranks of a group.
[[nodiscard]] std::int64_t num_state_numbers(JorgeSettings const& settings,
                                             std::vector<TiledMatrix> const& matrices);

/// List the arrays of Jorge, and the passes and calls of Jorge::step(). A refresh is listed with the k-th part of its bytes and operations.
void plan_jorge_arrays(pmm::StepPlan& step, JorgeSettings const& settings,
                       std::vector<TiledMatrix> const& matrices);
void plan_jorge_step(pmm::StepPlan& step, JorgeSettings const& settings,
                     std::vector<TiledMatrix> const& matrices);

template<class T>
class Jorge {
 public:
  /// `matrices`: those to precondition. The memory of their gradients must not move. `grid` must outlive this object. Collective over the
  /// grid's group.
  Jorge(pmm::ProcessGrid const& grid, JorgeSettings const& settings, double momentum,
        std::vector<Parameter<T>> matrices);

  /// Gradient of each matrix := M |S| / |M| for the gradient times `gradient_scale`, which a kernel reads. Collective over the grid's group.
  /// Enqueues on exec; does not fence.
  void step(runtime::DefaultExec const& exec, runtime::Number<double> const& gradient_scale);

  /// An array of the state of a matrix. `place` has the positions of this rank's tiles in the global array, which has the same numbers on
  /// all grids. Writing to `numbers` sets the state.
  struct State {
    std::string name; // "momentum_buffer" (S), "direction" (M), "left" (L), "right" (R)
    Parameter<T> place;
    runtime::Vector<T> numbers;
  };
  [[nodiscard]] std::vector<State> states() const;
  void set_num_steps(std::int64_t num_steps) { num_steps_ = num_steps; }

 private:
  /// Positions of a tile's arrays.
  struct TilePlace {
    std::int64_t numbers = 0, left = 0, right = 0;
  };
  void precondition(runtime::DefaultExec const& exec, Tile const& tile, TilePlace const& place,
                    bool refreshes) const;
  void add_states(std::string const& name, runtime::Vector<T> const& numbers,
                  std::int64_t (*count_of)(std::int64_t, std::int64_t), std::vector<State>& states) const;
  [[nodiscard]] static TilePlace after(TilePlace const& place, Tile const& tile);

  pmm::ProcessGrid const* grid_;
  JorgeSettings settings_;
  T momentum_;
  std::vector<Parameter<T>> matrices_;
  TileExchange<T> exchange_;
  std::int64_t num_steps_ = 0;
  runtime::Vector<T> of_sgd_, direction_; // [num_owned] S and M
  runtime::Vector<T> left_, right_;       // [num_left], [num_right]
  runtime::Vector<T> scratch_;            // three squares of the longest side
  runtime::Vector<double>
      squares_; // [4] squared norms, of X or M, of S and of G, and the diagonal of a first L
};

extern template class Jorge<float>;
extern template class Jorge<double>;

} // namespace orthant::models
