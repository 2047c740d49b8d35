divert(-1)
# BARNES prints no result: print its bodies' squared positions and velocities, summed for each axis.

define(`check_results_', `{
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
divert(0)dnl
