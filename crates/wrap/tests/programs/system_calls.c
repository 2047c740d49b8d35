/* Hands buffers in shared memory, whose pages are on another node, to every wrapped call, and checks the bytes.
 *
 *     system_calls [CALL]
 *
 * One line per failure; `ok` at the end. With a name, that call alone, and its errno in the line. */
#define _GNU_SOURCE
#include <comem.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 24, BYTES = PAGE * PAGES, ODD = 777 };
enum { PATHS = 50, TEXT = 54, PLACE = 55, MADE = 56, REMOVED = 57, TIME = 58 };

static unsigned char *outgoing;    /* pages at home on node 0, written by it: node 1 has none of them */
static unsigned char *incoming[64]; /* one for each check, so that none is here before its call */
static int checks, failures;
static const char *only;

static unsigned char byte_at(size_t i) { return (unsigned char)(i * 7 + i / 251 + 1); }

static int wanted(const char *name) { return only == NULL || strcmp(only, name) == 0; }

/* A buffer to fill, for each check another. */
static unsigned char *fresh(void) { return incoming[checks++] + ODD; }

static void expect(const char *name, int right) {
    if (!right) {
        printf("%s: %s\n", name, errno == EFAULT ? "EFAULT" : strerror(errno));
        failures++;
    }
    errno = 0;
}

static int same(const unsigned char *got, size_t from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (got[i] != byte_at(from + i)) return 0;
    }
    return 1;
}

static size_t size_of_source = BYTES - 2 * ODD;

/* A buffer to send from, for each check another, made by node 0. */
static unsigned char *source(void) { return outgoing + (size_t)checks * BYTES + ODD; }

static int file_with_bytes(void) {
    char name[] = "/tmp/comem-wrap-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    unsigned char *bytes = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) bytes[i] = byte_at(i);
    if (pwrite(fd, bytes, BYTES, 0) != BYTES) abort();
    free(bytes);
    return fd;
}

static int file_has(int fd, size_t bytes) {
    unsigned char *got = malloc(bytes);
    int right = pread(fd, got, bytes, 0) == (ssize_t)bytes && same(got, 0, bytes);
    free(got);
    return right;
}

static void descriptors(void) {
    size_t n = size_of_source;
    ssize_t ssize = (ssize_t)n;
    int fd = file_with_bytes();
    unsigned char *to;
    if (wanted("read")) to = fresh(), expect("read", read(fd, to, n) == ssize && same(to, 0, n));
    if (wanted("pread")) to = fresh(), expect("pread", pread(fd, to, n, 9) == ssize && same(to, 9, n));
    if (wanted("preadv")) {
        to = fresh();
        struct iovec two[2] = {{to, 5000}, {to + 9000, 20000}};
        expect("preadv", preadv(fd, two, 2, 3) == 25000 && same(to, 3, 5000) && same(to + 9000, 5003, 20000));
    }
    if (wanted("readv")) {
        to = fresh();
        struct iovec two[2] = {{to, 5000}, {to + 9000, 20000}};
        lseek(fd, 0, SEEK_SET);
        expect("readv", readv(fd, two, 2) == 25000 && same(to, 0, 5000) && same(to + 9000, 5000, 20000));
    }
    if (ftruncate(fd, 0) != 0) abort();
    lseek(fd, 0, SEEK_SET);
    if (wanted("write")) expect("write", write(fd, source(), n) == ssize && file_has(fd, n)), checks++;
    if (wanted("pwrite")) expect("pwrite", pwrite(fd, source(), n, 0) == ssize && file_has(fd, n)), checks++;
    if (wanted("writev")) {
        unsigned char *from = source();
        struct iovec two[2] = {{from, 5000}, {from + 5000, n - 5000}};
        lseek(fd, 0, SEEK_SET);
        expect("writev", writev(fd, two, 2) == ssize && file_has(fd, n)), checks++;
    }
    if (wanted("pwritev")) {
        unsigned char *from = source();
        struct iovec two[2] = {{from, 5000}, {from + 5000, n - 5000}};
        expect("pwritev", pwritev(fd, two, 2, 0) == ssize && file_has(fd, n)), checks++;
    }
    close(fd);
}

