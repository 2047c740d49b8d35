/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Quarks.h: the name under which programs include quarks.h.
 */
#include "quarks.h"
