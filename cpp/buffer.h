// Aligned, uninitialised arrays: what the kernels load from.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

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
  ~Buffer() { ::operator delete(data_, std::align_val_t(ALIGNMENT)); }

  // Holds `size` elements afterwards; what was stored is lost. Memory is kept when it is large enough.
  void resize_discard(std::size_t size) {
    if (size > capacity_) {
      ::operator delete(data_, std::align_val_t(ALIGNMENT));
      data_ = nullptr;
      capacity_ = 0;
      // One vector of slack, so that a full-width load of the last elements stays inside.
      data_ = static_cast<T*>(::operator new(size * sizeof(T) + ALIGNMENT, std::align_val_t(ALIGNMENT)));
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
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace mreach
