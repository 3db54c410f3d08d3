// Edges in the one order that everything uses: (weight, lower row, higher row).
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "best_edges.h"
#include "radix_sort.h"

namespace mreach {

constexpr int WEIGHT_KEY_BITS = 3 * RADIX_BITS;

// Weights are not negative, so their bits order as they do.
inline std::uint64_t weight_bits(const Edge& edge) {
  std::uint64_t bits;
  std::memcpy(&bits, &edge.weight, sizeof bits);
  return bits;
}

// Sorts by the leading bits in which weights differ, then what these leave equal by all there is.
inline void sort_edges(std::vector<Edge>& edges) {
  if (edges.size() < RADIX_SORT_FROM) {
    std::sort(edges.begin(), edges.end());
    return;
  }
  std::uint64_t lowest = UINT64_MAX, highest = 0;
  std::int32_t last_row = 0;
  for (const Edge& edge : edges) {
    lowest = std::min(lowest, weight_bits(edge));
    highest = std::max(highest, weight_bits(edge));
    last_row = std::max(last_row, edge.higher);
  }
  const int dropped = std::max(0, bits_of(highest - lowest) - WEIGHT_KEY_BITS), row_bits = bits_of(last_row);
  auto key = [&](const Edge& edge) { return (weight_bits(edge) - lowest) >> dropped; };
  std::vector<Edge> scratch(edges.size());
  radix_sort(edges.data(), scratch.data(), edges.size(), WEIGHT_KEY_BITS, key);
  for (std::size_t begin = 0, end = 0; begin < edges.size(); begin = end) {
    bool same_weight = true;
    for (end = begin + 1; end < edges.size() && key(edges[end]) == key(edges[begin]); ++end)
      same_weight &= edges[end].weight == edges[begin].weight;
    if (same_weight && end - begin >= RADIX_SORT_FROM) {
      radix_sort(edges.data() + begin, scratch.data(), end - begin, row_bits, [](const Edge& e) { return std::uint64_t(e.higher); });
      radix_sort(edges.data() + begin, scratch.data(), end - begin, row_bits, [](const Edge& e) { return std::uint64_t(e.lower); });
    } else if (end - begin > 1) {
      std::sort(edges.begin() + begin, edges.begin() + end);
    }
  }
}

}  // namespace mreach
