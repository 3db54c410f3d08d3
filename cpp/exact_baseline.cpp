// Exact sums for every processor.
#include "exact.h"

namespace mreach {
namespace baseline {

void exact_sums_float(const float* x, const float* const* candidates, int n_features, double* sums) {
  exact_sums(x, candidates, n_features, sums);
}
void exact_sums_double(const double* x, const double* const* candidates, int n_features, double* sums) {
  exact_sums(x, candidates, n_features, sums);
}

}  // namespace baseline
}  // namespace mreach
