// SPDX-License-Identifier: MIT OR Apache-2.0
//
// comem.hpp: one memory for many machines, for C++17. Header only, over comem.h.
//
// Shared objects with Read() and Write() as in DSM/IP (section 3.1), and with the syntax of ordinary arrays:
//
//     comem::Startup();
//     comem::SharedIntArray a(1000), b(1000);
//     a[i] = b[j];            // reads b[j], writes a[i]
//     int x = a[i] + 1;       // reads
//     a[i] += 5;              // reads, then writes: two accesses, so hold a lock if others do the same
//     auto y = +a[i];         // the value; `auto y = a[i]` would be a reference to the element
//
// `a[i]` is a small proxy. Where a function template or printf wants the value itself, write `+a[i]` or `a.Read(i)`.
//
// Objects are created collectively: every node constructs the same objects in the same order, from its main thread.
// Copies of an array or matrix name the same elements. In a hot loop use a local copy of an array that is otherwise
// reached through a pointer or a global variable: then its address and length stay in registers.
//
// Failures throw comem::Error. Misuse, such as an index out of range, ends the job (see comem.h).
#ifndef COMEM_HPP
#define COMEM_HPP

#include "comem.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace comem {

// ---- the job ----------------------------------------------------------------------------------------------------

// What went wrong: a sentence, and a COMEM_E_ code.
class Error : public std::runtime_error {
public:
    Error(int code, const std::string &sentence) : std::runtime_error(sentence), code_(code) {}
    int Code() const noexcept { return code_; }

private:
    int code_;
};

namespace detail {

#ifdef COMEM_SEQUENTIAL
inline constexpr bool sequential = true;
#else
inline constexpr bool sequential = false;
#endif

// Throws when a call of the C interface failed.
inline void Check(int code) {
    if (code < 0) {
        const char *sentence = comem_last_error();
        throw Error(code, *sentence ? sentence : comem_error_string(code));
    }
}

} // namespace detail

inline int Node() { return comem_node(); }
inline int Nodes() { return comem_nodes(); }
// The calling thread, counted through all nodes.
inline int Thread() { return comem_thread(); }
inline int Threads() { return comem_threads(); }
inline int ThreadsPerNode() { return comem_threads_per_node(); }

// Joins the job; gives the calling thread's number, as DSM_Startup() did.
inline int Startup() {
    detail::Check(comem_start());
    return comem_thread();
}

// The same, and takes Comem's own options (`--comem-engine=owner`) out of the command line.
inline int Startup(int &argc, char **argv) {
    detail::Check(comem_start_args(&argc, argv));
    return comem_thread();
}

// Waits for every node and leaves the job. Collective.
inline void Finish() { detail::Check(comem_finish()); }

// Waits until every thread of every node has arrived; where nodes have several threads, a call for Parallel().
inline void Barrier() { detail::Check(comem_barrier()); }

// Waits until one thread of every node has come here, for programs with thread pools of their own; see comem.h for what
// the other threads may do meanwhile.
inline void NodeBarrier() { detail::Check(comem_node_barrier()); }

namespace detail {

// A function on its way through the C interface, and the first exception that it threw in any thread: none may pass
// through the C frames, so it is thrown again behind them.
template <class Function>
struct Call {
    Function &function;
    std::exception_ptr thrown;
    std::mutex mutex;

    static void Run(void *argument) {
        Call &call = *static_cast<Call *>(argument);
        try {
            call.function();
        } catch (...) {
            std::lock_guard<std::mutex> hold(call.mutex);
            if (!call.thrown) call.thrown = std::current_exception();
        }
    }
};

} // namespace detail

// Runs `function()` on every thread of this node, this one included. Collective. An exception is thrown on here once
// all threads have returned; a thread that throws while others wait for it at a barrier leaves them waiting.
template <class Function>
void Parallel(Function &&function) {
    using Plain = std::remove_reference_t<Function>;
    detail::Call<Plain> call{function, nullptr, {}};
    detail::Check(comem_parallel(&detail::Call<Plain>::Run, &call));
    if (call.thrown) std::rethrow_exception(call.thrown);
}

// Some of the items 0, 1, 2, ...: [low, high).
struct Part {
    std::uint64_t low;
    std::uint64_t high;
    std::uint64_t Size() const { return high - low; }
};

