// Package cloud wraps the driver of a provider with features that all drivers need. These are the fence before each
// call that changes something, a time limit for each call, the rate limit of the process, metrics, and protection
// against panics.
package cloud
