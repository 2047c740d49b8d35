// SPDX-License-Identifier: MIT OR Apache-2.0
//
// interface: everything in comem.hpp and comem_dsm.hpp, on one node with several threads; also as a sequential program.
#include <comem_dsm.hpp>

#include <atomic>
#include <cstdio>
#include <numeric>
#include <shared_mutex>
#include <sstream>

namespace {

std::atomic<int> failures{0};

#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                       \
            failures++;                                                                                              \
        }                                                                                                            \
    } while (false)

struct Pair {
    std::int32_t one, two;
    bool operator==(const Pair &other) const { return one == other.one && two == other.two; }
};

struct Wide {
    double x, y, z;
};

void NaturalSyntax() {
    comem::object_array<std::int32_t> a(10), b(10, 4);
    const comem::object_array<std::int32_t> &reader = a;
    a[1] = 3;
    int x = a[1];
    CHECK(x == 3);
    a[2] += x;
    b[3] = a[2]; // reads and writes elements; does not rebind anything
    a[2] = 100;
    CHECK(b[3] == 3 && a[2] == 100 && a[1] < a[2] && reader[2] == 100);
    auto value = +b[3];
    static_assert(std::is_same_v<decltype(value), int>);
    swap(a[1], a[2]);
    using std::swap;
    swap(a[1], x);
    swap(x, a[3]);
    CHECK(a[1] == 3 && a[2] == 3 && a[3] == 100 && x == 0);
    a[4]++;
    ++a[4];
    CHECK(a[4]++ == 2 && a[4]-- == 3 && --a[4] == 1);
    a[4] = 12;
    a[4] -= 2;
    a[4] *= 6;
    a[4] /= 4;
    a[4] %= 8;
    CHECK(a[4] == 7);
    a[4] <<= 4;
    a[4] |= 3;
    a[4] &= ~1;
    a[4] ^= 8;
    a[4] >>= 1;
    CHECK(a[4] == 61);
    a[5] = a[6] = a[4];
    CHECK(a[5] == 61 && a[6] == 61 && a[4] + a[5] * 2 == 183);
    std::ostringstream text;
    text << a[5];
    CHECK(text.str() == "61");
    a.write(0, 5);
    CHECK(a.read(0) == 5 && a.size() == 10 && !a.empty());
}

void OtherElements() {
    comem::object_array<Pair> pairs(4);
    pairs[1] = Pair{1, 2};
    pairs[2] = pairs[1];
    CHECK(pairs.read(2) == (Pair{1, 2}) && static_cast<Pair>(pairs[3]) == (Pair{0, 0}));
    comem::object_array<Wide> wides(4);
    wides[3] = Wide{1, 2, 3};
    Wide wide = wides[3];
    CHECK(wide.x == 1 && wide.z == 3 && wides.read(0).y == 0);
    comem::object_array<double> doubles(3);
    doubles[0] = 1.5;
    doubles[1] = doubles[0] * 2;
    CHECK(doubles[1] == 3.0);
    comem::object_array<float> floats(2);
    floats[1] = 0.25f;
    CHECK(floats[1] == 0.25f);
    SharedByteArray bytes(300);
    bytes[299] = 200;
    bytes[299] += 100;
    CHECK(bytes[299] == 44 && bytes[298] == 0);
    comem::object_array<bool> bits(8);
    bits[3] = true;
    CHECK(bits[3] && !bits[2]);
}

void MatricesAndVariables() {
    comem::object_matrix<double> m(3, 4, comem::object_options().label("matrix").unit(4));
    m(1, 2) = 5;
    m(2, 3) = m(1, 2) * 2;
    m(0, 0) -= 1.5;
    const auto &reader = m;
    CHECK(reader(2, 3) == 10 && m.read(0, 0) == -1.5 && m.rows() == 3 && m.columns() == 4);
    CHECK(m.elements()[6] == 5.0);
    {
        auto row = m.rows_range(1, 2);
        CHECK(row.size() == 4 && row[2] == 5);
        for (double &cell : row) cell += 1;
    }
    CHECK(m.read_rows(1, 3)[2] == 6 && m(1, 0) == 1);
    comem::object_var<std::int32_t> v, u;
    v = 3;
    v += 2;
    u = v; // the value
    v++;
    CHECK(u == 5 && v == 6 && v.read() == 6);
    SharedDouble d;
    d = 2.5;
    d *= 2;
    CHECK(d == 5.0);
}

void Ranges() {
    comem::object_array<std::int32_t> a(100);
    const comem::object_array<std::int32_t> &reader = a;
    {
        auto range = a.range(10, 20);
        std::iota(range.begin(), range.end(), 1);
        auto moved = std::move(range);
        CHECK(moved.size() == 10 && moved.data()[9] == 10);
    }
    auto range = reader.range(0, 100);
    CHECK(std::accumulate(range.begin(), range.end(), 0) == 55);
    CHECK(a.read_range(19, 21)[0] == 10 && a[9] == 0 && a[20] == 0);
}

