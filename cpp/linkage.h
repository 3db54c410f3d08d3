// The spanning tree as scipy's linkage matrix: edges merged one by one, in their order.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

#include "buffer.h"
#include "records.h"
#include "union_find.h"

namespace mreach {

// Edges in order of weight lead to points all over the memory, whose parents lead on: both are asked for ahead.
constexpr std::int32_t ENDS_AHEAD = 16, PARENTS_AHEAD = 8;

inline void prefetch_ends(const EdgeRecord* edges, std::int32_t e, std::int32_t n_edges, const std::int32_t* parent) {
  if (e + ENDS_AHEAD >= n_edges) return;
  __builtin_prefetch(parent + edges[e + ENDS_AHEAD].source, 1);
  __builtin_prefetch(parent + edges[e + ENDS_AHEAD].target, 1);
  __builtin_prefetch(parent + std::max(0, parent[edges[e + PARENTS_AHEAD].source]), 1);
  __builtin_prefetch(parent + std::max(0, parent[edges[e + PARENTS_AHEAD].target]), 1);
}

// edges: n - 1 of them, sorted. out: as many.
inline void write_linkage(const EdgeRecord* edges, std::int32_t n, MergeRecord* out) {
  Buffer<std::int32_t> parent(n), node(n);  // of a root: its size, negative; the merge that made it
  parent.fill(-1);
  for (std::int32_t e = 0; e < n - 1; ++e) {
    prefetch_ends(edges, e, n - 1, parent.data());
    std::int32_t x = find_root(parent.data(), static_cast<std::int32_t>(edges[e].source));
    std::int32_t y = find_root(parent.data(), static_cast<std::int32_t>(edges[e].target));
    const std::int32_t a = parent[x] == -1 ? x : node[x], b = parent[y] == -1 ? y : node[y];
    const std::int32_t size = parent[x] + parent[y];
    if (parent[x] > parent[y]) std::swap(x, y);
    parent[y] = x;
    parent[x] = size;
    node[x] = n + e;
    out[e] = {static_cast<double>(std::min(a, b)), static_cast<double>(std::max(a, b)), edges[e].weight, -static_cast<double>(size)};
  }
}

}  // namespace mreach