// This thread's part of `total` items, all parts as equal as can be.
inline Part Split(std::uint64_t total) {
    Part part{0, 0};
    detail::Check(comem_split(total, &part.low, &part.high));
    return part;
}

// The same by the measured speed of each thread since its last call; every thread calls.
inline Part SplitWeighted(std::uint64_t total) {
    Part part{0, 0};
    detail::Check(comem_split_weighted(total, &part.low, &part.high));
    return part;
}

// Deals [0, total) out to all threads of all nodes while they run: calls `body(low, high)` for each piece of `chunk`
// items that this thread gets; 0: for pieces that grow smaller. See comem_for_dynamic(). An exception leaves the loop
// of this thread; what its node had taken besides may then be dealt out to nobody.
template <class Body>
void ForDynamic(std::uint64_t total, std::uint64_t chunk, Body &&body) {
    struct Leaves {
        ~Leaves() { comem_leave_items_(); }
    };
    detail::Check(comem_begin_items_());
    Leaves leaves;
    std::uint64_t low = 0, high = 0;
    for (;;) {
        const int more = comem_next_items_(total, chunk, &low, &high);
        detail::Check(more);
        if (more == 0) return;
        body(low, high);
    }
}

// ---- atomic operations ------------------------------------------------------------------------------------------

namespace detail {

template <class T>
struct Same {
    using Type = T;
};

// The number of a word's type in comem.h.
template <class T>
constexpr int KindOfWord() {
    static_assert(std::is_same_v<T, double> || (std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)),
                  "atomic operations are for integers of 32 and 64 bits, and for double");
    if (std::is_same_v<T, double>) return 4;
    return (sizeof(T) == 8 ? 2 : 0) + (std::is_unsigned_v<T> ? 1 : 0);
}

template <class T>
T OnWord(T *word, int op, T value, T expected, int ordered) {
    std::uint64_t bits = 0, other = 0;
    std::memcpy(&bits, &value, sizeof(T));
    std::memcpy(&other, &expected, sizeof(T));
    const std::uint64_t old = comem_atomic_(word, KindOfWord<T>(), op, bits, other, ordered);
    T result;
    std::memcpy(&result, &old, sizeof(T));
    return result;
}

} // namespace detail

// Operations on a word of shared memory as one step for all threads of all nodes; each gives what the word held. They
// release and acquire; their twins with `Relaxed` say nothing about other memory and are much cheaper. See comem.h.
#define COMEM_WORD_OPERATION_(Name, op)                                                                              \
    template <class T>                                                                                               \
    T Name(T *word, typename detail::Same<T>::Type value) {                                                          \
        return detail::OnWord<T>(word, op, value, T(), 1);                                                           \
    }                                                                                                                \
    template <class T>                                                                                               \
    T Name##Relaxed(T *word, typename detail::Same<T>::Type value) {                                                 \
        return detail::OnWord<T>(word, op, value, T(), 0);                                                           \
    }
COMEM_WORD_OPERATION_(FetchAdd, COMEM_OP_ADD_)
COMEM_WORD_OPERATION_(FetchSub, COMEM_OP_SUB_)
COMEM_WORD_OPERATION_(FetchMin, COMEM_OP_MIN_)
COMEM_WORD_OPERATION_(FetchMax, COMEM_OP_MAX_)
COMEM_WORD_OPERATION_(FetchAnd, COMEM_OP_AND_)
COMEM_WORD_OPERATION_(FetchOr, COMEM_OP_OR_)
COMEM_WORD_OPERATION_(FetchXor, COMEM_OP_XOR_)
COMEM_WORD_OPERATION_(Exchange, COMEM_OP_EXCHANGE_)
#undef COMEM_WORD_OPERATION_
// Stores `value` if the word holds `expected`, bit by bit.
template <class T>
T CompareExchange(T *word, typename detail::Same<T>::Type expected, typename detail::Same<T>::Type value) {
    return detail::OnWord<T>(word, COMEM_OP_COMPARE_EXCHANGE_, value, expected, 1);
}
template <class T>
T CompareExchangeRelaxed(T *word, typename detail::Same<T>::Type expected, typename detail::Same<T>::Type value) {
    return detail::OnWord<T>(word, COMEM_OP_COMPARE_EXCHANGE_, value, expected, 0);
}
// What the word holds.
template <class T>
T AtomicLoad(const T *word) {
    return detail::OnWord<T>(const_cast<T *>(word), COMEM_OP_LOAD_, T(), T(), 1);
}
template <class T>
T AtomicLoadRelaxed(const T *word) {
    return detail::OnWord<T>(const_cast<T *>(word), COMEM_OP_LOAD_, T(), T(), 0);
}

