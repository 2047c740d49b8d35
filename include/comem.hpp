// SPDX-License-Identifier: MIT OR Apache-2.0
//
// comem.hpp: one memory for many machines, for C++17. Header only, over comem.h.
//
// Names are in lower case, and those of std where std has the thing: mutex, semaphore, condition_variable.
//
// Shared objects with read() and write() as in DSM/IP (section 3.1), and with the syntax of ordinary arrays:
//
//     comem::start();
//     comem::object_array<int> a(1000), b(1000);
//     a[i] = b[j];            // reads b[j], writes a[i]
//     int x = a[i] + 1;       // reads
//     a[i] += 5;              // reads, then writes: two accesses, so hold a lock if others do the same
//     auto y = +a[i];         // the value; `auto y = a[i]` would be a reference to the element
//
// `a[i]` is a small proxy. Where a function template or printf wants the value itself, write `+a[i]` or `a.read(i)`.
//
// Objects are created collectively: every node constructs the same objects in the same order, from its main thread.
// Copies of an array or matrix name the same elements. In a hot loop use a local copy of an array that is otherwise
// reached through a pointer or a global variable: then its address and length stay in registers.
//
// Failures throw comem::error. Misuse, such as an index out of range, ends the job (see comem.h).
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
class error : public std::runtime_error {
public:
    error(int code, const std::string &sentence) : std::runtime_error(sentence), code_(code) {}
    int code() const noexcept { return code_; }

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
inline void check(int code) {
    if (code < 0) {
        const char *sentence = comem_last_error();
        throw error(code, *sentence ? sentence : comem_error_string(code));
    }
}

// What a call that tries has come to: whether it took what it tried for.
inline bool took(int answer) {
    check(answer);
    return answer > 0;
}

} // namespace detail

inline int node() { return comem_node(); }
inline int nodes() { return comem_nodes(); }
// The calling thread, counted through all nodes.
inline int thread() { return comem_thread(); }
inline int threads() { return comem_threads(); }
inline int threads_per_node() { return comem_threads_per_node(); }

// Joins the job; gives the calling thread's number.
inline int start() {
    detail::check(comem_start());
    return comem_thread();
}

// The same, and takes Comem's own options (`--comem-engine=owner`) out of the command line.
inline int start(int &argc, char **argv) {
    detail::check(comem_start_args(&argc, argv));
    return comem_thread();
}

// Waits for every node and leaves the job. Collective.
inline void finish() { detail::check(comem_finish()); }

// Waits until every thread of every node has arrived; where nodes have several threads, a call for parallel().
inline void barrier() { detail::check(comem_barrier()); }

// Waits until one thread of every node has come here, for programs with thread pools of their own; see comem.h for what
// the other threads may do meanwhile.
inline void node_barrier() { detail::check(comem_node_barrier()); }

namespace detail {

// A function on its way through the C interface, and the first exception that it threw in any thread: none may pass
// through the C frames, so it is thrown again behind them.
template <class Function>
struct call {
    Function &function;
    std::exception_ptr thrown;
    std::mutex mutex;

    static void run(void *argument) {
        call &self = *static_cast<call *>(argument);
        try {
            self.function();
        } catch (...) {
            std::lock_guard<std::mutex> hold(self.mutex);
            if (!self.thrown) self.thrown = std::current_exception();
        }
    }
};

} // namespace detail

// Runs `function()` on every thread of this node, this one included. Collective. An exception is thrown on here once
// all threads have returned; a thread that throws while others wait for it at a barrier leaves them waiting.
template <class Function>
void parallel(Function &&function) {
    using plain = std::remove_reference_t<Function>;
    detail::call<plain> each{function, nullptr, {}};
    detail::check(comem_parallel(&detail::call<plain>::run, &each));
    if (each.thrown) std::rethrow_exception(each.thrown);
}

// Some of the items 0, 1, 2, ...: [low, high).
struct part {
    std::uint64_t low;
    std::uint64_t high;
    std::uint64_t size() const { return high - low; }
};

