// From the sorted edges of the spanning tree to the condensed tree, canonically: all edges of one weight are merged
// at once, so a node is a connected component of the graph of edges with w <= h and has two or more children. No
// choice between equal edges can change that tree. Everything is O(n) after the sort, and nothing recurses.
#pragma once
#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <limits>
#include <vector>

#include "union_find.h"

namespace mreach {

// lambda of a height: the inverse, never so large that only height 0 should have it.
inline double lambda_of(double height) {
  if (!(height > 0)) return std::numeric_limits<double>::infinity();
  return std::min(1 / height, DBL_MAX);
}

// Nodes 0..n-1 are the points, larger ones the merges in ascending height; a child's number is below its parent's.
struct Hierarchy {
  std::int32_t n = 0, root = 0;
  std::vector<double> height;                       // of merge node v: height[v - n]
  std::vector<std::int32_t> size, smallest;         // points below each node; the smallest of them
  std::vector<std::int32_t> first_child, next;      // children of merge v: first_child[v - n], then next[child], -1 ends
  std::vector<char> absorbed;                       // merges that became part of another one of the same height
};

// source, target, weight: n - 1 edges in ascending weight.
inline Hierarchy build_hierarchy(const std::int64_t* source, const std::int64_t* target, const double* weight,
                                 std::int32_t n) {
  Hierarchy tree;
  tree.n = n;
  const std::int32_t capacity = n > 0 ? 2 * n - 1 : 0;
  tree.height.reserve(n);
  tree.first_child.reserve(n);
  tree.absorbed.reserve(n);
  tree.size.assign(capacity, 1);
  tree.smallest.resize(capacity);
  tree.next.assign(capacity, -1);
  std::vector<std::int32_t> parent(n), node(n), last_child;
  last_child.reserve(n);
  for (std::int32_t i = 0; i < n; ++i) parent[i] = node[i] = tree.smallest[i] = i;
  for (std::int32_t e = 0; e < n - 1;) {
    const double h = weight[e];
    const std::int32_t first_of_this_height = n + static_cast<std::int32_t>(tree.height.size());
    for (; e < n - 1 && weight[e] == h; ++e) {
      std::int32_t x = find_root(parent, static_cast<std::int32_t>(source[e]));
      std::int32_t y = find_root(parent, static_cast<std::int32_t>(target[e]));
      std::int32_t a = node[x], b = node[y];
      if (a < first_of_this_height && b >= first_of_this_height) std::swap(a, b), std::swap(x, y);
      std::int32_t merged = a;
      if (a < first_of_this_height) {  // a new node with two children
        merged = n + static_cast<std::int32_t>(tree.height.size());
        tree.height.push_back(h);
        tree.absorbed.push_back(0);
        tree.first_child.push_back(a);
        tree.next[a] = b;
        last_child.push_back(b);
      } else if (b < first_of_this_height) {  // one more child
        tree.next[last_child[a - n]] = b;
        last_child[a - n] = b;
      } else {  // two nodes of this height become one
        tree.next[last_child[a - n]] = tree.first_child[b - n];
        last_child[a - n] = last_child[b - n];
        tree.absorbed[b - n] = 1;
      }
      const std::int32_t size = tree.size[a] + tree.size[b], smallest = std::min(tree.smallest[a], tree.smallest[b]);
      tree.size[merged] = size;
      tree.smallest[merged] = smallest;
      if (tree.size[a] < tree.size[b]) std::swap(x, y);
      parent[y] = x;
      node[x] = merged;
    }
  }
  tree.root = n > 0 ? node[find_root(parent, 0)] : -1;
  return tree;
}

struct CondensedTree {
  // By cluster, canonically numbered: decreasing birth height, then smallest point. Cluster 0 is the root.
  std::vector<std::int32_t> parent, size;
  std::vector<double> birth_height, birth_lambda, stability;
  std::vector<double> last_lambda;   // largest lambda at which anything leaves the cluster itself; -1: nothing does
  std::vector<double> last_finite;   // the same among finite ones
  // By point: the last cluster it was in, and the lambda at which it left.
  std::vector<std::int32_t> cluster_of;
  std::vector<double> lambda;
};

inline CondensedTree condense(const Hierarchy& tree, std::int64_t min_cluster_size) {
  const std::int32_t n = tree.n;
  CondensedTree out;
  out.cluster_of.assign(n, 0);
  out.lambda.assign(n, 0.0);
  struct Cluster {
    std::int32_t parent, size, smallest;
    double birth_height, birth_lambda, stability, last_lambda, last_finite;
  };
  std::vector<Cluster> clusters;
  const double infinity = std::numeric_limits<double>::infinity();
  auto born = [&](std::int32_t parent, std::int32_t node, double height) {
    clusters.push_back({parent, tree.size[node], tree.smallest[node], height, parent < 0 ? 0.0 : lambda_of(height), 0.0, -1.0, -1.0});
    return static_cast<std::int32_t>(clusters.size()) - 1;
  };
  if (n > 0) born(-1, tree.root, infinity);
  // For every node below the root: its cluster, and whether its points have left it (then at which lambda).
  const std::size_t n_nodes = n + tree.height.size();
  std::vector<std::int32_t> cluster(n_nodes, 0);
  std::vector<double> left_at(n_nodes, -1.0);  // -1: still in its cluster
  for (std::int64_t v = tree.root; v >= n; --v) {
    if (tree.absorbed[v - n]) continue;
    const std::int32_t c = cluster[v], first = tree.first_child[v - n];
    if (left_at[v] >= 0) {
      for (std::int32_t u = first; u >= 0; u = tree.next[u]) cluster[u] = c, left_at[u] = left_at[v];
      continue;
    }
    const double h = tree.height[v - n], lambda = lambda_of(h);
    std::int32_t large = 0, leaving = 0;
    for (std::int32_t u = first; u >= 0; u = tree.next[u]) {
      if (tree.size[u] >= min_cluster_size) ++large;
      else leaving += tree.size[u];
    }
    const bool breaks_up = large >= 2;
    if (breaks_up) leaving = tree.size[v];
    if (leaving > 0) {
      Cluster& old = clusters[c];
      old.stability = old.stability + static_cast<double>(leaving) * (lambda - old.birth_lambda);
      old.last_lambda = lambda;
      if (lambda < infinity) old.last_finite = lambda;
    }
    for (std::int32_t u = first; u >= 0; u = tree.next[u]) {
      const bool is_large = tree.size[u] >= min_cluster_size;
      cluster[u] = is_large && breaks_up ? born(c, u, h) : c;
      if (!is_large) left_at[u] = lambda;
    }
  }
  for (std::int32_t i = 0; i < n; ++i) {
    out.cluster_of[i] = cluster[i];
    out.lambda[i] = left_at[i] >= 0 ? left_at[i] : 0.0;  // a single point that never left anything: n = 1
  }
  // Clusters were born in descending height; only equal heights are out of order.
  std::vector<std::int32_t> order(clusters.size()), rank(clusters.size());
  for (std::size_t c = 0; c < order.size(); ++c) order[c] = static_cast<std::int32_t>(c);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    if (clusters[a].birth_height != clusters[b].birth_height) return clusters[a].birth_height > clusters[b].birth_height;
    return clusters[a].smallest < clusters[b].smallest;
  });
  for (std::size_t c = 0; c < order.size(); ++c) rank[order[c]] = static_cast<std::int32_t>(c);
  for (std::int32_t o : order) {
    const Cluster& c = clusters[o];
    out.parent.push_back(c.parent < 0 ? -1 : rank[c.parent]);
    out.size.push_back(c.size);
    out.birth_height.push_back(c.birth_height);
    out.birth_lambda.push_back(c.birth_lambda);
    out.stability.push_back(c.stability);
    out.last_lambda.push_back(c.last_lambda);
    out.last_finite.push_back(c.last_finite);
  }
  for (auto& c : out.cluster_of) c = rank[c];
  return out;
}

