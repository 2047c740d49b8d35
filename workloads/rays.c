/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * rays: a picture of a sphere flake by ray tracing (the scene `balls` of E. Haines, "A proposal for standard graphics
 * environments", IEEE CG&A 7(11), 1987; SPLASH-2's RAYTRACE; Brazos, section 4).
 *
 * A large sphere has nine on it, a third as wide, each of which has nine on it, and so on, above a floor of tiles. All
 * spheres mirror. The scene and a tree of boxes over it lie in shared memory; thread 0 makes them.
 *
 * The picture is dealt out in bundles of pixels. Each thread has a queue of them, under a lock; one whose queue is
 * empty takes from the ends of the others'. Each pixel adds the rays that it took to a counter under a lock, for all
 * threads. The picture is written without any lock, and bundles share pages. Whoever is told of all writes at each lock
 * fetches such pages again and again. A lock that orders only what was written under it (scope consistency) leaves them
 * alone.
 *
 * A pixel's colour depends on nothing but the scene, so picture and counter are the same for any number of threads.
 * RAYS_PICTURE=FILE in the environment of node 0 asks for the picture, in the format PPM.
 */
#include "kernel.h"

enum {
    AXES = 3,
    TWIGS = 9,
    BUNDLE = 8, /* pixels on a side */
    LEAF_SPHERES = 4,
    LIGHTS = 3,
    FLOOR = -1,
    NOTHING = -2,
    COUNTER_LOCK = 0,
    QUEUE_LOCKS = 1,
    QUEUES_MAX = 4096,
    STACK_MAX = 128,
    SAMPLES = 200
};

/* With as many rays as that the picture is always made again by one thread; --check asks for it beyond. */
enum { RAYS_CHECKED = 1 << 20 };

static int64_t width = 128, height = 128, levels = 3, bounces = 3, samples = 1;

typedef struct vector {
    double x, y, z;
} vector;

typedef struct sphere {
    vector centre;
    double radius;
} sphere;

/* A box about spheres [low, high), or about the two boxes that stand at `first` and behind it. */
typedef struct box {
    vector low_corner, high_corner;
    int32_t low, high, first, unused;
} box;

typedef struct scene {
    sphere *spheres;
    box *boxes;
    int64_t sphere_count, box_count;
} scene;

/* Bundles [next, end) are still to be done. */
typedef struct queue {
    int64_t next, end;
    int64_t unused[6];
} queue;

typedef struct ray {
    vector from, to; /* `to` has length 1 */
} ray;

static const vector EYE = {2.1, 1.3, 1.7}, LOOK_AT = {0, 0, 0}, UP = {0, 0, 1};
static const vector LIGHT[LIGHTS] = {{4, 3, 2}, {1, -4, 4}, {-3, 1, 5}};
static const vector SKY = {0.078, 0.361, 0.753}, BALL = {1.0, 0.9, 0.7};
static const double FLOOR_HEIGHT = -0.5, VIEW = 0.45 /* half of the picture over its distance */;
static const double MIRROR = 0.5, AMBIENT = 0.08, NEAR = 1e-6;

static scene shared;
static uint32_t *picture;
static queue *queues;
static int64_t *ray_counter;

/* ---- vectors --------------------------------------------------------------------------------------------------- */

static inline vector plus(vector a, vector b) {
    return (vector){a.x + b.x, a.y + b.y, a.z + b.z};
}
static inline vector minus(vector a, vector b) {
    return (vector){a.x - b.x, a.y - b.y, a.z - b.z};
}
static inline vector times(double f, vector a) {
    return (vector){f * a.x, f * a.y, f * a.z};
}
static inline double dot(vector a, vector b) {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}
static inline vector cross(vector a, vector b) {
    return (vector){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
static inline vector unit(vector a) {
    return times(1 / sqrt(dot(a, a)), a);
}
static inline double axis_of(vector a, int axis) {
    return axis == 0 ? a.x : axis == 1 ? a.y : a.z;
}

/* ---- the scene ------------------------------------------------------------------------------------------------- */

static int64_t spheres_of(int64_t depth) {
    int64_t sum = 0, level = 1;
    for (int64_t l = 0; l <= depth; l++, level *= TWIGS) sum += level;
    return sum;
}

/* Two directions at right angles to this one and to each other. */
static void frame(vector direction, vector *a, vector *b) {
    const vector other = fabs(direction.z) < 0.9 ? (vector){0, 0, 1} : (vector){1, 0, 0};
    *a = unit(cross(other, direction));
    *b = cross(direction, *a);
}

/* A sphere that grows in a direction, with all that grows on it: six about its waist, and three above. */
static void grow(scene *s, vector centre, double radius, vector direction, int64_t depth) {
    vector a, b;
    s->spheres[s->sphere_count++] = (sphere){centre, radius};
    if (depth == 0) return;
    frame(direction, &a, &b);
    for (int k = 0; k < TWIGS; k++) {
        const int waist = k < 6;
        const double angle = waist ? k * 1.0471975511965976 : (k - 6) * 2.0943951023931953 + 0.5235987755982988;
        const double up = waist ? 0 : 0.8164965809277260, out = sqrt(1 - up * up);
        const vector around = plus(times(cos(angle), a), times(sin(angle), b));
        const vector twig = plus(times(out, around), times(up, direction));
        grow(s, plus(centre, times(radius * 4 / 3, twig)), radius / 3, twig, depth - 1);
    }
}

static void surround(const scene *s, box *b) {
    const double far = 1e30;
    b->low_corner = (vector){far, far, far};
    b->high_corner = (vector){-far, -far, -far};
    for (int32_t i = b->low; i < b->high; i++) {
        const vector c = s->spheres[i].centre;
        const double r = s->spheres[i].radius;
        b->low_corner = (vector){fmin(b->low_corner.x, c.x - r), fmin(b->low_corner.y, c.y - r),
                                 fmin(b->low_corner.z, c.z - r)};
        b->high_corner = (vector){fmax(b->high_corner.x, c.x + r), fmax(b->high_corner.y, c.y + r),
                                  fmax(b->high_corner.z, c.z + r)};
    }
}

/* Puts the spheres whose centres are lower along an axis into the first half of [low, high). */
static void halve(sphere *spheres, int64_t low, int64_t high, int axis) {
    const int64_t middle = low + (high - low) / 2;
    while (high - low > 1) {
        const double pivot = axis_of(spheres[low + (high - low) / 2].centre, axis);
        int64_t i = low, j = high - 1;
        while (i <= j) {
            while (axis_of(spheres[i].centre, axis) < pivot) i++;
            while (axis_of(spheres[j].centre, axis) > pivot) j--;
            if (i > j) break;
            const sphere other = spheres[i];
            spheres[i++] = spheres[j];
            spheres[j--] = other;
        }
        if (middle <= j) {
            high = j + 1;
        } else if (middle >= i) {
            low = i;
        } else {
            return;
        }
    }
}

/* Divides a box until each holds few spheres. */
static void divide(scene *s, int64_t number) {
    box *b = &s->boxes[number];
    surround(s, b);
    if (b->high - b->low <= LEAF_SPHERES) return;
    const vector size = minus(b->high_corner, b->low_corner);
    const int axis = size.x >= size.y && size.x >= size.z ? 0 : size.y >= size.z ? 1 : 2;
    const int32_t middle = b->low + (b->high - b->low) / 2;
    halve(s->spheres, b->low, b->high, axis);
    b->first = (int32_t)s->box_count;
    s->boxes[s->box_count++] = (box){.low = b->low, .high = middle};
    s->boxes[s->box_count++] = (box){.low = middle, .high = b->high};
    divide(s, b->first);
    divide(s, b->first + 1);
}

static void make_scene(scene *s) {
    s->sphere_count = 0;
    grow(s, (vector){0, 0, 0}, 0.5, (vector){0, 0, 1}, levels);
    s->boxes[0] = (box){.low = 0, .high = (int32_t)s->sphere_count};
    s->box_count = 1;
    divide(s, 0);
}

static size_t sphere_bytes(void) {
    return (size_t)spheres_of(levels) * sizeof(sphere);
}

/* As many boxes as spheres are enough: each half of a box that is divided holds two spheres or more. */
static size_t box_bytes(void) {
    return (size_t)spheres_of(levels) * sizeof(box);
}

/* ---- what a ray meets ------------------------------------------------------------------------------------------ */

/* How far a ray goes to the sphere; a negative number if it does not meet it in front. */
static inline double to_sphere(const ray *r, const sphere *s) {
    const vector d = minus(s->centre, r->from);
    const double along = dot(d, r->to), beside = s->radius * s->radius - (dot(d, d) - along * along);
    if (beside < 0) return -1;
    const double half = sqrt(beside);
    return along - half > NEAR ? along - half : along + half > NEAR ? along + half : -1;
}

/* Whether a ray meets the box before it has gone that far; `inverse` has 1 over its direction. */
static inline int meets_box(const ray *r, vector inverse, const box *b, double far) {
    double enter = 0, leave = far;
    for (int axis = 0; axis < AXES; axis++) {
        const double from = axis_of(r->from, axis), by = axis_of(inverse, axis);
        const double one = (axis_of(b->low_corner, axis) - from) * by;
        const double two = (axis_of(b->high_corner, axis) - from) * by;
        enter = fmax(enter, fmin(one, two));
        leave = fmin(leave, fmax(one, two));
    }
    return enter <= leave * (1 + 1e-12);
}

/* What a ray meets first before it has gone `*far`: a sphere's number, FLOOR or NOTHING. `*far` becomes how far that
 * is. Of spheres at the same distance that with the lowest number counts. */
KERNEL_HOT static int64_t meet(const scene *s, const ray *r, double *far) {
    const vector inverse = {1 / r->to.x, 1 / r->to.y, 1 / r->to.z};
    int64_t found = NOTHING, stack[STACK_MAX], depth = 0;
    const double down = (FLOOR_HEIGHT - r->from.z) / r->to.z;
    if (down > NEAR && down < *far) *far = down, found = FLOOR;
    stack[depth++] = 0;
    while (depth > 0) {
        const box *b = &s->boxes[stack[--depth]];
        if (!meets_box(r, inverse, b, *far)) continue;
        if (b->first) {
            stack[depth++] = b->first + 1;
            stack[depth++] = b->first;
            continue;
        }
        for (int32_t i = b->low; i < b->high; i++) {
            const double here = to_sphere(r, &s->spheres[i]);
            if (here > 0 && (here < *far || (here == *far && found >= 0 && i < found))) *far = here, found = i;
        }
    }
    return found;
}

/* The same by looking at all spheres. */
static int64_t meet_directly(const scene *s, const ray *r, double *far) {
    int64_t found = NOTHING;
    const double down = (FLOOR_HEIGHT - r->from.z) / r->to.z;
    if (down > NEAR && down < *far) *far = down, found = FLOOR;
    for (int64_t i = 0; i < s->sphere_count; i++) {
        const double here = to_sphere(r, &s->spheres[i]);
        if (here > 0 && here < *far) *far = here, found = i;
    }
    return found;
}

typedef int64_t meeting(const scene *s, const ray *r, double *far);

/* ---- colours --------------------------------------------------------------------------------------------------- */

/* The colour of the floor: grey tiles. */
static vector floor_colour(vector at) {
    const int odd = ((int64_t)floor(at.x) + (int64_t)floor(at.y)) & 1;
    return odd ? (vector){0.75, 0.75, 0.75} : (vector){0.25, 0.3, 0.25};
}

/* What the lights give a point, with a ray to each that is in front. */
static double light_at(const scene *s, meeting *first, vector at, vector normal, int64_t *rays) {
    double sum = AMBIENT;
    for (int k = 0; k < LIGHTS; k++) {
        const vector way = minus(LIGHT[k], at);
        double far = sqrt(dot(way, way));
        const ray r = {at, times(1 / far, way)};
        const double slant = dot(normal, r.to);
        if (slant <= 0) continue;
        ++*rays;
        if (first(s, &r, &far) == NOTHING) sum += slant / LIGHTS;
    }
    return sum;
}

/* The colour that a ray sees, and that those it is mirrored into do. */
static vector trace(const scene *s, meeting *first, ray r, int64_t *rays) {
    vector colour = {0, 0, 0};
    double share = 1;
    for (int64_t bounce = 0; bounce <= bounces; bounce++) {
        double far = 1e30;
        ++*rays;
        const int64_t found = first(s, &r, &far);
        if (found == NOTHING) return plus(colour, times(share, SKY));
        const vector at = plus(r.from, times(far, r.to));
        const vector normal = found == FLOOR ? (vector){0, 0, 1}
                                             : times(1 / s->spheres[found].radius, minus(at, s->spheres[found].centre));
        const vector own = found == FLOOR ? floor_colour(at) : BALL;
        const double kept = found == FLOOR ? 1 : 1 - MIRROR;
        colour = plus(colour, times(share * kept * light_at(s, first, at, normal, rays), own));
        if (found == FLOOR) return colour;
        share *= MIRROR;
        r = (ray){at, unit(minus(r.to, times(2 * dot(r.to, normal), normal)))};
    }
    return colour;
}

static uint32_t byte_of(double light) {
    const double bright = sqrt(fmin(fmax(light, 0), 1)); /* screens show about the square */
    return (uint32_t)(255 * bright + 0.5);
}

/* Pixel number `pixel`, in rows from above; adds the rays that it took. */
KERNEL_HOT static uint32_t pixel_of(const scene *s, meeting *first, int64_t pixel, int64_t *rays) {
    const vector ahead = unit(minus(LOOK_AT, EYE)), right = unit(cross(ahead, UP)), up = cross(right, ahead);
    const double scale = 2 * VIEW / (double)(width > height ? width : height);
    vector sum = {0, 0, 0};
    for (int64_t k = 0; k < samples * samples; k++) {
        const double x = (double)(pixel % width) + ((double)(k % samples) + 0.5) / (double)samples;
        const double y = (double)(pixel / width) + ((double)(k / samples) + 0.5) / (double)samples;
        const vector aside = times(scale * (x - 0.5 * (double)width), right);
        const vector above = times(scale * (0.5 * (double)height - y), up);
        const ray r = {EYE, unit(plus(ahead, plus(aside, above)))};
        sum = plus(sum, times(1 / (double)(samples * samples), trace(s, first, r, rays)));
    }
    return byte_of(sum.x) << 16 | byte_of(sum.y) << 8 | byte_of(sum.z);
}

/* ---- bundles --------------------------------------------------------------------------------------------------- */

static int64_t bundles_across(void) {
    return (width + BUNDLE - 1) / BUNDLE;
}

static int64_t bundle_count(void) {
    return bundles_across() * ((height + BUNDLE - 1) / BUNDLE);
}

/* Pixel number `k` of a bundle, or a negative number where it is beyond the picture. */
static int64_t pixel_in(int64_t bundle, int64_t k) {
    const int64_t x = bundle % bundles_across() * BUNDLE + k % BUNDLE;
    const int64_t y = bundle / bundles_across() * BUNDLE + k / BUNDLE;
    return x < width && y < height ? y * width + x : -1;
}

static void fill_queues(int64_t threads) {
    for (int64_t t = 0; t < threads; t++) kernel_part(bundle_count(), threads, t, &queues[t].next, &queues[t].end);
    *ray_counter = 0;
}

/* Takes a bundle from a queue whose lock is held: its owner from the front, others from the end. Negative: none. */
static int64_t take(queue *q, int owner) {
    if (q->next >= q->end) return -1;
    return owner ? q->next++ : --q->end;
}

/* ---- all threads ----------------------------------------------------------------------------------------------- */

/* A bundle of the thread's own queue, or of another that has some left; negative: all are empty. */
static int64_t next_bundle(void) {
    const int threads = comem_threads();
    for (int k = 0; k < threads; k++) {
        const int q = (comem_thread() + k) % threads;
        comem_lock(QUEUE_LOCKS + (uint64_t)q);
        const int64_t bundle = take(&queues[q], k == 0);
        comem_unlock(QUEUE_LOCKS + (uint64_t)q);
        if (bundle >= 0) return bundle;
    }
    return -1;
}

static void do_bundle(int64_t bundle) {
    for (int64_t k = 0; k < BUNDLE * BUNDLE; k++) {
        const int64_t pixel = pixel_in(bundle, k);
        int64_t rays = 0;
        if (pixel < 0) continue;
        picture[pixel] = pixel_of(&shared, meet, pixel, &rays);
        comem_lock(COUNTER_LOCK);
        *ray_counter += rays;
        comem_unlock(COUNTER_LOCK);
    }
}

static void work(void *unused) {
    (void)unused;
    if (comem_thread() == 0) {
        make_scene(&shared);
        fill_queues(comem_threads());
    }
    comem_barrier();
    const double start = now();
    for (int64_t bundle = next_bundle(); bundle >= 0; bundle = next_bundle()) do_bundle(bundle);
    comem_barrier();
    if (comem_thread() == 0) kernel_seconds = now() - start;
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* Whether some pixels are what they are without boxes. */
static int boxes_are_right(void) {
    for (uint64_t k = 0; k < SAMPLES; k++) {
        const int64_t pixel = (int64_t)(mix(k) % (uint64_t)(width * height));
        int64_t rays = 0;
        if (pixel_of(&shared, meet_directly, pixel, &rays) != picture[pixel]) return 0;
    }
    return 1;
}

/* Whether one thread, with a scene of its own, makes the same picture with as many rays. */
static int agrees(void) {
    scene s;
    int64_t rays = 0;
    s.spheres = kernel_private(sphere_bytes());
    s.boxes = kernel_private(box_bytes());
    make_scene(&s);
    for (int64_t pixel = 0; pixel < width * height; pixel++) {
        if (pixel_of(&s, meet, pixel, &rays) != picture[pixel]) return 0;
    }
    return rays == *ray_counter;
}

static uint64_t checksum(void) {
    uint64_t sum = mix((uint64_t)*ray_counter);
    for (int64_t pixel = 0; pixel < width * height; pixel++) sum = mix(sum ^ picture[pixel]);
    return sum;
}

/* Writes the picture into a file, in the format PPM. */
static void write_picture(const char *name) {
    FILE *file = fopen(name, "wb");
    if (!file) refuse("rays", "the picture's file cannot be written");
    fprintf(file, "P6\n%" PRId64 " %" PRId64 "\n255\n", width, height);
    for (int64_t pixel = 0; pixel < width * height; pixel++) {
        const uint32_t p = picture[pixel];
        const unsigned char bytes[3] = {(unsigned char)(p >> 16), (unsigned char)(p >> 8), (unsigned char)p};
        fwrite(bytes, 1, sizeof bytes, file);
    }
    if (fclose(file) != 0) refuse("rays", "the picture's file cannot be written");
}

/* Node 0: prints the line of results but for its end, and gives the verdict. */
static int print_result(void) {
    int verdict = KERNEL_UNCHECKED;
    if (kernel_check || *ray_counter <= RAYS_CHECKED) verdict = agrees() ? KERNEL_OK : KERNEL_WRONG;
    if (kernel_check && !boxes_are_right()) verdict = KERNEL_WRONG;
    const char *name = getenv("RAYS_PICTURE");
    if (name && *name) write_picture(name);
    printf("rays width=%" PRId64 " height=%" PRId64 " spheres=%" PRId64 " rays=%" PRId64, width, height,
           spheres_of(levels), *ray_counter);
    return verdict;
}

static void check_numbers(void) {
    if (width < 1 || height < 1 || width > 1 << 14 || height > 1 << 14 || levels > 6 || bounces > 20 || samples < 1 ||
        samples > 16)
        refuse("rays", "pictures up to 2^14 pixels a side, 0 to 6 levels, 0 to 20 bounces, 1 to 16 samples");
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--width", &width, NULL, NULL, "pixels of a row"},
        {"--height", &height, NULL, NULL, "rows of pixels"},
        {"--levels", &levels, NULL, NULL, "levels of spheres on spheres, 0 to 6"},
        {"--bounces", &bounces, NULL, NULL, "how often a ray is mirrored"},
        {"--samples", &samples, NULL, NULL, "rays of a pixel, along each side"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {48, 40, 2, 3, 1}},
        {"brazos", "Brazos's balls4", {256, 256, 4, 5, 1}},
        {"large", "a large picture", {1024, 1024, 5, 5, 2}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    check_numbers();
    if (comem_threads() > QUEUES_MAX) refuse("rays", "no more than 4096 threads");
    shared.spheres = kernel_shared(sphere_bytes(), "spheres");
    shared.boxes = kernel_shared(box_bytes(), "boxes");
    picture = kernel_shared((size_t)(width * height) * sizeof *picture, "picture");
    queues = kernel_shared((size_t)comem_threads() * sizeof *queues + sizeof *ray_counter, "queues");
    ray_counter = (int64_t *)(queues + comem_threads());
    shared.sphere_count = spheres_of(levels);
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    const int verdict = print_result();
    return kernel_finish(checksum(), verdict);
}
