// Global objects of C++ under --globals share: those with constructors, with virtual functions, in templates and
// functions, and a vector whose elements stand in shared memory. What workers do to them is seen by all.
#include "comem_parmacs.h"
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

COMEM_PROCESS_CONSTRUCTOR_

namespace {

enum : std::uint64_t { LOCK = 1, BARRIER = 2 };

[[noreturn]] void fail(const char *what) {
    std::cerr << "slot " << comem_worker_slot() << ": not so: " << what << std::endl;
    std::exit(1);
}

void expect(bool holds, const char *what) {
    if (!holds) fail(what);
}

// Elements in shared memory.
template <class T> struct Shared {
    using value_type = T;
    Shared() = default;
    template <class U> Shared(const Shared<U> &) {}
    T *allocate(std::size_t n) { return static_cast<T *>(comem_g_malloc(n * sizeof(T))); }
    void deallocate(T *place, std::size_t) { comem_g_free(place); }
    bool operator==(const Shared &) const { return true; }
    bool operator!=(const Shared &) const { return false; }
};

// Has a constructor that runs before main, and a destructor that says so.
struct Counter {
    long value, lines[100];
    Counter() : value(7) {
        for (long &line : lines) line = 3;
    }
    ~Counter() { std::printf("%s\n", value == 7 + expected ? "ok" : "another sum"); }
    long expected = 0;
};
Counter counter;

struct Shape {
    virtual ~Shape() = default;
    virtual long area() const = 0;
};
struct Square : Shape {
    long side;
    explicit Square(long side) : side(side) {}
    long area() const override { return side * side; }
};
struct Rectangle : Square {
    long other;
    Rectangle(long side, long other) : Square(side), other(other) {}
    long area() const override { return side * other; }
};
Square square(5);
Rectangle rectangle(2, 3);
std::array<const Shape *, 2> shapes = {&square, &rectangle};
Shape *made; // by main, in shared memory

template <class T> struct Kind {
    static inline long objects = 40;
};

std::vector<long, Shared<long>> numbers;
std::string word = "short";

long &of_a_function() {
    static long value = counter.value + 1; // main calls this first
    return value;
}

int workers;

void work() {
    int me = comem_worker_slot();
    expect((std::cout << std::flush).good(), "a stream that a constructor makes");
    expect(counter.lines[me] == 3, "what a constructor set");
    expect(word == "short", "a short string");
    expect(shapes[0]->area() == 25 && shapes[1]->area() == 6, "virtual functions of global objects");
    expect(dynamic_cast<const Rectangle *>(shapes[1]) != nullptr && typeid(*shapes[0]) == typeid(Square),
           "their types");
    expect(made->area() == 77, "a virtual function of an object in shared memory");
    expect(of_a_function() >= 8, "a function's own variable");
    try {
        if (numbers.size() != static_cast<std::size_t>(workers)) throw std::runtime_error("size");
        (void)numbers.at(numbers.size());
        fail("an access behind a vector's end");
    } catch (const std::out_of_range &) {
    }
    numbers[me] = me + 1;
    comem_parmacs_lock(LOCK);
    counter.value += me + 1;
    Kind<int>::objects++;
    of_a_function()++;
    comem_parmacs_unlock(LOCK);
    comem_barrier_of(BARRIER, static_cast<unsigned>(workers));
    long sum = 0;
    for (long number : numbers) sum += number;
    expect(sum == static_cast<long>(workers) * (workers + 1) / 2, "what workers put into a vector");
    expect(counter.value == 7 + sum, "what workers added to an object's member");
    expect(Kind<int>::objects == 40 + workers && Kind<long>::objects == 40, "variables of a template");
    expect(of_a_function() == 8 + workers, "what workers added to a function's own variable");
}

} // namespace

int main() {
    workers = comem_worker_slots() < 16 ? comem_worker_slots() : 4;
    expect(of_a_function() == 8, "a function's own variable at first");
    numbers.resize(workers);
    made = new (comem_g_malloc(sizeof(Rectangle))) Rectangle(7, 11);
    counter.expected = static_cast<long>(workers) * (workers + 1) / 2;
    comem_create_workers(work, workers);
    comem_wait_workers(workers);
    expect(numbers.back() == workers, "the vector after the work");
    return 0; // the counter's destructor has the last word
}