struct CondensedRecord {
  std::int64_t parent, child;
  double lambda;
  std::int64_t child_size;
};

// Records by (parent, lambda, child); clusters are numbered from n on.
inline std::vector<CondensedRecord> condensed_records(const CondensedTree& tree) {
  const std::int64_t n = static_cast<std::int64_t>(tree.cluster_of.size());
  const std::int64_t n_clusters = static_cast<std::int64_t>(tree.parent.size());
  if (n < 2) return {};  // a single point never leaves anything
  std::vector<std::int64_t> start(n_clusters + 1, 0);
  for (std::int32_t c : tree.cluster_of) ++start[c + 1];
  for (std::int64_t c = 1; c < n_clusters; ++c) ++start[tree.parent[c] + 1];
  for (std::int64_t c = 0; c < n_clusters; ++c) start[c + 1] += start[c];
  std::vector<CondensedRecord> records(start[n_clusters]);
  std::vector<std::int64_t> at(start.begin(), start.end() - 1);
  for (std::int64_t i = 0; i < n; ++i) records[at[tree.cluster_of[i]]++] = {n + tree.cluster_of[i], i, tree.lambda[i], 1};
  for (std::int64_t c = 1; c < n_clusters; ++c)
    records[at[tree.parent[c]]++] = {n + tree.parent[c], n + c, tree.birth_lambda[c], tree.size[c]};
  for (std::int64_t c = 0; c < n_clusters; ++c)
    std::sort(records.begin() + start[c], records.begin() + start[c + 1], [](const CondensedRecord& a, const CondensedRecord& b) {
      return a.lambda < b.lambda || (a.lambda == b.lambda && a.child < b.child);
    });
  return records;
}

}  // namespace mreach