// This thread's part of `total` items, all parts as equal as can be.
inline part split(std::uint64_t total) {
    part mine{0, 0};
    detail::check(comem_split(total, &mine.low, &mine.high));
    return mine;
}

// The same by the measured speed of each thread since its last call; every thread calls.
inline part split_weighted(std::uint64_t total) {
    part mine{0, 0};
    detail::check(comem_split_weighted(total, &mine.low, &mine.high));
    return mine;
}

// Deals [0, total) out to all threads of all nodes while they run: calls `body(low, high)` for each piece of `chunk`
// items that this thread gets; 0: for pieces that grow smaller. See comem_for_dynamic(). An exception leaves the loop
// of this thread; what its node had taken besides may then be dealt out to nobody.
template <class Body>
void for_dynamic(std::uint64_t total, std::uint64_t chunk, Body &&body) {
    struct leaving {
        ~leaving() { comem_leave_items_(); }
    };
    detail::check(comem_begin_items_());
    leaving leaves;
    std::uint64_t low = 0, high = 0;
    for (;;) {
        const int more = comem_next_items_(total, chunk, &low, &high);
        detail::check(more);
        if (more == 0) return;
        body(low, high);
    }
}

// ---- atomic operations ------------------------------------------------------------------------------------------

namespace detail {

template <class T>
struct same {
    using type = T;
};

// The number of a word's type in comem.h.
template <class T>
constexpr int kind_of_word() {
    static_assert(std::is_same_v<T, double> || (std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)),
                  "atomic operations are for integers of 32 and 64 bits, and for double");
    if (std::is_same_v<T, double>) return 4;
    return (sizeof(T) == 8 ? 2 : 0) + (std::is_unsigned_v<T> ? 1 : 0);
}

template <class T>
T on_word(T *word, int op, T value, T expected, int ordered) {
    std::uint64_t bits = 0, other = 0;
    std::memcpy(&bits, &value, sizeof(T));
    std::memcpy(&other, &expected, sizeof(T));
    const std::uint64_t old = comem_atomic_(word, kind_of_word<T>(), op, bits, other, ordered);
    T result;
    std::memcpy(&result, &old, sizeof(T));
    return result;
}

} // namespace detail

// Operations on a word of shared memory as one step for all threads of all nodes; each gives what the word held. They
// release and acquire; their twins with `_relaxed` say nothing about other memory and are much cheaper. See comem.h.
#define COMEM_WORD_OPERATION_(name, op)                                                                              \
    template <class T>                                                                                               \
    T name(T *word, typename detail::same<T>::type value) {                                                          \
        return detail::on_word<T>(word, op, value, T(), 1);                                                          \
    }                                                                                                                \
    template <class T>                                                                                               \
    T name##_relaxed(T *word, typename detail::same<T>::type value) {                                                \
        return detail::on_word<T>(word, op, value, T(), 0);                                                          \
    }
COMEM_WORD_OPERATION_(fetch_add, COMEM_OP_ADD_)
COMEM_WORD_OPERATION_(fetch_sub, COMEM_OP_SUB_)
COMEM_WORD_OPERATION_(fetch_min, COMEM_OP_MIN_)
COMEM_WORD_OPERATION_(fetch_max, COMEM_OP_MAX_)
COMEM_WORD_OPERATION_(fetch_and, COMEM_OP_AND_)
COMEM_WORD_OPERATION_(fetch_or, COMEM_OP_OR_)
COMEM_WORD_OPERATION_(fetch_xor, COMEM_OP_XOR_)
COMEM_WORD_OPERATION_(exchange, COMEM_OP_EXCHANGE_)
#undef COMEM_WORD_OPERATION_
// Stores `value` if the word holds `expected`, bit by bit.
template <class T>
T compare_exchange(T *word, typename detail::same<T>::type expected, typename detail::same<T>::type value) {
    return detail::on_word<T>(word, COMEM_OP_COMPARE_EXCHANGE_, value, expected, 1);
}
template <class T>
T compare_exchange_relaxed(T *word, typename detail::same<T>::type expected, typename detail::same<T>::type value) {
    return detail::on_word<T>(word, COMEM_OP_COMPARE_EXCHANGE_, value, expected, 0);
}
// What the word holds.
template <class T>
T load(const T *word) {
    return detail::on_word<T>(const_cast<T *>(word), COMEM_OP_LOAD_, T(), T(), 1);
}
template <class T>
T load_relaxed(const T *word) {
    return detail::on_word<T>(const_cast<T *>(word), COMEM_OP_LOAD_, T(), T(), 0);
}

