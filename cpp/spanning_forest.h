// The minimum spanning forest of a graph given by its edges: Kruskal's algorithm in the one order of edges.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "best_edges.h"
#include "edge_sort.h"
#include "records.h"
#include "union_find.h"

namespace mreach {

// Ends in any order; weights are not negative, and may be infinite. Sorted by (weight, lower row, higher row).
inline std::vector<EdgeRecord> spanning_forest(std::int64_t n, std::int64_t n_edges, const std::int64_t* source,
                                               const std::int64_t* target, const double* weight) {
  std::vector<Edge> edges;
  edges.reserve(n_edges);
  for (std::int64_t e = 0; e < n_edges; ++e) {
    const std::int32_t a = static_cast<std::int32_t>(source[e]), b = static_cast<std::int32_t>(target[e]);
    if (a != b) edges.push_back({weight[e] + 0.0, std::min(a, b), std::max(a, b)});  // -0 + 0 is 0, whose bits sort first
  }
  sort_edges(edges);
  std::vector<std::int32_t> parent(n, -1);
  std::vector<EdgeRecord> forest;
  forest.reserve(n > 0 ? n - 1 : 0);
  for (const Edge& edge : edges) {
    std::int32_t a = find_root(parent.data(), edge.lower), b = find_root(parent.data(), edge.higher);
    if (a == b) continue;
    if (parent[a] > parent[b]) std::swap(a, b);  // a root's parent is its size, negative
    parent[a] += parent[b];
    parent[b] = a;
    forest.push_back({edge.lower, edge.higher, edge.weight});
  }
  return forest;
}

}  // namespace mreach
