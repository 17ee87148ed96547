// Package faulty is a transport between a driver and the services of a real OpenStack. It simulates the failures and
// delays of real clouds. It affects only calls to a few paths, and forwards all other calls unchanged. Tests of the
// driver use it for behavior that the services themselves cannot produce within seconds.
package faulty