// Stores a value, as an operation of one step.
template <class T>
void store(T *word, typename detail::same<T>::type value) {
    exchange(word, value);
}
template <class T>
void store_relaxed(T *word, typename detail::same<T>::type value) {
    exchange_relaxed(word, value);
}

// ---- synchronisation --------------------------------------------------------------------------------------------

// A lock of the job, named by a number: for std::lock_guard, std::unique_lock, std::scoped_lock. Objects of one number
// are one lock, so copies are.
class mutex {
public:
    explicit mutex(std::uint64_t name) : name_(name) {}
    void lock() { detail::check(comem_lock(name_)); }
    // Waits for no thread; false where a thread holds the lock, or it lies at another node. There it is sent for.
    bool try_lock() {
        return detail::took(comem_trylock(name_));
    }
    void unlock() { detail::check(comem_unlock(name_)); }
    std::uint64_t name() const { return name_; }

private:
    std::uint64_t name_;
};

// Holds the lock of a number while it lives: std::lock_guard without an object for the lock.
class lock_guard {
public:
    explicit lock_guard(std::uint64_t name) : lock_(name) { lock_.lock(); }
    explicit lock_guard(const mutex &lock) : lock_guard(lock.name()) {}
    ~lock_guard() { comem_unlock(lock_.name()); }
    lock_guard(const lock_guard &) = delete;
    lock_guard &operator=(const lock_guard &) = delete;

private:
    mutex lock_;
};

// A number that only grows, set by one thread and awaited by others.
class flag {
public:
    explicit flag(std::uint64_t name) : name_(name) {}
    void set(std::uint64_t value) { detail::check(comem_flag_set(name_, value)); }
    // Returns once the flag is `value` or more.
    void wait(std::uint64_t value) { detail::check(comem_flag_wait(name_, value)); }

private:
    std::uint64_t name_;
};

// A number of things to be had, as std::counting_semaphore: release() adds one, acquire() takes one once there is one.
class semaphore {
public:
    explicit semaphore(std::uint64_t name) : name_(name) {}
    void release() { detail::check(comem_sem_post(name_)); }
    void acquire() { detail::check(comem_sem_wait(name_)); }
    // Takes one if there is one just now; whether it did.
    bool try_acquire() {
        return detail::took(comem_sem_trywait(name_));
    }

private:
    std::uint64_t name_;
};

// Where threads that hold a lock wait for others to change something; the names of std::condition_variable.
class condition_variable {
public:
    explicit condition_variable(std::uint64_t name) : name_(name) {}
    // Lets the lock go, waits for a signal and acquires the lock again; check in a loop for what the signal stands for.
    void wait(const mutex &lock) { detail::check(comem_cond_wait(name_, lock.name())); }
    void wait(std::unique_lock<mutex> &lock) { wait(*lock.mutex()); }
    // Waits until `holds()`.
    template <class Held, class Predicate>
    void wait(Held &lock, Predicate holds) {
        while (!holds()) wait(lock);
    }
    // Wakes the thread that has waited longest, or all.
    void notify_one() { detail::check(comem_cond_signal(name_)); }
    void notify_all() { detail::check(comem_cond_broadcast(name_)); }

private:
    std::uint64_t name_;
};

// A lock for many readers or one writer. Also usable with std::shared_lock and std::unique_lock.
class shared_mutex {
public:
    explicit shared_mutex(std::uint64_t name) : name_(name) {}
    void lock_shared() { detail::check(comem_rdlock(name_)); }
    void lock() { detail::check(comem_wrlock(name_)); }
    // These wait for no thread; false where lock_shared() or lock() would wait.
    bool try_lock_shared() { return detail::took(comem_tryrdlock(name_)); }
    bool try_lock() { return detail::took(comem_trywrlock(name_)); }
    void unlock_shared() { detail::check(comem_rwunlock(name_)); }
    void unlock() { detail::check(comem_rwunlock(name_)); }
    std::uint64_t name() const { return name_; }

private:
    std::uint64_t name_;
};

