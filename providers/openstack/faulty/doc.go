// Package faulty is a transport between a driver and the services of a real OpenStack. The transport simulates failures
// and delays of real clouds that the services cannot produce within seconds. Only calls to a few paths are affected.
// All other calls are forwarded unchanged.
package faulty
