/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tmk.h: the name under which programs include tmk.h.
 */
#include "tmk.h"
