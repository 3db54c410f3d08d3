// Arithmetic and conversions that round in a stated direction. The instruction stands between two changes of the
// rounding mode in one asm statement, so that the compiler cannot move it.
#pragma once

namespace emu {
#if defined(__x86_64__)
constexpr unsigned RN = 0x1F80, RD = 0x3F80, RU = 0x5F80, RZ = 0x7F80;
#define EMU_TWO(NAME, T, INSTRUCTION, OPERATOR)                                                            \
    template <unsigned MODE>                                                                               \
    inline T NAME(T a, T b) {                                                                              \
        const unsigned mode = MODE, normal = RN;                                                           \
        asm("ldmxcsr %2\n\t" INSTRUCTION " %1, %0\n\tldmxcsr %3" : "+x"(a) : "x"(b), "m"(mode), "m"(normal)); \
        return a;                                                                                          \
    }
#define EMU_ONE(NAME, T, FROM, INSTRUCTION, CONSTRAINT, FALLBACK)                                          \
    template <unsigned MODE>                                                                               \
    inline T NAME(FROM a) {                                                                                \
        const unsigned mode = MODE, normal = RN;                                                           \
        T result;                                                                                          \
        asm("ldmxcsr %2\n\tpxor %0, %0\n\t" INSTRUCTION " %1, %0\n\tldmxcsr %3"                            \
            : "=&x"(result)                                                                                \
            : CONSTRAINT(a), "m"(mode), "m"(normal));                                                      \
        return result;                                                                                     \
    }
#else
constexpr unsigned RN = 0, RD = 1, RU = 2, RZ = 3;
template <unsigned MODE>
struct Direction {
    Direction() { fesetround(MODE == RN ? FE_TONEAREST : MODE == RD ? FE_DOWNWARD : MODE == RU ? FE_UPWARD : FE_TOWARDZERO); }
    ~Direction() { fesetround(FE_TONEAREST); }
};
#define EMU_TWO(NAME, T, INSTRUCTION, OPERATOR)    \
    template <unsigned MODE>                       \
    inline T NAME(T a, T b) {                      \
        volatile T x = a, y = b, result;           \
        {                                          \
            Direction<MODE> direction;             \
            result = x OPERATOR y;                 \
        }                                          \
        return result;                             \
    }
#define EMU_ONE(NAME, T, FROM, INSTRUCTION, CONSTRAINT, FALLBACK) \
    template <unsigned MODE>                                      \
    inline T NAME(FROM a) {                                       \
        volatile FROM x = a;                                      \
        volatile T result;                                        \
        {                                                         \
            Direction<MODE> direction;                            \
            result = FALLBACK(x);                                 \
        }                                                         \
        return result;                                            \
    }
#endif
EMU_TWO(add, float, "addss", +)
EMU_TWO(sub, float, "subss", -)
EMU_TWO(mul, float, "mulss", *)
EMU_TWO(div, float, "divss", /)
EMU_TWO(add, double, "addsd", +)
EMU_TWO(sub, double, "subsd", -)
EMU_TWO(mul, double, "mulsd", *)
EMU_TWO(div, double, "divsd", /)
EMU_ONE(root, float, float, "sqrtss", "x", sqrtf)
EMU_ONE(root, double, double, "sqrtsd", "x", sqrt)
EMU_ONE(to_float, float, double, "cvtsd2ss", "x", float)
EMU_ONE(to_float, float, int, "cvtsi2ssl", "r", float)
EMU_ONE(to_float, float, long long, "cvtsi2ssq", "r", float)
EMU_ONE(to_double, double, long long, "cvtsi2sdq", "r", double)
#undef EMU_TWO
#undef EMU_ONE

template <unsigned MODE>
inline float to_float(unsigned a) { return to_float<MODE>((long long)(a)); }

#if defined(__x86_64__) && defined(__FMA__)
#define EMU_FMA(T, INSTRUCTION, FALLBACK)                                                                          \
    template <unsigned MODE>                                                                                       \
    inline T multiply_add(T a, T b, T c) {                                                                         \
        if constexpr (MODE == RN) return FALLBACK(a, b, c);                                                        \
        const unsigned mode = MODE, normal = RN;                                                                   \
        asm("vldmxcsr %3\n\t" INSTRUCTION " %2, %1, %0\n\tvldmxcsr %4"                                             \
            : "+x"(c)                                                                                              \
            : "x"(a), "x"(b), "m"(mode), "m"(normal));                                                             \
        return c;                                                                                                  \
    }
EMU_FMA(float, "vfmadd231ss", __builtin_fmaf)
EMU_FMA(double, "vfmadd231sd", __builtin_fma)
#undef EMU_FMA
#else
// The C library's fma obeys the rounding mode.
inline void set_direction(unsigned mode) {
#if defined(__x86_64__)
    _mm_setcsr(mode);
#else
    fesetround(mode == RN ? FE_TONEAREST : mode == RD ? FE_DOWNWARD : mode == RU ? FE_UPWARD : FE_TOWARDZERO);
#endif
}
template <unsigned MODE, class T>
inline T multiply_add(T a, T b, T c) {
    volatile T x = a, y = b, z = c, result;
    set_direction(MODE);
    if constexpr (sizeof(T) == 4) result = fmaf(x, y, z);
    else result = fma(x, y, z);
    set_direction(RN);
    return result;
}
#endif
}  // namespace emu

