// Atomic operations. One OS thread runs all fibers, so that plain code is atomic; a random schedule yields here.
#pragma once

namespace emu {
template <class T>
struct Same {
    using type = T;
};
template <class T>
using As = typename Same<T>::type;

template <class T>
constexpr bool is_int = std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
template <class T>
constexpr bool is_int_or_i64 = is_int<T> || std::is_same_v<T, long long>;

template <class T, class F>
inline T read_modify_write(T* p, F f) {
    maybe_yield();
    T old = *static_cast<volatile T*>(p);
    *static_cast<volatile T*>(p) = f(old);
    return old;
}
template <class T>
inline T wrapping_add(T a, T b) {
    if constexpr (std::is_integral_v<T>) return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else return a + b;
}
}  // namespace emu

#define EMU_ATOMIC(NAME, ALLOWED, EXPRESSION)                                      \
    template <class T>                                                             \
    inline T NAME(T* p, emu::As<T> value) {                                        \
        static_assert(ALLOWED, #NAME " of this type does not exist in CUDA");      \
        return emu::read_modify_write(p, [value](T old) -> T { return EXPRESSION; }); \
    }
EMU_ATOMIC(atomicAdd, emu::is_int<T> || std::is_floating_point_v<T>, emu::wrapping_add(old, value))
EMU_ATOMIC(atomicMin, emu::is_int_or_i64<T>, value < old ? value : old)
EMU_ATOMIC(atomicMax, emu::is_int_or_i64<T>, old < value ? value : old)
EMU_ATOMIC(atomicOr, emu::is_int_or_i64<T>, old | value)
EMU_ATOMIC(atomicAnd, emu::is_int_or_i64<T>, old & value)
EMU_ATOMIC(atomicXor, emu::is_int_or_i64<T>, old ^ value)
EMU_ATOMIC(atomicExch, emu::is_int<T> || (std::is_same_v<T, float>), ((void)old, value))
#undef EMU_ATOMIC

template <class T>
inline T atomicSub(T* p, emu::As<T> value) {
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>, "atomicSub takes int and unsigned");
    return emu::read_modify_write(p, [value](T old) { return T(unsigned(old) - unsigned(value)); });
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
    return emu::read_modify_write(p, [limit](unsigned old) { return old >= limit ? 0u : old + 1; });
}
template <class T>
inline T atomicCAS(T* p, emu::As<T> expected, emu::As<T> value) {
    static_assert(emu::is_int<T> || std::is_same_v<T, unsigned short>, "atomicCAS of this type does not exist in CUDA");
    return emu::read_modify_write(p, [=](T old) { return old == expected ? value : old; });
}
