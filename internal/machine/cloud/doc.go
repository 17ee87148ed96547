// Package cloud puts around a provider's driver what holds for every driver alike: the leader's fence before each call
// that changes something, a bound on the time of each call, the process's own rate limit, and metrics.
package cloud
