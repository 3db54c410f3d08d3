// The condensed tree: clusters numbered canonically, what leaves them and when, their stability. Top down, O(n).
#pragma once
#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <limits>
#include <vector>

#include "buffer.h"
#include "hierarchy.h"
#include "radix_sort.h"
#include "records.h"

namespace mreach {

// lambda of a height: the inverse, never so large that only height 0 should have it.
inline double lambda_of(double height) {
  if (!(height > 0)) return std::numeric_limits<double>::infinity();
  return std::min(1 / height, DBL_MAX);
}

struct CondensedTree {
  std::int32_t n = 0;
  // By cluster, canonically numbered: the root, then by decreasing birth height and smallest point.
  std::vector<std::int32_t> parent, size;
  std::vector<double> birth_height, birth_lambda, stability;
  std::vector<double> last_lambda;   // largest lambda at which anything leaves the cluster itself; -1: nothing does
  std::vector<double> last_finite;   // the same among finite ones
  // The points that leave cluster c itself, by (lambda, point): those at start[c] <= i < start[c + 1].
  std::vector<std::int32_t> start;
  Buffer<std::int32_t> points;
  Buffer<double> lambdas;
};

// Points that leave one cluster at one lambda, in ascending order; the departures left them in any.
inline void sort_equal_lambdas(CondensedTree& tree) {
  std::vector<std::int32_t> scratch;
  for (std::size_t c = 0; c + 1 < tree.start.size(); ++c) {
    const std::int32_t end = tree.start[c + 1];
    for (std::int32_t begin = tree.start[c], stop = begin; begin < end; begin = stop) {
      for (stop = begin + 1; stop < end && tree.lambdas[stop] == tree.lambdas[begin]; ++stop) {
      }
      std::int32_t* const points = tree.points.data() + begin;
      const std::size_t count = stop - begin;
      if (count < RADIX_SORT_FROM) {
        std::sort(points, points + count);
      } else {
        scratch.resize(count);
        radix_sort(points, scratch.data(), count, bits_of(tree.n), [](std::int32_t point) { return std::uint32_t(point); });
      }
    }
  }
}

inline CondensedTree condense(const Hierarchy& hierarchy) {
  const std::int32_t n = hierarchy.n, k = static_cast<std::int32_t>(hierarchy.clusters.size());
  const std::vector<Cluster>& clusters = hierarchy.clusters;
  CondensedTree tree;
  tree.n = n;
  // Numbers: a parent is born above its children, so it stands before them. The root's may be born at infinity, too.
  std::vector<std::int32_t> order(k), number(k);
  for (std::int32_t c = 0; c < k; ++c) order[c] = c;
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    if ((clusters[a].parent < 0) != (clusters[b].parent < 0)) return clusters[a].parent < 0;
    if (clusters[a].birth_height != clusters[b].birth_height) return clusters[a].birth_height > clusters[b].birth_height;
    return clusters[a].smallest < clusters[b].smallest;
  });
  tree.start.assign(k + 1, 0);
  for (std::int32_t c = 0; c < k; ++c) number[order[c]] = c;
  for (std::int32_t c = 0; c < k; ++c) tree.start[c + 1] = tree.start[c] + clusters[order[c]].n_points;

  struct State {
    double birth_lambda, stability, last_lambda, last_finite;
    std::int32_t at;  // where its next points go
  };
  std::vector<State> states(k);
  for (std::int32_t c = 0; c < k; ++c) {
    const double birth_lambda = clusters[c].parent < 0 ? 0.0 : lambda_of(clusters[c].birth_height);
    states[c] = {birth_lambda, 0.0, -1.0, -1.0, tree.start[number[c]]};
  }
  tree.points.resize_discard(n);
  tree.lambdas.resize_discard(n);
  const double infinity = std::numeric_limits<double>::infinity();
  std::int32_t end = n;
  for (std::int32_t d = hierarchy.n_departures - 1; d >= 0; --d) {
    const Departure& departure = hierarchy.departures[d];
    const Cluster& cluster = clusters[departure.cluster];
    State& state = states[departure.cluster];
    const double lambda = lambda_of(departure.height);
    const std::int32_t leaving = d == cluster.bottom ? cluster.bottom_size : end - departure.first_point;
    state.stability = state.stability + static_cast<double>(leaving) * (lambda - state.birth_lambda);
    state.last_lambda = lambda;
    if (lambda < infinity) state.last_finite = lambda;
    for (std::int32_t i = departure.first_point; i < end; ++i, ++state.at) {
      tree.points[state.at] = hierarchy.points[i];
      tree.lambdas[state.at] = lambda;
    }
    end = departure.first_point;
  }
  for (std::int32_t c : order) {
    tree.parent.push_back(clusters[c].parent < 0 ? -1 : number[clusters[c].parent]);
    tree.size.push_back(clusters[c].size);
    tree.birth_height.push_back(clusters[c].birth_height);
    tree.birth_lambda.push_back(states[c].birth_lambda);
    tree.stability.push_back(states[c].stability);
    tree.last_lambda.push_back(states[c].last_lambda);
    tree.last_finite.push_back(states[c].last_finite);
  }
  sort_equal_lambdas(tree);
  return tree;
}

// The tree of a single point, which never leaves anything.
inline CondensedTree tree_of_one_point() {
  CondensedTree tree;
  tree.n = 1;
  tree.parent = {-1};
  tree.size = {1};
  tree.birth_height = {std::numeric_limits<double>::infinity()};
  tree.birth_lambda = tree.stability = {0.0};
  tree.last_lambda = tree.last_finite = {-1.0};
  tree.start = {0, 1};
  tree.points.resize_discard(1);
  tree.lambdas.resize_discard(1);
  tree.points[0] = 0;
  tree.lambdas[0] = 0.0;
  return tree;
}

inline std::int64_t n_condensed_records(const CondensedTree& tree) {
  return tree.n < 2 ? 0 : tree.n + static_cast<std::int64_t>(tree.parent.size()) - 1;
}

// Records by (parent, lambda, child); clusters are numbered from n on. A cluster's children leave it last of all.
inline void write_condensed_records(const CondensedTree& tree, CondensedRecord* out) {
  if (tree.n < 2) return;
  const std::int32_t k = static_cast<std::int32_t>(tree.parent.size());
  const std::int64_t n = tree.n;
  std::vector<std::int32_t> n_children(k, 0);
  for (std::int32_t c = 1; c < k; ++c) ++n_children[tree.parent[c]];
  std::vector<CondensedRecord*> children(k);
  for (std::int32_t c = 0; c < k; ++c) {
    for (std::int32_t i = tree.start[c]; i < tree.start[c + 1]; ++i) *out++ = {n + c, tree.points[i], tree.lambdas[i], 1};
    children[c] = out;
    out += n_children[c];
  }
  for (std::int32_t c = 1; c < k; ++c) *children[tree.parent[c]]++ = {n + tree.parent[c], n + c, tree.birth_lambda[c], tree.size[c]};
}

}  // namespace mreach
