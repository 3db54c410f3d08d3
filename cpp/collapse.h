// Equal rows collapse to their smallest row; how many there were stays as its multiplicity.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "workers.h"

namespace mreach {

// The bits of a value with -0 turned into +0.
inline std::uint64_t value_bits(float v) {
  const float w = v + 0.0f;
  std::uint32_t bits;
  std::memcpy(&bits, &w, sizeof bits);
  return bits;
}
inline std::uint64_t value_bits(double v) {
  const double w = v + 0.0;
  std::uint64_t bits;
  std::memcpy(&bits, &w, sizeof bits);
  return bits;
}

template <class Value>
inline std::uint64_t hash_row(const Value* row, int n_features) {
  // Two chains, so that the multiplications overlap.
  std::uint64_t even = 0x9e3779b97f4a7c15u, odd = 0xc2b2ae3d27d4eb4fu;
  int f = 0;
  for (; f + 1 < n_features; f += 2) {
    even = (even ^ value_bits(row[f])) * 0xff51afd7ed558ccdu;
    odd = (odd ^ value_bits(row[f + 1])) * 0xc4ceb9fe1a85ec53u;
    even ^= even >> 32;
    odd ^= odd >> 29;
  }
  if (f < n_features) even = (even ^ value_bits(row[f])) * 0xff51afd7ed558ccdu;
  std::uint64_t h = even + odd * 0x9fb21c651e98df25u;
  h ^= h >> 31;
  return h * 0xd6e8feb86659fd93u ^ (h >> 27);
}

template <class Value>
inline bool equal_rows(const Value* a, const Value* b, int n_features) {
  for (int f = 0; f < n_features; ++f)
    if (a[f] != b[f]) return false;
  return true;
}

struct Collapsed {
  std::vector<std::int32_t> representatives;    // ascending rows
  std::vector<std::int32_t> multiplicity;       // of each representative
  std::vector<std::int32_t> copy, copy_of;      // the other rows, ascending, and the index of their representative
};

template <class Value>
Collapsed collapse_equal_rows(const Value* X, std::int64_t n, int n_features, Workers& workers) {
  std::vector<std::uint64_t> hash(n);
  workers.run(n, 4096, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) hash[i] = hash_row(X + i * n_features, n_features);
  });
  std::size_t slots = 16;
  for (int doubling = 0; doubling < 48 && slots < static_cast<std::size_t>(n) * 2; ++doubling) slots *= 2;
  const std::size_t mask = slots - 1;
  std::vector<std::int32_t> table(slots, -1);  // index into representatives
  Collapsed result;
  result.representatives.reserve(n);
  result.multiplicity.reserve(n);
  for (std::int64_t i = 0; i < n; ++i) {
    if (i % 65536 == 0 && workers.checkpoint(0)) throw Cancelled();
    if (i + 16 < n) __builtin_prefetch(&table[hash[i + 16] & mask]);
    std::size_t slot = hash[i] & mask;
    for (std::size_t probe = 0; probe < slots; ++probe, slot = (slot + 1) & mask) {
      const std::int32_t r = table[slot];
      if (r < 0) {
        table[slot] = static_cast<std::int32_t>(result.representatives.size());
        result.representatives.push_back(static_cast<std::int32_t>(i));
        result.multiplicity.push_back(1);
        break;
      }
      const std::int64_t j = result.representatives[r];
      if (hash[j] == hash[i] && equal_rows(X + i * n_features, X + j * n_features, n_features)) {
        ++result.multiplicity[r];
        result.copy.push_back(static_cast<std::int32_t>(i));
        result.copy_of.push_back(r);
        break;
      }
    }
  }
  return result;
}

}  // namespace mreach
