__gnu__(divert(-1)m4_divert(-1))
# Read after a PARMACS macro file: the program says on the error output when its parallel phase begins and ends, in
# seconds of the system's monotonic clock, and what check_results_ (of another file here) adds. For m4 with -P and
# without.
define(`m4_define', defn(`define'))
define(`m4_defn', defn(`defn'))
define(`m4_ifelse', defn(`ifelse'))
define(`m4_divert', defn(`divert'))
define(`m4_dnl', defn(`dnl'))

m4_define(`region_moment_', `{
    struct timespec moment_;
    clock_gettime(CLOCK_MONOTONIC, &moment_);
    fprintf(stderr, "region $1 %ld.%09ld\n", (long)moment_.tv_sec, (long)moment_.tv_nsec);
}')
m4_define(`check_results_', `')
m4_define(`SPLASH3_ROI_BEGIN', `m4_ifelse($#, 0, ``$0'', `region_moment_(begin)')')
m4_define(`SPLASH3_ROI_END', `m4_ifelse($#, 0, ``$0'', `region_moment_(end) check_results_')')
m4_define(`SPLASH4_ROI_BEGIN', m4_defn(`SPLASH3_ROI_BEGIN'))
m4_define(`SPLASH4_ROI_END', m4_defn(`SPLASH3_ROI_END'))
m4_divert(0)m4_dnl
