// The names that CUDA C++ has built in, for a C++17 compiler: kernel sources compile unchanged with this in front.
#pragma once

#include "launch.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <fenv.h>
#endif

#undef INFINITY
#undef NAN

// __global__ and __shared__ stay as they are: compile.py reads them in the preprocessed source.
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (::emu::state.current->thread)
#define blockIdx (::emu::state.block_index)
#define blockDim (::emu::state.block)
#define gridDim (::emu::state.grid)
#define warpSize 32

// Vector types
#define EMU_VECTOR2(NAME, T, ALIGN)                                        \
    struct alignas(ALIGN) NAME {                                           \
        T x, y;                                                            \
    };                                                                     \
    inline NAME make_##NAME(T x, T y) { return NAME{x, y}; }
#define EMU_VECTOR3(NAME, T)                                               \
    struct NAME {                                                          \
        T x, y, z;                                                         \
    };                                                                     \
    inline NAME make_##NAME(T x, T y, T z) { return NAME{x, y, z}; }
#define EMU_VECTOR4(NAME, T, ALIGN)                                        \
    struct alignas(ALIGN) NAME {                                           \
        T x, y, z, w;                                                      \
    };                                                                     \
    inline NAME make_##NAME(T x, T y, T z, T w) { return NAME{x, y, z, w}; }
EMU_VECTOR2(char2, signed char, 2)
EMU_VECTOR2(uchar2, unsigned char, 2)
EMU_VECTOR2(short2, short, 4)
EMU_VECTOR2(ushort2, unsigned short, 4)
EMU_VECTOR2(int2, int, 8)
EMU_VECTOR2(uint2, unsigned, 8)
EMU_VECTOR2(float2, float, 8)
EMU_VECTOR2(double2, double, 16)
EMU_VECTOR2(longlong2, long long, 16)
EMU_VECTOR2(ulonglong2, unsigned long long, 16)
EMU_VECTOR3(int3, int)
EMU_VECTOR3(float3, float)
EMU_VECTOR3(double3, double)
EMU_VECTOR4(char4, signed char, 4)
EMU_VECTOR4(uchar4, unsigned char, 4)
EMU_VECTOR4(short4, short, 8)
EMU_VECTOR4(ushort4, unsigned short, 8)
EMU_VECTOR4(int4, int, 16)
EMU_VECTOR4(uint4, unsigned, 16)
EMU_VECTOR4(float4, float, 16)
EMU_VECTOR4(double4, double, 16)
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return uint3{x, y, z}; }

// Where a call stands: default arguments name the caller's line.
#define EMU_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// Barriers and fences
inline void __syncthreads(EMU_PLACE) { emu::block_barrier(0, true, file, line); }
inline int __syncthreads_or(int vote, EMU_PLACE) { return emu::block_barrier(1, vote != 0, file, line); }
inline int __syncthreads_and(int vote, EMU_PLACE) { return emu::block_barrier(2, vote != 0, file, line); }
inline int __syncthreads_count(int vote, EMU_PLACE) { return emu::block_barrier(3, vote != 0, file, line); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, EMU_PLACE) {
    emu::warp_collective(emu::SYNC_WARP, mask, nullptr, file, line, [](emu::Group&) {});
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// Warp votes
namespace emu {
struct Vote {
    bool mine;
    unsigned all;
};
inline unsigned vote(unsigned mask, bool mine, const char* file, int line) {
    Vote one{mine, 0};
    warp_collective(VOTE, mask, &one, file, line, [](Group& group) {
        unsigned all = 0;
        for (unsigned lane = 0; lane < WARP; ++lane)
            if (group.mask >> lane & 1) all |= unsigned(static_cast<Vote*>(group.exchange[lane])->mine) << lane;
        for (unsigned lane = 0; lane < WARP; ++lane)
            if (group.mask >> lane & 1) static_cast<Vote*>(group.exchange[lane])->all = all;
    });
    return one.all;
}

template <class T>
struct Shuffle {
    T value, result;
    int source;
};

// source: the lane to read from.
template <class T>
inline T shuffle(unsigned mask, T value, int source, const char* file, int line) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4, "CUDA does not shuffle this type");
    Shuffle<T> one{value, value, source};
    warp_collective(SHUFFLE, mask, &one, file, line, [](Group& group) {
        for (unsigned lane = 0; lane < WARP; ++lane) {
            if (!(group.mask >> lane & 1)) continue;
            auto* reader = static_cast<Shuffle<T>*>(group.exchange[lane]);
            if (!(group.mask >> reader->source & 1))
                fail("lane %u shuffles from lane %d, which is not in the mask %08x (%s:%d)", lane, reader->source,
                     group.mask, group.file, group.line);
            reader->result = static_cast<Shuffle<T>*>(group.exchange[reader->source])->value;
        }
    });
    return one.result;
}