void SemaphoresConditionsReaders(comem::object_var<std::int32_t> &inside) {
    comem::semaphore one(5), turn(6);
    comem::condition_variable changed(5);
    comem::mutex lock(5);
    comem::shared_mutex shared(5);
    if (comem::thread() == 0) one.release();
    one.acquire();
    CHECK(inside++ == 0 && inside-- == 1);
    one.release();
    turn.release();
    comem::barrier();
    CHECK(turn.try_acquire());
    comem::barrier();
    CHECK(!turn.try_acquire());
    {
        // Each lets the next one go.
        std::unique_lock<comem::mutex> hold(lock);
        changed.wait(hold, [&] { return inside == comem::thread(); });
        inside++;
        changed.notify_all();
    }
    comem::barrier();
    {
        comem::read_guard first(shared);
        std::shared_lock<comem::shared_mutex> again(shared), tried(shared, std::try_to_lock);
        CHECK(tried.owns_lock());
#ifndef COMEM_SEQUENTIAL /* where nobody else could hold a lock, all are free */
        CHECK(!shared.try_lock());
#endif
        CHECK(inside == comem::threads());
    }
    comem::barrier();
    {
        comem::write_guard alone(shared);
#ifndef COMEM_SEQUENTIAL
        CHECK(!shared.try_lock_shared());
#endif
        inside--;
    }
    comem::barrier();
    CHECK(inside == 0);
    comem::barrier();
    changed.notify_one();
}

void Threads(comem::object_array<std::int64_t> sums, comem::object_var<std::int32_t> &inside) {
    DSM_Lock first, second;
    CHECK(first.name() != second.name());
    comem::mutex lock(3);
    comem::flag flag(4);
    comem::parallel([&] {
        auto [low, high] = comem::split(1000);
        auto weighted = comem::split_weighted(100);
        CHECK(comem::sum(high - low) == 1000 && comem::sum(weighted.size()) == 100);
        CHECK(comem::max(comem::thread()) == comem::threads() - 1 && comem::min(2.5) == 2.5);
        for (std::uint64_t i = low; i < high; i++) {
            comem::lock_guard guard(lock);
            CHECK(inside++ == 0);
            sums[0] += static_cast<std::int64_t>(i);
            inside--;
        }
        {
            std::lock_guard<comem::mutex> hold(lock);
            sums[1]++;
        }
        {
            // Tried until it is free: every thread gets it once.
            std::unique_lock<comem::mutex> held(lock, std::defer_lock);
            while (!held.try_lock()) {
            }
            CHECK(inside++ == 0);
            sums[2]++;
            inside--;
        }
        SemaphoresConditionsReaders(inside);
        flag.set(1);
        flag.wait(1);
        DSM_Barrier();
        CHECK(sums[0] == 499500 && sums[1] == comem::threads() && sums[2] == comem::threads());
    });
}

// The names of DSM/IP, of comem_dsm.hpp.
void NamesOfThePaper() {
    SharedIntArray a(3);
    SharedDouble x;
    DSM_Lock lock;
    lock.Acquire();
    a.Write(1, 7);
    x = a.Read(1) + 0.5;
    x.Write(x.Read() * 2);
    a[2] = a[1] - 1;
    lock.Release();
    CHECK(a.Read(2) == 6 && x.Read() == 15.0 && DSM_Threads() == comem::threads());
}

void Exceptions() {
    std::string caught;
    try {
        comem::parallel([] { throw std::runtime_error("thrown"); });
    } catch (const std::runtime_error &error) {
        caught = error.what();
    }
    CHECK(caught == "thrown");
#ifndef COMEM_SEQUENTIAL
    try {
        comem::object_matrix<double> too_large(UINT64_MAX, 2);
        CHECK(false);
    } catch (const comem::error &error) {
        CHECK(error.code() == COMEM_E_ARRAY && std::string(error.what()).find("comem: ") == 0);
    }
#endif
}

} // namespace

int main(int argc, char **argv) {
    CHECK(comem::start(argc, argv) == 0 && argc == 1);
    CHECK(comem::node() == 0 && comem::nodes() == 1 && comem::threads() == comem::threads_per_node());
    NaturalSyntax();
    OtherElements();
    MatricesAndVariables();
    Ranges();
    comem::object_array<std::int64_t> sums(3);
    comem::object_var<std::int32_t> inside;
    Threads(sums, inside);
    NamesOfThePaper();
    Exceptions();
    comem::finish();
    if (failures == 0) std::printf("interface: ok\n");
    return failures != 0;
}
