// Package faulty is a transport between a driver and the services of a real OpenStack that fails and lags as clouds
// do. It knows the few paths that matter, and does not change other calls. Tests of the driver use it for behavior
// that the services themselves cannot produce within seconds.
package faulty
