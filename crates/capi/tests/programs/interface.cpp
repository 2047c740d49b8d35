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
    comem::SharedIntArray a(10), b(10, 4);
    const comem::SharedIntArray &reader = a;
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
    a.Write(0, 5);
    CHECK(a.Read(0) == 5 && a.size() == 10 && !a.empty());
}

void OtherElements() {
    comem::SharedArray<Pair> pairs(4);
    pairs[1] = Pair{1, 2};
    pairs[2] = pairs[1];
    CHECK(pairs.Read(2) == (Pair{1, 2}) && static_cast<Pair>(pairs[3]) == (Pair{0, 0}));
    comem::SharedArray<Wide> wides(4);
    wides[3] = Wide{1, 2, 3};
    Wide wide = wides[3];
    CHECK(wide.x == 1 && wide.z == 3 && wides.Read(0).y == 0);
    comem::SharedDoubleArray doubles(3);
    doubles[0] = 1.5;
    doubles[1] = doubles[0] * 2;
    CHECK(doubles[1] == 3.0);
    comem::SharedFloatArray floats(2);
    floats[1] = 0.25f;
    CHECK(floats[1] == 0.25f);
    SharedByteArray bytes(300);
    bytes[299] = 200;
    bytes[299] += 100;
    CHECK(bytes[299] == 44 && bytes[298] == 0);
    comem::SharedArray<bool> bits(8);
    bits[3] = true;
    CHECK(bits[3] && !bits[2]);
}

void MatricesAndVariables() {
    comem::SharedMatrix<double> m(3, 4, comem::Options().Label("matrix").Unit(4));
    m(1, 2) = 5;
    m(2, 3) = m(1, 2) * 2;
    m(0, 0) -= 1.5;
    const auto &reader = m;
    CHECK(reader(2, 3) == 10 && m.Read(0, 0) == -1.5 && m.rows() == 3 && m.columns() == 4);
    CHECK(m.Elements()[6] == 5.0);
    {
        auto row = m.rows_range(1, 2);
        CHECK(row.size() == 4 && row[2] == 5);
        for (double &cell : row) cell += 1;
    }
    CHECK(m.read_rows(1, 3)[2] == 6 && m(1, 0) == 1);
    comem::SharedInt v, u;
    v = 3;
    v += 2;
    u = v; // the value
    v++;
    CHECK(u == 5 && v == 6 && v.Read() == 6);
    SharedDouble d;
    d = 2.5;
    d *= 2;
    CHECK(d == 5.0);
}

void Ranges() {
    comem::SharedIntArray a(100);
    const comem::SharedIntArray &reader = a;
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

void SemaphoresConditionsReaders(comem::SharedInt &inside) {
    comem::Semaphore one(5), turn(6);
    comem::Condition changed(5);
    comem::Lock lock(5);
    comem::RwLock shared(5);
    if (comem::Thread() == 0) one.Post();
    one.Wait();
    CHECK(inside++ == 0 && inside-- == 1);
    one.release();
    turn.Post();
    comem::Barrier();
    CHECK(turn.TryWait());
    comem::Barrier();
    CHECK(!turn.try_acquire());
    {
        // Each lets the next one go.
        std::lock_guard<comem::Lock> hold(lock);
        changed.Wait(lock, [&] { return inside == comem::Thread(); });
        inside++;
        changed.Broadcast();
    }
    comem::Barrier();
    {
        comem::ReadGuard first(shared);
        std::shared_lock<comem::RwLock> again(shared);
        CHECK(inside == comem::Threads());
    }
    comem::Barrier();
    {
        comem::WriteGuard alone(shared);
        inside--;
    }
    comem::Barrier();
    CHECK(inside == 0);
    comem::Barrier();
    changed.Signal();
}

void Threads(comem::SharedLongArray sums, comem::SharedInt &inside) {
    DSM_Lock first, second;
    CHECK(first.Name() != second.Name());
    comem::Lock lock(3);
    comem::Flag flag(4);
    comem::Parallel([&] {
        auto [low, high] = comem::Split(1000);
        auto weighted = comem::SplitWeighted(100);
        CHECK(comem::Sum(high - low) == 1000 && comem::Sum(weighted.Size()) == 100);
        CHECK(comem::Max(comem::Thread()) == comem::Threads() - 1 && comem::Min(2.5) == 2.5);
        for (std::uint64_t i = low; i < high; i++) {
            comem::Guard guard(lock);
            CHECK(inside++ == 0);
            sums[0] += static_cast<std::int64_t>(i);
            inside--;
        }
        {
            std::lock_guard<comem::Lock> hold(lock);
            sums[1]++;
        }
        SemaphoresConditionsReaders(inside);
        flag.Set(1);
        flag.Wait(1);
        DSM_Barrier();
        CHECK(sums[0] == 499500 && sums[1] == comem::Threads());
    });
}

void Exceptions() {
    std::string caught;
    try {
        comem::Parallel([] { throw std::runtime_error("thrown"); });
    } catch (const std::runtime_error &error) {
        caught = error.what();
    }
    CHECK(caught == "thrown");
#ifndef COMEM_SEQUENTIAL
    try {
        comem::SharedMatrix<double> too_large(UINT64_MAX, 2);
        CHECK(false);
    } catch (const comem::Error &error) {
        CHECK(error.Code() == COMEM_E_ARRAY && std::string(error.what()).find("comem: ") == 0);
    }
#endif
}

} // namespace

int main(int argc, char **argv) {
    CHECK(comem::Startup(argc, argv) == 0 && argc == 1);
    CHECK(comem::Node() == 0 && comem::Nodes() == 1 && comem::Threads() == comem::ThreadsPerNode());
    NaturalSyntax();
    OtherElements();
    MatricesAndVariables();
    Ranges();
    comem::SharedLongArray sums(2);
    comem::SharedInt inside;
    Threads(sums, inside);
    Exceptions();
    comem::Finish();
    if (failures == 0) std::printf("interface: ok\n");
    return failures != 0;
}
