/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * message-test: floods the backbone (DSM/IP, section 4.1). Every thread sends many messages to the next thread, as
 * fast as it can, and takes those from the one before: each must arrive whole, and exactly once.
 */
#include "common.h"

enum { SIZE_MAX_BYTES = 4096, HEADER = 2 };

static int64_t count = 100000, size = 64;
static double seconds;
static int64_t received, wrong, twice;

/* The receiving half of one thread. */
typedef struct inbox {
    uint64_t sender;        /* who must have sent everything */
    unsigned char *arrived; /* one bit for each message */
    int64_t taken, wrong, twice;
} inbox;

/* The bytes behind the header, the same for sender and receiver. */
static unsigned char filling(uint64_t number, int64_t place) {
    return (unsigned char)(number * 31 + (uint64_t)place);
}

static void compose(unsigned char *message, uint64_t sender, uint64_t number) {
    const uint64_t header[HEADER] = {sender, number};
    memcpy(message, header, sizeof header);
    for (int64_t i = (int64_t)sizeof header; i < size; i++) message[i] = filling(number, i);
}

/* Checks a message off the list. */
static void take(inbox *in, const unsigned char *message, int64_t length) {
    uint64_t header[HEADER];
    memcpy(header, message, sizeof header);
    in->taken++;
    if (length != size || header[0] != in->sender || header[1] >= (uint64_t)count) {
        in->wrong++;
        return;
    }
    for (int64_t i = (int64_t)sizeof header; i < size; i++) {
        if (message[i] != filling(header[1], i)) {
            in->wrong++;
            return;
        }
    }
    unsigned char bit = (unsigned char)(1 << (header[1] % 8));
    if (in->arrived[header[1] / 8] & bit) in->twice++;
    in->arrived[header[1] / 8] |= bit;
}

static void work(void *unused) {
    (void)unused;
    unsigned char message[SIZE_MAX_BYTES];
    const int threads = comem_threads(), self = comem_thread();
    inbox in = {(uint64_t)((self + threads - 1) % threads), calloc((size_t)count / 8 + 1, 1), 0, 0, 0};
    if (!in.arrived) refuse("message-test", "no memory");
    comem_barrier();
    double start = now();
    for (int64_t i = 0; i < count; i++) {
        compose(message, (uint64_t)self, (uint64_t)i);
        comem_post((self + 1) % threads, message, (size_t)size);
        for (int64_t length = 0; in.taken < count && length >= 0;) {
            length = comem_tryreceive(NULL, message, sizeof message);
            if (length >= 0) take(&in, message, length);
        }
    }
    while (in.taken < count) take(&in, message, comem_receive(NULL, message, sizeof message));
    comem_barrier();
    /* Whatever arrives after the last message that was sent has arrived twice. */
    for (int64_t length; (length = comem_tryreceive(NULL, message, sizeof message)) >= 0;) take(&in, message, length);
    int64_t sums[3] = {in.taken, in.wrong, in.twice};
    comem_reduce_i64(COMEM_SUM, sums, 3);
    if (comem_thread() == 0) {
        seconds = now() - start;
        received = sums[0];
        wrong = sums[1];
        twice = sums[2];
    }
    free(in.arrived);
}

int main(int argc, char **argv) {
    const option options[] = {
        {"--count", &count, NULL, NULL, "messages that each thread sends"},
        {"--size", &size, NULL, NULL, "bytes in a message, 16 to 4096"},
    };
    if (comem_start_args(&argc, argv) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    read_options(argc, argv, options, COUNT_OF(options));
    if (size < (int64_t)sizeof(uint64_t) * HEADER || size > SIZE_MAX_BYTES) {
        refuse("message-test", "a message has 16 to 4096 bytes");
    }
    comem_parallel(work, NULL);
    int failed = 0;
    if (comem_node() == 0) {
        const int64_t expected = count * comem_threads();
        failed = received != expected || wrong != 0 || twice != 0;
        printf("message-test: %d threads %" PRId64 " messages each of %" PRId64 " bytes received=%" PRId64
               " expected=%" PRId64 " damaged=%" PRId64 " twice=%" PRId64 " time_s=%.6f messages_per_s=%.0f %s\n",
               comem_threads(), count, size, received, expected, wrong, twice, seconds, (double)received / seconds,
               failed ? "WRONG" : "ok");
    }
    return comem_finish() != 0 || failed;
}
