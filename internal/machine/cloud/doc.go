// Package cloud wraps the driver of a provider. It adds a fence before each call that changes something, timeouts, rate
// limits, metrics, and protection against panics.
package cloud