// Reads, or writes, under a reader-writer lock while it lives.
class read_guard {
public:
    explicit read_guard(shared_mutex lock) : name_(lock.name()) { lock.lock_shared(); }
    ~read_guard() { comem_rwunlock(name_); }
    read_guard(const read_guard &) = delete;
    read_guard &operator=(const read_guard &) = delete;

private:
    std::uint64_t name_;
};
class write_guard {
public:
    explicit write_guard(shared_mutex lock) : name_(lock.name()) { lock.lock(); }
    ~write_guard() { comem_rwunlock(name_); }
    write_guard(const write_guard &) = delete;
    write_guard &operator=(const write_guard &) = delete;

private:
    std::uint64_t name_;
};

// What every thread's `value` comes to: a 64-bit integer for integers, unsigned for unsigned ones of 64 bits, a double
// for floating-point numbers. Every thread makes the call; it is a barrier too.
template <class T>
auto reduce(int operation, T value) {
    static_assert(std::is_arithmetic_v<T>, "only numbers can be reduced");
    static_assert(!std::is_same_v<T, long double>, "a long double would lose digits: convert it to double");
    if constexpr (std::is_floating_point_v<T>) {
        double number = static_cast<double>(value);
        detail::check(comem_reduce_f64(operation, &number, 1));
        return number;
    } else {
        // The least and the greatest unsigned number are found among signed ones whose order is the same.
        constexpr bool is_large = std::is_unsigned_v<T> && sizeof(T) == sizeof(std::uint64_t);
        const std::uint64_t turn = is_large && operation != COMEM_SUM ? std::uint64_t(1) << 63 : 0;
        std::int64_t number = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) ^ turn);
        detail::check(comem_reduce_i64(operation, &number, 1));
        using result_type = std::conditional_t<is_large, std::uint64_t, std::int64_t>;
        return static_cast<result_type>(static_cast<std::uint64_t>(number) ^ turn);
    }
}
template <class T>
auto sum(T value) { return reduce(COMEM_SUM, value); }
template <class T>
auto min(T value) { return reduce(COMEM_MIN, value); }
template <class T>
auto max(T value) { return reduce(COMEM_MAX, value); }

// ---- containers in shared memory --------------------------------------------------------------------------------

// Takes a container's memory from the shared heap, so that what it holds is shared as well:
//
//     using Words = std::vector<comem::string, comem::allocator<comem::string>>;
//     Words *words = comem::create<Words>();              // one thread; the container itself is in shared memory, too
//
// Any thread of any node allocates and gives back, at any time between start() and finish(), by itself: nothing here
// is collective. A container is shared data like any other: who changes it, its allocations among it, does so under a
// lock or between barriers, and who finds it has synchronised with who made it (under the engine `scope` by that same
// lock, or a barrier). Blocks of up to 2 KiB are cheap; larger ones are agreed on with every node, so reserve() what
// will be needed.
//
// What elements point to must be shared or the same on every node: `comem::string` and not `std::string`. Virtual
// functions work where the program is at the same addresses on every node (link it with -no-pie). All allocators are
// equal, and hold nothing.
template <class T>
class allocator {
public:
    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;

    allocator() noexcept = default;
    template <class Other>
    allocator(const allocator<Other> &) noexcept {}

    T *allocate(std::size_t count) {
        if (count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T)) throw std::bad_alloc();
        comem_region_options options = {};
        options.label = "comem::Allocator";
        options.home = COMEM_HOME_AUTOMATIC;
        options.alignment = alignof(T) > 16 ? alignof(T) : 16;
        void *memory = comem_alloc_with(count ? count * sizeof(T) : 1, &options);
        if (memory == nullptr) throw std::bad_alloc();
        return static_cast<T *>(memory);
    }
    void deallocate(T *memory, std::size_t) noexcept { comem_free(memory); }
};
template <class One, class Other>
bool operator==(const allocator<One> &, const allocator<Other> &) noexcept { return true; }
template <class One, class Other>
bool operator!=(const allocator<One> &, const allocator<Other> &) noexcept { return false; }