static void streams(void) {
    size_t n = size_of_source;
    int fd = file_with_bytes();
    FILE *stream = fdopen(fd, "r+");
    unsigned char *to;
    if (wanted("fread")) {
        to = fresh();
        expect("fread", fread(to, 1, n, stream) == n && same(to, 0, n) && !ferror(stream));
    }
    rewind(stream);
    if (wanted("fread_unlocked")) {
        to = fresh();
        expect("fread_unlocked", fread_unlocked(to, 10, n / 10, stream) == n / 10 && same(to, 0, n / 10 * 10));
    }
    rewind(stream);
    if (ftruncate(fd, 0) != 0) abort();
    if (wanted("fwrite")) {
        size_t wrote = fwrite(source(), 1, n, stream);
        expect("fwrite", wrote == n && !ferror(stream) && fflush(stream) == 0 && file_has(fd, n)), checks++;
    }
    rewind(stream);
    if (wanted("fwrite_unlocked")) {
        size_t wrote = fwrite_unlocked(source(), n, 1, stream);
        expect("fwrite_unlocked", wrote == 1 && fflush(stream) == 0 && file_has(fd, n)), checks++;
    }
    rewind(stream);
    if (wanted("fputs")) {
        struct stat about;
        if (ftruncate(fd, 0) != 0) abort();
        int put = fputs((char *)outgoing + (size_t)TEXT * BYTES, stream);
        expect("fputs", put >= 0 && fflush(stream) == 0 && fstat(fd, &about) == 0 && about.st_size == 20 * PAGE);
    }
    if (wanted("puts")) {
        int out = dup(1);
        if (fflush(stdout) != 0 || ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0 || dup2(fd, 1) != 1) abort();
        int put = puts((char *)outgoing + (size_t)TEXT * BYTES);
        fflush(stdout);
        if (dup2(out, 1) != 1 || close(out) != 0) abort();
        expect("puts", put == 20 * PAGE + 1 && lseek(fd, 0, SEEK_END) == put);
    }
    fclose(stream);
}

static void sockets(void) {
    int pair[2], datagrams[2];
    struct sockaddr_in *name;
    unsigned char *to;
    char private[20000], got[20000];
    for (size_t i = 0; i < sizeof private; i++) private[i] = (char)byte_at(i);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) abort();
    if (wanted("send")) {
        ssize_t sent = send(pair[0], source(), sizeof got, 0);
        expect("send", sent == sizeof got && recv(pair[1], got, sizeof got, MSG_WAITALL) == sizeof got &&
                           same((unsigned char *)got, 0, sizeof got));
        checks++;
    }
    if (wanted("sendmsg")) {
        struct iovec one = {source(), sizeof got};
        struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
        ssize_t sent = sendmsg(pair[0], &message, 0);
        expect("sendmsg", sent == sizeof got && recv(pair[1], got, sizeof got, MSG_WAITALL) == sizeof got &&
                              same((unsigned char *)got, 0, sizeof got));
        checks++;
    }
    if (wanted("recv")) {
        if (send(pair[0], private, sizeof private, 0) != sizeof private) abort();
        to = fresh();
        expect("recv", recv(pair[1], to, sizeof private, MSG_WAITALL) == sizeof private && same(to, 0, sizeof private));
    }
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof here;
    for (int i = 0; i < 2; i++) {
        datagrams[i] = socket(AF_INET, SOCK_DGRAM, 0);
        here.sin_port = 0;
        if (bind(datagrams[i], (struct sockaddr *)&here, sizeof here) != 0) abort();
        if (getsockname(datagrams[i], (struct sockaddr *)&here, &len) != 0) abort();
    }
    if (wanted("sendto")) {
        ssize_t sent = sendto(datagrams[0], source(), sizeof got, 0, (struct sockaddr *)&here, len);
        expect("sendto", sent == sizeof got && recv(datagrams[1], got, sizeof got, MSG_DONTWAIT) == sizeof got &&
                             same((unsigned char *)got, 0, sizeof got));
        checks++;
    }
    if (wanted("recvfrom")) {
        sendto(datagrams[0], private, sizeof private, 0, (struct sockaddr *)&here, len);
        to = fresh();
        name = (struct sockaddr_in *)(void *)(to - ODD + BYTES - PAGE);
        socklen_t *room = (socklen_t *)(void *)(name + 1);
        *room = sizeof *name;
        ssize_t came = recvfrom(datagrams[1], to, sizeof private, MSG_DONTWAIT, (struct sockaddr *)name, room);
        expect("recvfrom", came == sizeof private && same(to, 0, sizeof private) && *room == sizeof *name &&
                               name->sin_family == AF_INET);
    }
    if (wanted("recvmsg")) {
        sendto(datagrams[0], private, sizeof private, 0, (struct sockaddr *)&here, len);
        to = fresh();
        struct sockaddr_in from;
        struct iovec two[2] = {{to, 5000}, {to + 9000, 20000}};
        struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = two, .msg_iovlen = 2};
        expect("recvmsg", recvmsg(datagrams[1], &message, MSG_DONTWAIT) == sizeof private &&
                              message.msg_namelen == sizeof from &&
                              same(to, 0, 5000) && same(to + 9000, 5000, 15000));
    }
    if (wanted("read of a datagram")) {
        sendto(datagrams[0], private, sizeof private, 0, (struct sockaddr *)&here, len);
        to = fresh();
        expect("read of a datagram",
               read(datagrams[1], to, sizeof private) == sizeof private && same(to, 0, sizeof private));
    }
}

