// Stable sort by an unsigned key of a given number of bits, for many items.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace mreach {

constexpr std::size_t RADIX_SORT_FROM = 2048;  // below, a comparison sort is faster
constexpr int RADIX_BITS = 11;                 // of the key in one pass

// scratch: room for as many items.
template <class Item, class Key>
inline void radix_sort(Item* items, Item* scratch, std::size_t count, int key_bits, const Key& key) {
  constexpr std::size_t n_buckets = std::size_t(1) << RADIX_BITS;
  if (count == 0) return;
  Item *from = items, *to = scratch;
  for (int shift = 0; shift < key_bits; shift += RADIX_BITS) {
    auto bucket = [&](const Item& item) { return static_cast<std::size_t>(key(item) >> shift) & (n_buckets - 1); };
    std::size_t at[n_buckets] = {};
    for (std::size_t i = 0; i < count; ++i) ++at[bucket(from[i])];
    if (at[bucket(from[0])] == count) continue;  // all in one
    std::size_t start = 0;
    for (std::size_t& a : at) start += std::exchange(a, start);
    for (std::size_t i = 0; i < count; ++i) to[at[bucket(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != items) std::copy(from, from + count, items);
}

// How many bits it takes to write `value`.
inline int bits_of(std::uint64_t value) {
  int bits = 0;
  for (; bits < 64 && value >> bits > 0; ++bits) {
  }
  return bits;
}

}  // namespace mreach
