// The records that the core and NumPy share: laid out as the dtypes in records.py.
#pragma once
#include <cstdint>

namespace mreach {

struct EdgeRecord {  // EDGE_DTYPE
  std::int64_t source, target;
  double weight;
};

struct CondensedRecord {  // CONDENSED_DTYPE
  std::int64_t parent, child;
  double lambda;
  std::int64_t child_size;
};

struct MergeRecord {  // a row of scipy's linkage matrix
  double left, right, weight, size;
};

static_assert(sizeof(EdgeRecord) == 24 && sizeof(CondensedRecord) == 32 && sizeof(MergeRecord) == 32,
              "records have no padding");

}  // namespace mreach
