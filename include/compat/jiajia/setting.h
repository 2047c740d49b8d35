/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * setting.h: for programs that include this header of JIAJIA's own beside jia.h; what they need of it is in jia.h.
 */
#include <jia.h>