// ---- synchronisation --------------------------------------------------------------------------------------------

// A lock of the job, named by a number. Also usable with std::lock_guard and std::unique_lock.
class Lock {
public:
    explicit Lock(std::uint64_t name) : name_(name) {}
    void Acquire() { detail::Check(comem_lock(name_)); }
    void Release() { detail::Check(comem_unlock(name_)); }
    void lock() { Acquire(); }
    void unlock() { Release(); }
    std::uint64_t Name() const { return name_; }

private:
    std::uint64_t name_;
};

// Holds a lock while it lives.
class Guard {
public:
    explicit Guard(const Lock &lock) : lock_(lock) { lock_.Acquire(); }
    explicit Guard(std::uint64_t name) : Guard(Lock(name)) {}
    ~Guard() { comem_unlock(lock_.Name()); }
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;

private:
    Lock lock_;
};

// A number that only grows, set by one thread and awaited by others.
class Flag {
public:
    explicit Flag(std::uint64_t name) : name_(name) {}
    void Set(std::uint64_t value) { detail::Check(comem_flag_set(name_, value)); }
    // Returns once the flag is `value` or more.
    void Wait(std::uint64_t value) { detail::Check(comem_flag_wait(name_, value)); }

private:
    std::uint64_t name_;
};

// A number of things to be had: Post adds one, Wait takes one once there is one. The names of std::counting_semaphore
// do the same.
class Semaphore {
public:
    explicit Semaphore(std::uint64_t name) : name_(name) {}
    void Post() { detail::Check(comem_sem_post(name_)); }
    void Wait() { detail::Check(comem_sem_wait(name_)); }
    // Takes one if there is one just now; whether it did.
    bool TryWait() {
        const int took = comem_sem_trywait(name_);
        detail::Check(took);
        return took > 0;
    }
    void release() { Post(); }
    void acquire() { Wait(); }
    bool try_acquire() { return TryWait(); }

private:
    std::uint64_t name_;
};

// Where threads that hold a lock wait for others to change something.
class Condition {
public:
    explicit Condition(std::uint64_t name) : name_(name) {}
    // Lets the lock go, waits for a signal and acquires the lock again; check in a loop for what the signal stands for.
    void Wait(const Lock &lock) { detail::Check(comem_cond_wait(name_, lock.Name())); }
    // Waits until `holds()`.
    template <class Predicate>
    void Wait(const Lock &lock, Predicate holds) {
        while (!holds()) Wait(lock);
    }
    // Wakes the thread that has waited longest, or all.
    void Signal() { detail::Check(comem_cond_signal(name_)); }
    void Broadcast() { detail::Check(comem_cond_broadcast(name_)); }

private:
    std::uint64_t name_;
};

// A lock for many readers or one writer. Also usable with std::shared_lock and std::unique_lock.
class RwLock {
public:
    explicit RwLock(std::uint64_t name) : name_(name) {}
    void lock_shared() { detail::Check(comem_rdlock(name_)); }
    void lock() { detail::Check(comem_wrlock(name_)); }
    void unlock_shared() { detail::Check(comem_rwunlock(name_)); }
    void unlock() { detail::Check(comem_rwunlock(name_)); }
    std::uint64_t Name() const { return name_; }

private:
    std::uint64_t name_;
};

// Reads, or writes, under a reader-writer lock while it lives.
class ReadGuard {
public:
    explicit ReadGuard(RwLock lock) : name_(lock.Name()) { lock.lock_shared(); }
    ~ReadGuard() { comem_rwunlock(name_); }
    ReadGuard(const ReadGuard &) = delete;
    ReadGuard &operator=(const ReadGuard &) = delete;

private:
    std::uint64_t name_;
};
class WriteGuard {
public:
    explicit WriteGuard(RwLock lock) : name_(lock.Name()) { lock.lock(); }
    ~WriteGuard() { comem_rwunlock(name_); }
    WriteGuard(const WriteGuard &) = delete;
    WriteGuard &operator=(const WriteGuard &) = delete;

private:
    std::uint64_t name_;
};