inline int my_lane() { return int(state.current->lane); }
inline void check_width(int width) {
    if (width < 1 || width > 32 || (width & (width - 1))) fail("shuffle width %d is not a power of two up to 32", width);
}
}  // namespace emu

inline unsigned __ballot_sync(unsigned mask, int p, EMU_PLACE) { return emu::vote(mask, p != 0, file, line); }
inline int __any_sync(unsigned mask, int p, EMU_PLACE) { return emu::vote(mask, p != 0, file, line) != 0; }
inline int __all_sync(unsigned mask, int p, EMU_PLACE) { return emu::vote(mask, p != 0, file, line) == mask; }

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_PLACE) {
    emu::check_width(width);
    int lane = emu::my_lane();
    return emu::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), file, line);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_PLACE) {
    emu::check_width(width);
    int lane = emu::my_lane(), source = lane - int(delta & 31);
    return emu::shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source, file, line);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_PLACE) {
    emu::check_width(width);
    int lane = emu::my_lane(), source = lane + int(delta & 31);
    return emu::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, file, line);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32, EMU_PLACE) {
    emu::check_width(width);
    int lane = emu::my_lane(), source = lane ^ (flip & 31);
    return emu::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, file, line);
}

// Integers and bits
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)(a) * b >> 64);
}
inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; ++i) result |= (x >> i & 1u) << (31 - i);
    return result;
}
template <class T>
inline T __ldg(const T* p) {
    return *p;
}

namespace emu {
template <class To, class From>
inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
}  // namespace emu
inline unsigned __float_as_uint(float x) { return emu::same_bits<unsigned>(x); }
inline int __float_as_int(float x) { return emu::same_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emu::same_bits<float>(x); }
inline float __int_as_float(int x) { return emu::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emu::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emu::same_bits<double>(x); }

// min and max as the hardware has them: a NaN gives way, -0 is less than +0.
#define EMU_MIN_MAX(NAME_MIN, NAME_MAX, T)                                                                \
    inline T NAME_MIN(T a, T b) {                                                                         \
        return a != a ? b : b != b ? a : a < b ? a : b < a ? b : __builtin_signbit(a) ? a : b;            \
    }                                                                                                     \
    inline T NAME_MAX(T a, T b) {                                                                         \
        return a != a ? b : b != b ? a : a > b ? a : b > a ? b : __builtin_signbit(a) ? b : a;            \
    }
namespace emu {
EMU_MIN_MAX(minimum, maximum, float)
EMU_MIN_MAX(minimum, maximum, double)
template <class T, class U>
using Common = std::common_type_t<T, U>;
}  // namespace emu
#define fminf(a, b) ::emu::minimum(float(a), float(b))
#define fmaxf(a, b) ::emu::maximum(float(a), float(b))
namespace emu {
template <class T, class U>
inline auto fmin_of(T a, U b) {
    using R = std::conditional_t<std::is_same_v<T, float> && std::is_same_v<U, float>, float, double>;
    return minimum(R(a), R(b));
}
template <class T, class U>
inline auto fmax_of(T a, U b) {
    using R = std::conditional_t<std::is_same_v<T, float> && std::is_same_v<U, float>, float, double>;
    return maximum(R(a), R(b));
}
}  // namespace emu
#define fmin(a, b) ::emu::fmin_of(a, b)
#define fmax(a, b) ::emu::fmax_of(a, b)
template <class T, class U>
inline emu::Common<T, U> min(T a, U b) {
    using R = emu::Common<T, U>;
    if constexpr (std::is_floating_point_v<R>) return emu::minimum(R(a), R(b));
    else return R(b) < R(a) ? R(b) : R(a);
}
template <class T, class U>
inline emu::Common<T, U> max(T a, U b) {
    using R = emu::Common<T, U>;
    if constexpr (std::is_floating_point_v<R>) return emu::maximum(R(a), R(b));
    else return R(a) < R(b) ? R(b) : R(a);
}

#include "atomics.h"
#include "rounding.h"
