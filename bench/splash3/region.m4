divert(-1)
# Read after a PARMACS macro file: the program says on the error output when its parallel phase begins and ends, in
# seconds of the system's monotonic clock, and what check_results_ (of another file here) adds.

define(`region_moment_', `{
    struct timespec moment_;
    clock_gettime(CLOCK_MONOTONIC, &moment_);
    fprintf(stderr, "region $1 %ld.%09ld\n", (long)moment_.tv_sec, (long)moment_.tv_nsec);
}')
define(`check_results_', `')
define(`SPLASH3_ROI_BEGIN', `ifelse($#, 0, ``SPLASH3_ROI_BEGIN'', `region_moment_(begin)')')
define(`SPLASH3_ROI_END', `ifelse($#, 0, ``SPLASH3_ROI_END'', `region_moment_(end) check_results_')')
divert(0)dnl
