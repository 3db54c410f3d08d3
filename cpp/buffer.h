// Aligned, uninitialised arrays: what the kernels load from.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace mreach {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t size) { resize_discard(size); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() { free(); }

  // Holds `size` elements afterwards; what was stored is lost. Memory is kept when it is large enough.
  void resize_discard(std::size_t size) {
    if (size > capacity_) {
      free();
      data_ = nullptr;
      capacity_ = 0;
      data_ = allocate(size);
      capacity_ = size;
    }
    size_ = size;
  }
  void fill(T value) {
    for (std::size_t i = 0; i < size_; ++i) data_[i] = value;
  }
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  void release() {
    Buffer empty;
    swap(empty);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  static constexpr std::size_t ALIGNMENT = 64;
  // From this size on memory comes in huge pages where the system has them: the first touch of so many small ones
  // takes as long as what is computed in them.
  static constexpr std::size_t HUGE_PAGE = std::size_t(1) << 21, HUGE_PAGES_FROM = std::size_t(1) << 20;

  // One vector of slack, so that a full-width load of the last elements stays inside.
  static std::size_t bytes_of(std::size_t size) { return size * sizeof(T) + ALIGNMENT; }
  static std::align_val_t alignment_of(std::size_t size) {
    return std::align_val_t(bytes_of(size) < HUGE_PAGES_FROM ? ALIGNMENT : HUGE_PAGE);
  }
  static T* allocate(std::size_t size) {
    std::size_t bytes = bytes_of(size);
    if (bytes >= HUGE_PAGES_FROM) bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void* memory = ::operator new(bytes, alignment_of(size));
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_PAGES_FROM) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return static_cast<T*>(memory);
  }
  void free() { ::operator delete(data_, alignment_of(capacity_)); }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace mreach