/* Node 0 wrote this at PATHS and behind. */
static const char PATH[] = "/proc/self/status";

static void paths(void) {
    char *path = (char *)outgoing + (size_t)PATHS * BYTES;
    if (wanted("open")) {
        int fd = open(path, O_RDONLY);
        expect("open", fd >= 0);
        close(fd);
    }
    if (wanted("access")) expect("access", access(path + BYTES, R_OK) == 0);
    if (wanted("fopen")) {
        FILE *stream = fopen(path + 2 * BYTES, "r");
        expect("fopen", stream != NULL);
        if (stream) fclose(stream);
    }
    if (wanted("stat")) {
        struct stat *about = (struct stat *)(void *)(fresh() - ODD);
        expect("stat", stat(path + 3 * BYTES, about) == 0 && S_ISREG(about->st_mode));
    }
    if (wanted("fstat")) {
        struct stat *about = (struct stat *)(void *)(fresh() - ODD);
        expect("fstat", fstat(0, about) == 0 && about->st_mode != 0);
    }
    if (wanted("getcwd")) {
        char *place = (char *)fresh();
        expect("getcwd", getcwd(place, PAGE) == place && place[0] == '/');
    }
    if (wanted("readlink")) {
        char *place = (char *)fresh();
        expect("readlink", readlink("/proc/self/exe", place, PAGE) > 0 && place[0] == '/');
    }
}

static void directories(void) {
    char *made = (char *)outgoing + (size_t)MADE * BYTES;
    if (wanted("chdir")) {
        char place[100];
        expect("chdir",
               chdir((char *)outgoing + (size_t)PLACE * BYTES) == 0 && strcmp(getcwd(place, 100), "/proc") == 0);
    }
    if (wanted("mkdir")) expect("mkdir", mkdir(made, 0700) == 0), rmdir(made);
    if (wanted("rmdir")) {
        char name[100];
        snprintf(name, sizeof name, "/tmp/comem-wrap-%d", (int)getppid());
        if (mkdir(name, 0700) != 0) abort();
        expect("rmdir", rmdir((char *)outgoing + (size_t)REMOVED * BYTES) == 0);
        rmdir(name);
    }
}

static pid_t child(void) {
    pid_t made = fork();
    if (made == 0) _exit(3);
    return made;
}

static void children(void) {
    int status;
    if (wanted("waitpid")) {
        int *shared = (int *)(void *)(fresh() - ODD);
        pid_t made = child();
        expect("waitpid", waitpid(made, shared, 0) == made && WIFEXITED(*shared) && WEXITSTATUS(*shared) == 3);
        waitpid(made, &status, 0);
        errno = 0;
    }
    if (wanted("wait")) {
        int *shared = (int *)(void *)(fresh() - ODD);
        pid_t made = child();
        expect("wait", wait(shared) == made && WIFEXITED(*shared) && WEXITSTATUS(*shared) == 3);
        waitpid(made, &status, 0);
        errno = 0;
    }
}

/* Two descriptors in shared memory: a byte goes from one to the other. */
static void expect_pair(const char *name, int made, const int *ends, int from, int to) {
    char byte = 0;
    expect(name, made == 0 && write(ends[from], "x", 1) == 1 && read(ends[to], &byte, 1) == 1 && byte == 'x');
}