#define EMU_DIRECTIONS(MODE, SUFFIX)                                                                          \
    inline float __fadd_##SUFFIX(float a, float b) { return emu::add<emu::MODE>(a, b); }                      \
    inline float __fsub_##SUFFIX(float a, float b) { return emu::sub<emu::MODE>(a, b); }                      \
    inline float __fmul_##SUFFIX(float a, float b) { return emu::mul<emu::MODE>(a, b); }                      \
    inline float __fdiv_##SUFFIX(float a, float b) { return emu::div<emu::MODE>(a, b); }                      \
    inline float __frcp_##SUFFIX(float a) { return emu::div<emu::MODE>(1.0f, a); }                            \
    inline float __fsqrt_##SUFFIX(float a) { return emu::root<emu::MODE>(a); }                                \
    inline float __fmaf_##SUFFIX(float a, float b, float c) { return emu::multiply_add<emu::MODE>(a, b, c); } \
    inline double __dadd_##SUFFIX(double a, double b) { return emu::add<emu::MODE>(a, b); }                   \
    inline double __dsub_##SUFFIX(double a, double b) { return emu::sub<emu::MODE>(a, b); }                   \
    inline double __dmul_##SUFFIX(double a, double b) { return emu::mul<emu::MODE>(a, b); }                   \
    inline double __ddiv_##SUFFIX(double a, double b) { return emu::div<emu::MODE>(a, b); }                   \
    inline double __dsqrt_##SUFFIX(double a) { return emu::root<emu::MODE>(a); }                              \
    inline double __fma_##SUFFIX(double a, double b, double c) { return emu::multiply_add<emu::MODE>(a, b, c); } \
    inline float __double2float_##SUFFIX(double a) { return emu::to_float<emu::MODE>(a); }                    \
    inline float __int2float_##SUFFIX(int a) { return emu::to_float<emu::MODE>(a); }                          \
    inline float __uint2float_##SUFFIX(unsigned a) { return emu::to_float<emu::MODE>(a); }                    \
    inline float __ll2float_##SUFFIX(long long a) { return emu::to_float<emu::MODE>(a); }                     \
    inline double __ll2double_##SUFFIX(long long a) { return emu::to_double<emu::MODE>(a); }
EMU_DIRECTIONS(RD, rd)
EMU_DIRECTIONS(RU, ru)
EMU_DIRECTIONS(RZ, rz)
#undef EMU_DIRECTIONS

// To nearest: what the compiler does anyway.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float __double2float_rn(double a) { return float(a); }
inline float __int2float_rn(int a) { return float(a); }
inline float __uint2float_rn(unsigned a) { return float(a); }
inline float __ll2float_rn(long long a) { return float(a); }
inline double __ll2double_rn(long long a) { return double(a); }
inline double __int2double_rn(int a) { return double(a); }

// To integers: out of range saturates, NaN becomes 0 (64 bits: the least number).
namespace emu {
inline int saturated_int(double x) {
    return x != x ? 0 : x >= 2147483647.0 ? 2147483647 : x <= -2147483648.0 ? -2147483647 - 1 : int(x);
}
inline unsigned saturated_unsigned(double x) { return !(x > 0) ? 0u : x >= 4294967295.0 ? 4294967295u : unsigned(x); }
inline long long saturated_i64(double x) {
    const long long least = -9223372036854775807LL - 1;
    return x != x ? least : x >= 0x1p63 ? 9223372036854775807LL : x <= -0x1p63 ? least : (long long)(x);
}
}  // namespace emu
#define EMU_TO_INTEGER(SUFFIX, ROUND)                                                                  \
    inline int __float2int_##SUFFIX(float a) { return emu::saturated_int(ROUND(double(a))); }          \
    inline int __double2int_##SUFFIX(double a) { return emu::saturated_int(ROUND(a)); }                \
    inline unsigned __float2uint_##SUFFIX(float a) { return emu::saturated_unsigned(ROUND(double(a))); } \
    inline unsigned __double2uint_##SUFFIX(double a) { return emu::saturated_unsigned(ROUND(a)); }     \
    inline long long __float2ll_##SUFFIX(float a) { return emu::saturated_i64(ROUND(double(a))); }     \
    inline long long __double2ll_##SUFFIX(double a) { return emu::saturated_i64(ROUND(a)); }
EMU_TO_INTEGER(rd, floor)
EMU_TO_INTEGER(ru, ceil)
EMU_TO_INTEGER(rz, trunc)
EMU_TO_INTEGER(rn, nearbyint)
#undef EMU_TO_INTEGER