// Makes an object in shared memory; by the calling thread alone. Others find it by a pointer in shared memory.
template <class T, class... Arguments>
T *create(Arguments &&...arguments) {
    T *memory = allocator<T>().allocate(1);
    try {
        return ::new (static_cast<void *>(memory)) T(std::forward<Arguments>(arguments)...);
    } catch (...) {
        allocator<T>().deallocate(memory, 1);
        throw;
    }
}
// Destroys it and gives its memory back; by any one thread, when nobody uses it any more.
template <class T>
void destroy(T *object) {
    if (object == nullptr) return;
    object->~T();
    allocator<T>().deallocate(object, 1);
}

// Containers whose memory is shared.
template <class T>
using vector = std::vector<T, allocator<T>>;
template <class Key, class T, class Less = std::less<Key>>
using map = std::map<Key, T, Less, allocator<std::pair<const Key, T>>>;
using string = std::basic_string<char, std::char_traits<char>, allocator<char>>;

// ---- elements ---------------------------------------------------------------------------------------------------

namespace detail {

template <std::size_t size>
struct word_of {};
template <>
struct word_of<1> { using type = std::uint8_t; };
template <>
struct word_of<2> { using type = std::uint16_t; };
template <>
struct word_of<4> { using type = std::uint32_t; };
template <>
struct word_of<8> { using type = std::uint64_t; };

// Whether one instruction loads or stores a T.
template <class T>
inline constexpr bool is_word = sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8;

template <class T>
inline T load(comem_array array, std::uint64_t index) {
    if constexpr (std::is_arithmetic_v<T> && is_word<T>) {
        T value;
        COMEM_READ_ELEMENT_(T, array, index, value);
        return value;
    } else if constexpr (sequential) {
        return reinterpret_cast<const T *>(array.data)[index];
    } else {
        alignas(T) unsigned char bytes[sizeof(T)];
        if constexpr (is_word<T>) {
            using word_type = typename word_of<sizeof(T)>::type;
            word_type word;
            COMEM_READ_ELEMENT_(word_type, array, index, word);
            std::memcpy(bytes, &word, sizeof(T));
        } else {
            std::memset(bytes, 0, sizeof(T));
            comem_read(array, index, bytes);
        }
        return *reinterpret_cast<const T *>(bytes);
    }
}

template <class T>
inline void store(comem_array array, std::uint64_t index, const T &value) {
    if constexpr (std::is_arithmetic_v<T> && is_word<T>) {
        // `value` may lie in shared memory, where reading it may wait: not while a store is announced.
        const T own = value;
        COMEM_WRITE_ELEMENT_(T, array, index, own);
    } else if constexpr (sequential) {
        reinterpret_cast<T *>(array.data)[index] = value;
    } else if constexpr (is_word<T>) {
        using word_type = typename word_of<sizeof(T)>::type;
        word_type word;
        std::memcpy(&word, &value, sizeof(T));
        COMEM_WRITE_ELEMENT_(word_type, array, index, word);
    } else {
        comem_write(array, index, &value);
    }
}

// What assignment means, for anything with read() and write(): shared variables and references to elements.
#define COMEM_ASSIGNMENTS_(type, T, qualifier)                                                                       \
    type &operator=(const T &value) qualifier { write(value); return *this; }                                        \
    type &operator+=(const T &value) qualifier { write(static_cast<T>(read() + value)); return *this; }              \
    type &operator-=(const T &value) qualifier { write(static_cast<T>(read() - value)); return *this; }              \
    type &operator*=(const T &value) qualifier { write(static_cast<T>(read() * value)); return *this; }              \
    type &operator/=(const T &value) qualifier { write(static_cast<T>(read() / value)); return *this; }              \
    type &operator%=(const T &value) qualifier { write(static_cast<T>(read() % value)); return *this; }              \
    type &operator&=(const T &value) qualifier { write(static_cast<T>(read() & value)); return *this; }              \
    type &operator|=(const T &value) qualifier { write(static_cast<T>(read() | value)); return *this; }              \
    type &operator^=(const T &value) qualifier { write(static_cast<T>(read() ^ value)); return *this; }              \
    type &operator<<=(int bits) qualifier { write(static_cast<T>(read() << bits)); return *this; }                   \
    type &operator>>=(int bits) qualifier { write(static_cast<T>(read() >> bits)); return *this; }                   \
    type &operator++() qualifier { return *this += T(1); }                                                           \
    type &operator--() qualifier { return *this -= T(1); }                                                           \
    T operator++(int) qualifier { T old = read(); write(static_cast<T>(old + T(1))); return old; }                   \
    T operator--(int) qualifier { T old = read(); write(static_cast<T>(old - T(1))); return old; }

} // namespace detail