// What every thread's `value` comes to: a 64-bit integer for integers, unsigned for unsigned ones of 64 bits, a double
// for floating-point numbers. Every thread makes the call; it is a barrier too.
template <class T>
auto Reduce(int operation, T value) {
    static_assert(std::is_arithmetic_v<T>, "only numbers can be reduced");
    static_assert(!std::is_same_v<T, long double>, "a long double would lose digits: convert it to double");
    if constexpr (std::is_floating_point_v<T>) {
        double number = static_cast<double>(value);
        detail::Check(comem_reduce_f64(operation, &number, 1));
        return number;
    } else {
        // The least and the greatest unsigned number are found among signed ones whose order is the same.
        constexpr bool is_large = std::is_unsigned_v<T> && sizeof(T) == sizeof(std::uint64_t);
        const std::uint64_t turn = is_large && operation != COMEM_SUM ? std::uint64_t(1) << 63 : 0;
        std::int64_t number = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) ^ turn);
        detail::Check(comem_reduce_i64(operation, &number, 1));
        using Result = std::conditional_t<is_large, std::uint64_t, std::int64_t>;
        return static_cast<Result>(static_cast<std::uint64_t>(number) ^ turn);
    }
}
template <class T>
auto Sum(T value) { return Reduce(COMEM_SUM, value); }
template <class T>
auto Min(T value) { return Reduce(COMEM_MIN, value); }
template <class T>
auto Max(T value) { return Reduce(COMEM_MAX, value); }

// ---- containers in shared memory --------------------------------------------------------------------------------

// Takes a container's memory from the shared heap, so that what it holds is shared as well:
//
//     using Words = std::vector<comem::String, comem::Allocator<comem::String>>;
//     Words *words = comem::New<Words>();              // one thread; the container itself is in shared memory, too
//
// Any thread of any node allocates and gives back, at any time between Startup() and Finish(), by itself: nothing here
// is collective. A container is shared data like any other: who changes it, its allocations among it, does so under a
// lock or between barriers, and who finds it has synchronised with who made it (under the engine `scope` by that same
// lock, or a barrier). Blocks of up to 2 KiB are cheap; larger ones are agreed on with every node, so reserve() what
// will be needed.
//
// What elements point to must be shared or the same on every node: `comem::String` and not `std::string`. Virtual
// functions work where the program is at the same addresses on every node (link it with -no-pie). All allocators are
// equal, and hold nothing.
template <class T>
class Allocator {
public:
    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;

    Allocator() noexcept = default;
    template <class Other>
    Allocator(const Allocator<Other> &) noexcept {}

    T *allocate(std::size_t count) {
        if (count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T)) throw std::bad_alloc();
        comem_region_options options = {};
        options.label = "comem::Allocator";
        options.placement = COMEM_PLACE_AUTOMATIC;
        options.alignment = alignof(T) > 16 ? alignof(T) : 16;
        void *memory = comem_alloc_with(count ? count * sizeof(T) : 1, &options);
        if (memory == nullptr) throw std::bad_alloc();
        return static_cast<T *>(memory);
    }
    void deallocate(T *memory, std::size_t) noexcept { comem_free(memory); }
};
template <class One, class Other>
bool operator==(const Allocator<One> &, const Allocator<Other> &) noexcept { return true; }
template <class One, class Other>
bool operator!=(const Allocator<One> &, const Allocator<Other> &) noexcept { return false; }

// Makes an object in shared memory; by the calling thread alone. Others find it by a pointer in shared memory.
template <class T, class... Arguments>
T *New(Arguments &&...arguments) {
    T *memory = Allocator<T>().allocate(1);
    try {
        return ::new (static_cast<void *>(memory)) T(std::forward<Arguments>(arguments)...);
    } catch (...) {
        Allocator<T>().deallocate(memory, 1);
        throw;
    }
}
// Destroys it and gives its memory back; by any one thread, when nobody uses it any more.
template <class T>
void Delete(T *object) {
    if (object == nullptr) return;
    object->~T();
    Allocator<T>().deallocate(object, 1);
}

