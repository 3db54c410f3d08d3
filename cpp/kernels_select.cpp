// Which compiled set of kernels runs: decided from the processor, once a fit.
#include "kernels.h"

#include <cstring>

namespace mreach {

namespace baseline {
extern const Kernels KERNELS;
}
#if defined(MREACH_X86)
namespace avx2 {
extern const Kernels KERNELS;
}
namespace avx512 {
extern const Kernels KERNELS;
}
#endif

static int list_kernels(const Kernels** sets) {
  int count = 0;
#if defined(MREACH_X86)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    sets[count++] = &avx512::KERNELS;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets[count++] = &avx2::KERNELS;
#endif
  sets[count++] = &baseline::KERNELS;
  return count;
}

int available_kernels(const char** names, int capacity) {
  const Kernels* sets[3];
  const int count = list_kernels(sets);
  for (int i = 0; i < count && i < capacity; ++i) names[i] = sets[i]->name;
  return count;
}

const Kernels* select_kernels(const char* name) {
  const Kernels* sets[3];
  const int count = list_kernels(sets);
  if (!name || !*name) return sets[0];
  for (int i = 0; i < count; ++i)
    if (!std::strcmp(sets[i]->name, name)) return sets[i];
  return nullptr;
}

}  // namespace mreach
