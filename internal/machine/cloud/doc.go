// Package cloud wraps the driver of a provider and adds features that every driver needs. The features are the fence
// before each call that changes something, the time limit for each call, the rate limit of the process, metrics, and
// protection against panics.
package cloud