// Containers whose memory is shared.
template <class T>
using Vector = std::vector<T, Allocator<T>>;
template <class Key, class T, class Less = std::less<Key>>
using Map = std::map<Key, T, Less, Allocator<std::pair<const Key, T>>>;
using String = std::basic_string<char, std::char_traits<char>, Allocator<char>>;

// ---- elements ---------------------------------------------------------------------------------------------------

namespace detail {

template <std::size_t Size>
struct WordOf {};
template <>
struct WordOf<1> { using Type = std::uint8_t; };
template <>
struct WordOf<2> { using Type = std::uint16_t; };
template <>
struct WordOf<4> { using Type = std::uint32_t; };
template <>
struct WordOf<8> { using Type = std::uint64_t; };

// Whether one instruction loads or stores a T.
template <class T>
inline constexpr bool is_word = sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8;

template <class T>
inline T Load(comem_array array, std::uint64_t index) {
    if constexpr (std::is_arithmetic_v<T> && is_word<T>) {
        T value;
        COMEM_READ_ELEMENT_(T, array, index, value);
        return value;
    } else if constexpr (sequential) {
        return reinterpret_cast<const T *>(array.data)[index];
    } else {
        alignas(T) unsigned char bytes[sizeof(T)];
        if constexpr (is_word<T>) {
            using Word = typename WordOf<sizeof(T)>::Type;
            Word word;
            COMEM_READ_ELEMENT_(Word, array, index, word);
            std::memcpy(bytes, &word, sizeof(T));
        } else {
            std::memset(bytes, 0, sizeof(T));
            comem_read(array, index, bytes);
        }
        return *reinterpret_cast<const T *>(bytes);
    }
}

template <class T>
inline void Store(comem_array array, std::uint64_t index, const T &value) {
    if constexpr (std::is_arithmetic_v<T> && is_word<T>) {
        // `value` may lie in shared memory, where reading it may wait: not while a store is announced.
        const T own = value;
        COMEM_WRITE_ELEMENT_(T, array, index, own);
    } else if constexpr (sequential) {
        reinterpret_cast<T *>(array.data)[index] = value;
    } else if constexpr (is_word<T>) {
        using Word = typename WordOf<sizeof(T)>::Type;
        Word word;
        std::memcpy(&word, &value, sizeof(T));
        COMEM_WRITE_ELEMENT_(Word, array, index, word);
    } else {
        comem_write(array, index, &value);
    }
}

// What assignment means, for anything with Read() and Write(): shared variables and references to elements.
#define COMEM_ASSIGNMENTS_(Type, T, qualifier)                                                                       \
    Type &operator=(const T &value) qualifier { Write(value); return *this; }                                        \
    Type &operator+=(const T &value) qualifier { Write(static_cast<T>(Read() + value)); return *this; }              \
    Type &operator-=(const T &value) qualifier { Write(static_cast<T>(Read() - value)); return *this; }              \
    Type &operator*=(const T &value) qualifier { Write(static_cast<T>(Read() * value)); return *this; }              \
    Type &operator/=(const T &value) qualifier { Write(static_cast<T>(Read() / value)); return *this; }              \
    Type &operator%=(const T &value) qualifier { Write(static_cast<T>(Read() % value)); return *this; }              \
    Type &operator&=(const T &value) qualifier { Write(static_cast<T>(Read() & value)); return *this; }              \
    Type &operator|=(const T &value) qualifier { Write(static_cast<T>(Read() | value)); return *this; }              \
    Type &operator^=(const T &value) qualifier { Write(static_cast<T>(Read() ^ value)); return *this; }              \
    Type &operator<<=(int bits) qualifier { Write(static_cast<T>(Read() << bits)); return *this; }                   \
    Type &operator>>=(int bits) qualifier { Write(static_cast<T>(Read() >> bits)); return *this; }                   \
    Type &operator++() qualifier { return *this += T(1); }                                                           \
    Type &operator--() qualifier { return *this -= T(1); }                                                           \
    T operator++(int) qualifier { T old = Read(); Write(static_cast<T>(old + T(1))); return old; }                   \
    T operator--(int) qualifier { T old = Read(); Write(static_cast<T>(old - T(1))); return old; }

} // namespace detail

