// Edges in the one order that everything uses: (weight, lower row, higher row).
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "best_edges.h"

namespace mreach {

constexpr std::size_t RADIX_FROM = 4096;  // below, a comparison sort is faster
constexpr int RADIX_BITS = 11, RADIX_PASSES = 6;

// Weights are not negative, so their bits order as they do.
inline void sort_edges(std::vector<Edge>& edges) {
  if (edges.size() < RADIX_FROM) {
    std::sort(edges.begin(), edges.end());
    return;
  }
  const std::size_t buckets = std::size_t(1) << RADIX_BITS;
  auto key = [](const Edge& e) {
    std::uint64_t bits;
    std::memcpy(&bits, &e.weight, sizeof bits);
    return bits;
  };
  std::vector<std::vector<std::size_t>> histogram(RADIX_PASSES, std::vector<std::size_t>(buckets, 0));
  for (const Edge& e : edges)
    for (int pass = 0; pass < RADIX_PASSES; ++pass) ++histogram[pass][key(e) >> (RADIX_BITS * pass) & (buckets - 1)];
  std::vector<Edge> other(edges.size());
  for (int pass = 0; pass < RADIX_PASSES; ++pass) {
    auto& count = histogram[pass];
    if (std::find(count.begin(), count.end(), edges.size()) != count.end()) continue;  // all in one bucket
    std::size_t start = 0;
    for (auto& c : count) {
      const std::size_t here = c;
      c = start;
      start += here;
    }
    for (const Edge& e : edges) other[count[key(e) >> (RADIX_BITS * pass) & (buckets - 1)]++] = e;
    edges.swap(other);
  }
  for (std::size_t begin = 0; begin < edges.size();) {
    std::size_t end = begin + 1;
    for (; end < edges.size() && edges[end].weight == edges[begin].weight; ++end) {
    }
    if (end - begin > 1) std::sort(edges.begin() + begin, edges.begin() + end);
    begin = end;
  }
}

}  // namespace mreach