static void pairs(void) {
    int *ends;
    if (wanted("pipe")) ends = (int *)(void *)(fresh() - ODD), expect_pair("pipe", pipe(ends), ends, 1, 0);
    if (wanted("pipe2")) {
        ends = (int *)(void *)(fresh() - ODD);
        expect_pair("pipe2", pipe2(ends, O_CLOEXEC), ends, 1, 0);
    }
    if (wanted("socketpair")) {
        ends = (int *)(void *)(fresh() - ODD);
        expect_pair("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends), ends, 0, 1);
    }
}

static void wake(int number) { (void)number; }

static void others(void) {
    /* The C library reads most clocks by itself, those of the processor's time by the kernel. */
    if (wanted("clock_gettime")) {
        struct timespec *now = (struct timespec *)(void *)(fresh() - ODD);
        expect("clock_gettime", clock_gettime(CLOCK_PROCESS_CPUTIME_ID, now) == 0 && now->tv_nsec < 1000000000);
    }
    if (wanted("getrusage")) {
        struct rusage *used = (struct rusage *)(void *)(fresh() - ODD);
        expect("getrusage", getrusage(RUSAGE_SELF, used) == 0 && used->ru_utime.tv_usec < 1000000);
    }
    if (wanted("getrandom")) {
        unsigned char *to = fresh();
        int zeros = 0;
        ssize_t came = getrandom(to, 3 * PAGE, 0);
        for (int i = 0; came > 0 && i < 3 * PAGE; i++) zeros += to[i] == 1; /* what node 0 wrote there */
        expect("getrandom", came == 3 * PAGE && zeros < PAGE);
    }
    if (wanted("nanosleep")) {
        const struct timespec *time = (struct timespec *)(void *)(outgoing + (size_t)TIME * BYTES);
        struct timespec *left = (struct timespec *)(void *)(fresh() - ODD);
        struct itimerval soon = {{0, 100000}, {0, 100000}}, never = {{0, 0}, {0, 0}};
        signal(SIGALRM, wake);
        setitimer(ITIMER_REAL, &soon, NULL);
        int slept = nanosleep(time, left), why = errno;
        setitimer(ITIMER_REAL, &never, NULL);
        errno = why;
        expect("nanosleep", slept == -1 && why == EINTR && left->tv_sec > 0 && left->tv_sec < 20);
    }
}

int main(int argc, char **argv) {
    only = argc > 1 ? argv[1] : NULL;
    if (comem_is_shared(&only) || comem_is_shared(NULL)) return 9;
    if (comem_start() != 0) return 1;
    const comem_region_options on_zero = {.engine = getenv("REGION_ENGINE"), .home = COMEM_HOME_ON, .home_number = 0};
    outgoing = comem_alloc_all((size_t)64 * BYTES, &on_zero);
    for (int i = 0; i < 64; i++) incoming[i] = comem_alloc_all(BYTES, &on_zero);
    if (comem_node() == 0) {
        for (size_t check = 0; check < PATHS; check++) {
            for (size_t i = 0; i < BYTES - ODD; i++) outgoing[check * BYTES + ODD + i] = byte_at(i);
        }
        for (size_t i = PATHS; i < TEXT; i++) memcpy(outgoing + i * BYTES, PATH, sizeof PATH);
        memset(outgoing + (size_t)TEXT * BYTES, 'x', (size_t)20 * PAGE);
        strcpy((char *)outgoing + (size_t)PLACE * BYTES, "/proc");
        sprintf((char *)outgoing + (size_t)MADE * BYTES, "/tmp/comem-wrap-%d-made", (int)getppid());
        sprintf((char *)outgoing + (size_t)REMOVED * BYTES, "/tmp/comem-wrap-%d", (int)getppid());
        ((struct timespec *)(void *)(outgoing + (size_t)TIME * BYTES))->tv_sec = 20;
        for (int i = 0; i < 64; i++) memset(incoming[i], 1, BYTES);
    }
    comem_barrier();
    if (comem_node() == 1) {
        if (!comem_is_shared(outgoing)) return 9;
        errno = 0;
        descriptors();
        streams();
        sockets();
        paths();
        directories();
        children();
        pairs();
        others();
        if (failures == 0) puts("ok");
        fflush(stdout);
    }
    comem_barrier();
    return comem_finish() != 0;
}