// A reference to an element, which `a[i]` gives: reads when a value is wanted, writes when assigned to.
template <class T>
class Ref {
public:
    Ref(comem_array array, std::uint64_t index) : array_(array), index_(index) {}
    Ref(const Ref &) = default;

    T Read() const { return detail::Load<T>(array_, index_); }
    void Write(const T &value) const { detail::Store<T>(array_, index_, value); }
    operator T() const { return Read(); }

    // The element's value, not another element to refer to.
    const Ref &operator=(const Ref &other) const {
        Write(other.Read());
        return *this;
    }
    Ref &operator=(const Ref &other) {
        Write(other.Read());
        return *this;
    }
    COMEM_ASSIGNMENTS_(const Ref, T, const)

    // Reads both, then writes both; not atomic.
    friend void swap(const Ref &one, const Ref &other) {
        T value = one.Read();
        one.Write(other.Read());
        other.Write(value);
    }
    friend void swap(const Ref &one, T &other) {
        T value = one.Read();
        one.Write(other);
        other = std::move(value);
    }
    friend void swap(T &one, const Ref &other) { swap(other, one); }

private:
    comem_array array_;
    std::uint64_t index_;
};

// ---- objects ----------------------------------------------------------------------------------------------------

// How an object is shared; the default suits most. `Unit` is the granularity of DSM/IP: elements that move together.
class Options {
public:
    Options() : options_() {}
    Options &Unit(std::uint64_t elements) {
        options_.unit_elements = elements;
        return *this;
    }
    // A static string: "msi", "direct", "owner" or "broadcast".
    Options &Engine(const char *name) {
        options_.engine = name;
        return *this;
    }
    // A static string: the object's name in counters and errors.
    Options &Label(const char *label) {
        options_.label = label;
        return *this;
    }
    // COMEM_PLACE_BLOCK, COMEM_PLACE_CYCLIC (units in a row) or COMEM_PLACE_ON (node).
    Options &Placement(int placement, int place = 0) {
        options_.placement = placement;
        options_.place = place;
        return *this;
    }
    const comem_options *Get() const { return &options_; }

private:
    comem_options options_;
};

// Elements [low, high) of an array as plain memory, while the span lives: for reading (T const) or for both.
template <class T>
class Span {
    static constexpr bool writes = !std::is_const_v<T>;

public:
    Span(comem_array array, std::uint64_t low, std::uint64_t high) : array_(array), low_(low), high_(high) {
        if constexpr (writes) {
            data_ = static_cast<T *>(comem_write_begin(array, low, high));
        } else {
            data_ = static_cast<T *>(comem_read_begin(array, low, high));
        }
        if (data_ == nullptr) throw Error(COMEM_E_INDEX, comem_last_error());
    }
    Span(Span &&other) noexcept
        : array_(other.array_), low_(other.low_), high_(other.high_), data_(std::exchange(other.data_, nullptr)) {}
    Span(const Span &) = delete;
    Span &operator=(const Span &) = delete;
    ~Span() {
        if (data_ == nullptr) return;
        if constexpr (writes) {
            comem_write_end(array_, low_, high_);
        } else {
            comem_read_end(array_, low_, high_);
        }
    }

    // Element `low` of the array is element 0 of the span. Nothing is checked.
    T &operator[](std::uint64_t index) const { return data_[index]; }
    T *data() const { return data_; }
    std::size_t size() const { return static_cast<std::size_t>(high_ - low_); }
    T *begin() const { return data_; }
    T *end() const { return data_ + size(); }

private:
    comem_array array_;
    std::uint64_t low_;
    std::uint64_t high_;
    T *data_ = nullptr;
};

// An array that all nodes share. Elements are values without pointers into the process (trivially copyable).
template <class T>
class SharedArray {
    static_assert(std::is_trivially_copyable_v<T>, "shared elements are copied between machines byte by byte");

public:
    // No array yet.
    SharedArray() : array_() {}
    // `length` elements, all zero. Collective.
    explicit SharedArray(std::uint64_t length, const Options &options = Options()) {
        detail::Check(comem_create(&array_, sizeof(T), length, options.Get()));
    }
    // With `unit` elements to a coherence unit.
    SharedArray(std::uint64_t length, std::uint64_t unit) : SharedArray(length, Options().Unit(unit)) {}

