// The one union-find of the tree and of everything that is built from it.
#pragma once
#include <cstdint>

namespace mreach {

// Root of i; halves the path on the way. A root's parent is negative; which number it is belongs to the caller.
inline std::int32_t find_root(std::int32_t* parent, std::int32_t i) {
  for (std::int32_t above = parent[i]; above >= 0; above = parent[i]) {
    const std::int32_t next = parent[above];
    if (next < 0) return above;
    parent[i] = next;
    i = next;
  }
  return i;
}

}  // namespace mreach
