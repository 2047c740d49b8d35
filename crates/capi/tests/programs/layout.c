/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Where the fields of comem.h's structures are, as programs have it compiled in that ask for libcomem.so.0.1. Whoever
 * changes one gives the interface another number (crates/capi/build.rs), and writes a table for that. Fields may be
 * added to the end of comem_attr, which says how long it is: then its size changes here.
 */
#include <comem.h>

#if COMEM_VERSION_MAJOR != 0 || COMEM_VERSION_MINOR != 1
#error "another interface: write down its structures here"
#endif
#if !defined(__LP64__)
#error "the table is that of machines whose pointers have 64 bits"
#endif

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size")
#define FIELD(type, field, at, bytes)                                                                                \
    _Static_assert(offsetof(type, field) == (at) && sizeof(((type *)0)->field) == (bytes), #type "." #field " moved")

SIZE(comem_id, 128);
FIELD(comem_id, text, 0, 128);

SIZE(comem_attr, 64);
FIELD(comem_attr, size, 0, 8);
FIELD(comem_attr, unique_id, 8, 8);
FIELD(comem_attr, rank, 16, 4);
FIELD(comem_attr, processes, 20, 4);
FIELD(comem_attr, threads, 24, 4);
FIELD(comem_attr, reserved, 28, 4);
FIELD(comem_attr, engine, 32, 8);
FIELD(comem_attr, settings, 40, 8);
FIELD(comem_attr, broadcast, 48, 8);
FIELD(comem_attr, broadcast_argument, 56, 8);

SIZE(comem_array, 32);
FIELD(comem_array, data, 0, 8);
FIELD(comem_array, access, 8, 8);
FIELD(comem_array, length, 16, 8);
FIELD(comem_array, object, 24, 8);
/* Arrays of elements of one type are the same. */
SIZE(comem_array_i64, 32);
SIZE(comem_array_f32, 32);

SIZE(comem_object_options, 32);
FIELD(comem_object_options, unit_elements, 0, 8);
FIELD(comem_object_options, engine, 8, 8);
FIELD(comem_object_options, label, 16, 8);
FIELD(comem_object_options, home, 24, 4);
FIELD(comem_object_options, home_number, 28, 4);

SIZE(comem_region_options, 40);
FIELD(comem_region_options, engine, 0, 8);
FIELD(comem_region_options, label, 8, 8);
FIELD(comem_region_options, home, 16, 4);
FIELD(comem_region_options, home_number, 20, 4);
FIELD(comem_region_options, alignment, 24, 8);
FIELD(comem_region_options, unit_pages, 32, 4);
FIELD(comem_region_options, unit_bytes, 36, 4);

/* What accessors in the program's own code read and write. */
SIZE(struct comem_tls, 2);
FIELD(struct comem_tls, writing, 0, 1);
FIELD(struct comem_tls, may_write, 1, 1);

/* Codes and homes, which programs have as numbers. */
_Static_assert(COMEM_OK == 0 && COMEM_E_START == -1 && COMEM_E_NOT_STARTED == -2 && COMEM_E_INDEX == -3, "codes");
_Static_assert(COMEM_E_ARRAY == -4 && COMEM_E_ARGUMENT == -5 && COMEM_E_THREAD == -6 && COMEM_E_MISUSE == -7, "codes");
_Static_assert(COMEM_E_NODE_LOST == -8 && COMEM_E_EMPTY == -9 && COMEM_E_TOO_SMALL == -10, "codes");
_Static_assert(COMEM_E_SYSTEM == -11 && COMEM_E_STOPPED == -12, "codes");
_Static_assert(COMEM_HOME_BLOCK == 0 && COMEM_HOME_CYCLIC == 1 && COMEM_HOME_ON == 2, "homes");
_Static_assert(COMEM_HOME_FIRST_TOUCH == 3 && COMEM_HOME_AUTOMATIC == 4, "homes");
