__gnu__(divert(-1)m4_divert(-1))
# BARNES prints no result: print its bodies' squared positions and velocities, summed for each axis. For m4 with -P and
# without.
define(`m4_define', defn(`define'))
define(`m4_ifelse', defn(`ifelse'))
define(`m4_divert', defn(`divert'))
define(`m4_dnl', defn(`dnl'))

m4_define(`check_results_', `{
    double places_[NDIM] = {0}, speeds_[NDIM] = {0};
    long body_, axis_;
    for (body_ = 0; body_ < nbody; body_++) {
        for (axis_ = 0; axis_ < NDIM; axis_++) {
            places_[axis_] += Pos(bodytab + body_)[axis_] * Pos(bodytab + body_)[axis_];
            speeds_[axis_] += Vel(bodytab + body_)[axis_] * Vel(bodytab + body_)[axis_];
        }
    }
    for (axis_ = 0; axis_ < NDIM; axis_++) printf("sums: %.9f %.9f\n", places_[axis_], speeds_[axis_]);
}')
m4_divert(0)m4_dnl