    T Read(std::uint64_t index) const { return detail::Load<T>(array_, index); }
    void Write(std::uint64_t index, const T &value) { detail::Store<T>(array_, index, value); }
    Ref<T> operator[](std::uint64_t index) { return Ref<T>(array_, index); }
    T operator[](std::uint64_t index) const { return Read(index); }

    // Elements [low, high) as plain memory while the span lives; see comem_write_begin() in comem.h.
    Span<T> range(std::uint64_t low, std::uint64_t high) { return Span<T>(array_, low, high); }
    Span<const T> range(std::uint64_t low, std::uint64_t high) const { return read_range(low, high); }
    Span<const T> read_range(std::uint64_t low, std::uint64_t high) const {
        return Span<const T>(array_, low, high);
    }

    std::uint64_t size() const { return array_.length; }
    bool empty() const { return array_.length == 0; }
    // The array as the C interface knows it.
    comem_array Handle() const { return array_; }

private:
    comem_array array_;
};

// A shared matrix, row by row.
template <class T>
class SharedMatrix {
public:
    SharedMatrix() = default;
    // Rows times columns elements, all zero. Collective.
    SharedMatrix(std::uint64_t rows, std::uint64_t columns, const Options &options = Options())
        : elements_(Area(rows, columns), options), rows_(rows), columns_(columns) {}

    T Read(std::uint64_t row, std::uint64_t column) const { return elements_.Read(Index(row, column)); }
    void Write(std::uint64_t row, std::uint64_t column, const T &value) {
        elements_.Write(Index(row, column), value);
    }
    Ref<T> operator()(std::uint64_t row, std::uint64_t column) { return elements_[Index(row, column)]; }
    T operator()(std::uint64_t row, std::uint64_t column) const { return Read(row, column); }

    // Whole rows [low, high) as plain memory while the span lives.
    Span<T> rows_range(std::uint64_t low, std::uint64_t high) { return elements_.range(Row(low), Row(high)); }
    Span<const T> read_rows(std::uint64_t low, std::uint64_t high) const {
        return elements_.read_range(Row(low), Row(high));
    }

    std::uint64_t rows() const { return rows_; }
    std::uint64_t columns() const { return columns_; }
    // The same elements as an array.
    SharedArray<T> Elements() const { return elements_; }

private:
    // An area beyond 2^64 is asked for as the largest there is, so that creating it fails.
    static std::uint64_t Area(std::uint64_t rows, std::uint64_t columns) {
        return columns != 0 && rows > UINT64_MAX / columns ? UINT64_MAX : rows * columns;
    }
    // What is out of range must not name an element of another row: it becomes an index that no array has.
    std::uint64_t Index(std::uint64_t row, std::uint64_t column) const {
        return row < rows_ && column < columns_ ? row * columns_ + column : UINT64_MAX;
    }
    std::uint64_t Row(std::uint64_t row) const { return row <= rows_ ? row * columns_ : UINT64_MAX; }

    SharedArray<T> elements_;
    std::uint64_t rows_ = 0;
    std::uint64_t columns_ = 0;
};

// One shared value. Not copied: pass it by reference.
template <class T>
class SharedVar {
public:
    // Zero at first. Collective.
    explicit SharedVar(const Options &options = Options()) : element_(1, options) {}
    SharedVar(const SharedVar &) = delete;

    T Read() const { return element_.Read(0); }
    void Write(const T &value) { element_.Write(0, value); }
    operator T() const { return Read(); }
    SharedVar &operator=(const SharedVar &other) {
        Write(other.Read());
        return *this;
    }
    COMEM_ASSIGNMENTS_(SharedVar, T, )

private:
    SharedArray<T> element_;
};

#undef COMEM_ASSIGNMENTS_

// The family of DSM/IP.
using SharedInt = SharedVar<std::int32_t>;
using SharedLong = SharedVar<std::int64_t>;
using SharedFloat = SharedVar<float>;
using SharedDouble = SharedVar<double>;
using SharedByteArray = SharedArray<std::uint8_t>;
using SharedIntArray = SharedArray<std::int32_t>;
using SharedLongArray = SharedArray<std::int64_t>;
using SharedFloatArray = SharedArray<float>;
using SharedDoubleArray = SharedArray<double>;

} // namespace comem

#endif // COMEM_HPP
