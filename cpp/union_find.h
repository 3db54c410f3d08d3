// The one union-find of the tree and of everything that is built from it.
#pragma once
#include <cstdint>
#include <vector>

namespace mreach {

// Root of i; halves the path on the way.
inline std::int32_t find_root(std::vector<std::int32_t>& parent, std::int32_t i) {
  for (std::size_t hop = 0; hop < parent.size() && parent[i] != i; ++hop) {
    parent[i] = parent[parent[i]];
    i = parent[i];
  }
  return i;
}

}  // namespace mreach
