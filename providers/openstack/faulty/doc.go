// Package faulty is a transport between a driver and the services of a real OpenStack that fails, and lags, as clouds
// do. It knows the few paths that matter and leaves all other calls alone. Tests of the driver use it where the
// services themselves cannot be made to behave so within seconds.
package faulty
