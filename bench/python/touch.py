"""What it costs to read another node's memory in order, from NumPy; touch.c is the same from C.

comem run -n 2 --rehearse --stats FILE python touch.py [MEBIBYTES]
"""

import sys
import time

import comem

a = comem.zeros((int(sys.argv[1]) if len(sys.argv) > 1 else 64) << 17, home=1)
if comem.rank == 1:
    a[:] = 1
comem.barrier()
if comem.rank == 0:
    start = time.perf_counter()
    total = a.sum()
    print(f"sum {total:.0f}, {(time.perf_counter() - start) * 1e6 / (len(a) / 512):.3f} us a page")
comem.barrier()
