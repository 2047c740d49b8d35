// C++: classes, virtual calls, exceptions with objects in shared memory, references, containers with an allocator of
// shared memory.
#include "../fake.h"
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <forward_list>
#include <memory>
#include <new>
#include <string>
#include <vector>

template <class T> struct Shared {
    using value_type = T;
    Shared() = default;
    template <class U> Shared(const Shared<U> &) {}
    T *allocate(size_t n) { return static_cast<T *>(shared_alloc(n * sizeof(T))); }
    void deallocate(T *, size_t) {}
    bool operator==(const Shared &) const { return true; }
    bool operator!=(const Shared &) const { return false; }
};

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    bool valid = true;
    int used = 0;
};
struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {}
    double area() const override { return side * side; }
};
struct Box : Square {
    float other[3];
    Box(double s, float o) : Square(s), other{o, o + 1, o + 2} {}
    double area() const override { return Square::area() * other[1]; }
};

struct Failure {
    int64_t where;
};

[[gnu::noinline]] static int64_t risky(int64_t *p, int i) {
    p[i % 50] += i;
    if (p[i % 50] % 7 == 0) throw Failure{p[i % 50]};
    return p[i % 50];
}

struct Guard {
    int64_t &count;
    ~Guard() { count++; }
};

struct Wide {
    int64_t words[12];
};
[[gnu::noinline]] static Wide made(const Wide &from) {
    Wide out = from;
    for (auto &w : out.words) w = w * 3 + 1;
    return out;
}

int main() {
    auto *numbers = static_cast<int64_t *>(shared_alloc(50 * sizeof(int64_t)));
    auto *count = static_cast<int64_t *>(shared_alloc(8));
    int64_t sum = 0, failures = 0;
    for (int i = 0; i < 1500; i++) {
        try {
            Guard guard{*count};
            sum += risky(numbers, i);
        } catch (const Failure &failure) {
            failures++;
            sum ^= failure.where;
        }
    }
    std::printf("%ld %ld %ld\n", long(sum), long(failures), long(*count));

    std::vector<Shape *, Shared<Shape *>> shapes;
    for (int i = 0; i < 60; i++) {
        void *place = shared_alloc(sizeof(Box));
        shapes.push_back(i % 2 ? static_cast<Shape *>(new (place) Square(i)) : new (place) Box(i, float(i)));
    }
    double areas = 0;
    for (int round = 0; round < 20; round++)
        for (Shape *shape : shapes) {
            areas += shape->valid ? shape->area() : 0;
            shape->used++;
        }
    for (Shape *shape : shapes) sum += shape->used, shape->~Shape();
    std::printf("%.1f %ld\n", areas, long(sum));

    std::vector<int, Shared<int>> v;
    for (int i = 0; i < 1500; i++) v.push_back(i * 7919 % 1501);
    std::sort(v.begin(), v.end());
    std::forward_list<int, Shared<int>> list; // no std::map: its trees are balanced in libstdc++, without checks
    for (int i = 0; i < 200; i++) list.push_front(v[size_t(i * 7)] % 101);
    list.sort();
    for (int key : list) sum = sum * 31 + key;
    using Text = std::basic_string<char, std::char_traits<char>, Shared<char>>;
    Text text;
    for (int i = 0; i < 300; i++) text.push_back(char('a' + i % 26));
    for (char c : text) sum = sum * 3 + c;
    auto *wide = static_cast<Wide *>(shared_alloc(2 * sizeof(Wide)));
    for (int i = 0; i < 300; i++) wide[i % 2] = made(wide[(i + 1) % 2]);
    auto *pointer = new (shared_alloc(sizeof(std::shared_ptr<int>))) std::shared_ptr<int>(std::make_shared<int>(5));
    for (int i = 0; i < 300; i++) {
        std::shared_ptr<int> copy = *pointer;
        (*copy)++;
    }
    std::printf("%ld %d %ld %ld\n", long(sum), v[700], long(wide[1].words[5]), long(**pointer + pointer->use_count()));
}
