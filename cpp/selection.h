// Which clusters of the condensed tree are the result, and what every point gets of them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "condensed_tree.h"

namespace mreach {

struct SelectionRule {
  bool leaf = false;                    // else excess of mass
  double epsilon = 0;
  double epsilon_max = std::numeric_limits<double>::infinity();  // born above it: not selected by excess of mass
  std::int64_t max_cluster_size = 0;    // 0: no limit
  bool allow_single_cluster = false;
};

// Excess of mass (Campello et al. 2015), bottom up: parents stand before their children.
inline std::vector<char> select_excess_of_mass(const CondensedTree& tree, const SelectionRule& rule) {
  const std::int32_t k = static_cast<std::int32_t>(tree.parent.size());
  std::vector<char> selected(k, 0);
  std::vector<double> value(k, 0.0), values;
  // Children of a cluster, so that their values can be added in ascending order.
  std::vector<std::int32_t> start(k + 1, 0), children(k > 0 ? k - 1 : 0);
  for (std::int32_t c = 1; c < k; ++c) ++start[tree.parent[c] + 1];
  for (std::int32_t c = 0; c < k; ++c) start[c + 1] += start[c];
  std::vector<std::int32_t> at(start.begin(), start.end() - 1);
  for (std::int32_t c = 1; c < k; ++c) children[at[tree.parent[c]]++] = c;
  for (std::int32_t c = k - 1; c >= 0; --c) {
    values.clear();
    for (std::int32_t s = start[c]; s < start[c + 1]; ++s) values.push_back(value[children[s]]);
    std::sort(values.begin(), values.end());
    double sum = 0;
    for (double v : values) sum = sum + v;
    const bool fits = rule.max_cluster_size == 0 || tree.size[c] <= rule.max_cluster_size;
    const bool low = !(tree.birth_height[c] > rule.epsilon_max);
    const bool eligible = fits && low && (c > 0 || rule.allow_single_cluster);
    selected[c] = eligible && tree.stability[c] >= sum;
    value[c] = selected[c] ? tree.stability[c] : sum;
  }
  return selected;
}

inline std::vector<char> select_leaves(const CondensedTree& tree, const SelectionRule& rule) {
  const std::size_t k = tree.parent.size();
  std::vector<char> selected(k, 1);
  for (std::size_t c = 1; c < k; ++c) selected[tree.parent[c]] = 0;
  if (k > 0 && selected[0] && !rule.allow_single_cluster) selected[0] = 0;
  return selected;
}

// A selected cluster born below epsilon gives way to its nearest ancestor born at or above it.
inline void raise_to_epsilon(const CondensedTree& tree, const SelectionRule& rule, std::vector<char>& selected) {
  const std::int32_t k = static_cast<std::int32_t>(tree.parent.size());
  // stands_for[c]: the nearest of c and its ancestors that was born at or above epsilon, or where the climb stops.
  std::vector<std::int32_t> stands_for(k);
  std::vector<char> raised(k, 0);
  for (std::int32_t c = 0; c < k; ++c) {
    const bool stops = c == 0 || tree.birth_height[c] >= rule.epsilon || (tree.parent[c] == 0 && !rule.allow_single_cluster);
    stands_for[c] = stops ? c : stands_for[tree.parent[c]];
    if (selected[c]) raised[stands_for[c]] = 1;
  }
  selected.swap(raised);
}

struct Selected {
  std::vector<std::int32_t> clusters;      // ascending
  std::vector<double> persistence;
  Buffer<std::int32_t> label;              // of each point: index into clusters, or -1
  Buffer<double> probability;              // of each point
};

inline Selected select_clusters(const CondensedTree& tree, const SelectionRule& rule) {
  const std::int32_t k = static_cast<std::int32_t>(tree.parent.size());
  std::vector<char> selected = rule.leaf ? select_leaves(tree, rule) : select_excess_of_mass(tree, rule);
  if (rule.epsilon > 0) raise_to_epsilon(tree, rule, selected);
  Selected out;
  // Of nested ones the topmost stays.
  std::vector<std::int32_t> owner(k, -1);
  for (std::int32_t c = 0; c < k; ++c) {
    if (c > 0 && owner[tree.parent[c]] >= 0) {
      owner[c] = owner[tree.parent[c]];
    } else if (selected[c]) {
      owner[c] = static_cast<std::int32_t>(out.clusters.size());
      out.clusters.push_back(c);
    }
  }
  double largest_finite = 0;
  for (double lambda : tree.last_finite) largest_finite = std::max(largest_finite, lambda);
  for (std::int32_t c : out.clusters) {
    const double whole = static_cast<double>(tree.size[c]) * largest_finite, stability = tree.stability[c];
    const double infinity = std::numeric_limits<double>::infinity();
    double persistence = 0;
    if (stability == infinity) persistence = 1;
    else if (whole > 0) persistence = std::min(1.0, stability / whole);
    out.persistence.push_back(persistence);
  }
  const bool only_root = out.clusters.size() == 1 && out.clusters[0] == 0;
  const bool nothing_leaves = k > 0 && tree.last_lambda[0] < 0;  // a single point
  double root_needs = 0;
  if (only_root) root_needs = rule.epsilon > 0 ? 1 / rule.epsilon : tree.last_lambda[0];
  std::int64_t labelled = 0;
  out.label.resize_discard(tree.n);
  out.probability.resize_discard(tree.n);
  for (std::int32_t c = 0; c < k; ++c) {
    const std::int32_t label = owner[c];
    const double reference = label < 0 ? 0.0 : tree.last_finite[out.clusters[label]];
    for (std::int32_t i = tree.start[c]; i < tree.start[c + 1]; ++i) {
      const double lambda = tree.lambdas[i];
      const bool noise = label < 0 || nothing_leaves || (only_root && !(lambda >= root_needs));
      const bool whole = lambda == std::numeric_limits<double>::infinity() || lambda >= reference;
      out.label[tree.points[i]] = noise ? -1 : label;
      out.probability[tree.points[i]] = noise ? 0.0 : whole ? 1.0 : lambda / reference;
      labelled += !noise;
    }
  }
  if (labelled == 0) {  // the root, with a threshold that no point meets: a cluster without points is none
    out.clusters.clear();
    out.persistence.clear();
  }
  return out;
}

}  // namespace mreach