// A reference to an element, which `a[i]` gives: reads when a value is wanted, writes when assigned to.
template <class T>
class object_ref {
public:
    object_ref(comem_array array, std::uint64_t index) : array_(array), index_(index) {}
    object_ref(const object_ref &) = default;

    T read() const { return detail::load<T>(array_, index_); }
    void write(const T &value) const { detail::store<T>(array_, index_, value); }
    operator T() const { return read(); }

    // The element's value, not another element to refer to.
    const object_ref &operator=(const object_ref &other) const {
        write(other.read());
        return *this;
    }
    object_ref &operator=(const object_ref &other) {
        write(other.read());
        return *this;
    }
    COMEM_ASSIGNMENTS_(const object_ref, T, const)

    // Reads both, then writes both; not atomic.
    friend void swap(const object_ref &one, const object_ref &other) {
        T value = one.read();
        one.write(other.read());
        other.write(value);
    }
    friend void swap(const object_ref &one, T &other) {
        T value = one.read();
        one.write(other);
        other = std::move(value);
    }
    friend void swap(T &one, const object_ref &other) { swap(other, one); }

private:
    comem_array array_;
    std::uint64_t index_;
};

// ---- objects ----------------------------------------------------------------------------------------------------

// How an object is shared; the default suits most. `unit` is the granularity of DSM/IP: elements that move together.
class object_options {
public:
    object_options() : options_() {}
    object_options &unit(std::uint64_t elements) {
        options_.unit_elements = elements;
        return *this;
    }
    // A static string: "msi", "direct", "owner" or "broadcast".
    object_options &engine(const char *name) {
        options_.engine = name;
        return *this;
    }
    // A static string: the object's name in counters and errors.
    object_options &label(const char *label) {
        options_.label = label;
        return *this;
    }
    // COMEM_HOME_BLOCK, COMEM_HOME_CYCLIC (units in a row) or COMEM_HOME_ON (node).
    object_options &home(int home, int number = 0) {
        options_.home = home;
        options_.home_number = number;
        return *this;
    }
    const comem_object_options *get() const { return &options_; }

private:
    comem_object_options options_;
};

// Elements [low, high) of an array as plain memory, while the span lives: for reading (T const) or for both.
template <class T>
class span {
    static constexpr bool writes = !std::is_const_v<T>;

public:
    span(comem_array array, std::uint64_t low, std::uint64_t high) : array_(array), low_(low), high_(high) {
        if constexpr (writes) {
            data_ = static_cast<T *>(comem_write_begin(array, low, high));
        } else {
            data_ = static_cast<T *>(comem_read_begin(array, low, high));
        }
        if (data_ == nullptr) throw error(COMEM_E_INDEX, comem_last_error());
    }
    span(span &&other) noexcept
        : array_(other.array_), low_(other.low_), high_(other.high_), data_(std::exchange(other.data_, nullptr)) {}
    span(const span &) = delete;
    span &operator=(const span &) = delete;
    ~span() {
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
class object_array {
    static_assert(std::is_trivially_copyable_v<T>, "shared elements are copied between machines byte by byte");

public:
    // No array yet.
    object_array() : array_() {}
    // `length` elements, all zero. Collective.
    explicit object_array(std::uint64_t length, const object_options &options = object_options()) {
        detail::check(comem_create(&array_, sizeof(T), length, options.get()));
    }
    // With `unit` elements to a coherence unit.
    object_array(std::uint64_t length, std::uint64_t unit) : object_array(length, object_options().unit(unit)) {}

    T read(std::uint64_t index) const { return detail::load<T>(array_, index); }
    void write(std::uint64_t index, const T &value) { detail::store<T>(array_, index, value); }
    object_ref<T> operator[](std::uint64_t index) { return object_ref<T>(array_, index); }
    T operator[](std::uint64_t index) const { return read(index); }

    // Elements [low, high) as plain memory while the span lives; see comem_write_begin() in comem.h.
    span<T> range(std::uint64_t low, std::uint64_t high) { return span<T>(array_, low, high); }
    span<const T> range(std::uint64_t low, std::uint64_t high) const { return read_range(low, high); }
    span<const T> read_range(std::uint64_t low, std::uint64_t high) const {
        return span<const T>(array_, low, high);
    }

    std::uint64_t size() const { return array_.length; }
    bool empty() const { return array_.length == 0; }
    // The array as the C interface knows it.
    comem_array handle() const { return array_; }

private:
    comem_array array_;
};

// A shared matrix, row by row.
template <class T>
class object_matrix {
public:
    object_matrix() = default;
    // Rows times columns elements, all zero. Collective.
    object_matrix(std::uint64_t rows, std::uint64_t columns, const object_options &options = object_options())
        : elements_(area(rows, columns), options), rows_(rows), columns_(columns) {}

    T read(std::uint64_t row, std::uint64_t column) const { return elements_.read(index_of(row, column)); }
    void write(std::uint64_t row, std::uint64_t column, const T &value) {
        elements_.write(index_of(row, column), value);
    }
    object_ref<T> operator()(std::uint64_t row, std::uint64_t column) { return elements_[index_of(row, column)]; }
    T operator()(std::uint64_t row, std::uint64_t column) const { return read(row, column); }

    // Whole rows [low, high) as plain memory while the span lives.
    span<T> rows_range(std::uint64_t low, std::uint64_t high) {
        return elements_.range(row_start(low), row_start(high));
    }
    span<const T> read_rows(std::uint64_t low, std::uint64_t high) const {
        return elements_.read_range(row_start(low), row_start(high));
    }

    std::uint64_t rows() const { return rows_; }
    std::uint64_t columns() const { return columns_; }
    // The same elements as an array.
    object_array<T> elements() const { return elements_; }

private:
    // An area beyond 2^64 is asked for as the largest there is, so that creating it fails.
    static std::uint64_t area(std::uint64_t rows, std::uint64_t columns) {
        return columns != 0 && rows > UINT64_MAX / columns ? UINT64_MAX : rows * columns;
    }
    // What is out of range must not name an element of another row: it becomes an index that no array has.
    std::uint64_t index_of(std::uint64_t row, std::uint64_t column) const {
        return row < rows_ && column < columns_ ? row * columns_ + column : UINT64_MAX;
    }
    std::uint64_t row_start(std::uint64_t row) const { return row <= rows_ ? row * columns_ : UINT64_MAX; }

    object_array<T> elements_;
    std::uint64_t rows_ = 0;
    std::uint64_t columns_ = 0;
};

// One shared value. Not copied: pass it by reference.
template <class T>
class object_var {
public:
    // Zero at first. Collective.
    explicit object_var(const object_options &options = object_options()) : element_(1, options) {}
    object_var(const object_var &) = delete;

    T read() const { return element_.read(0); }
    void write(const T &value) { element_.write(0, value); }
    operator T() const { return read(); }
    object_var &operator=(const object_var &other) {
        write(other.read());
        return *this;
    }
    COMEM_ASSIGNMENTS_(object_var, T, )

private:
    object_array<T> element_;
};

#undef COMEM_ASSIGNMENTS_

} // namespace comem

#endif // COMEM_HPP
