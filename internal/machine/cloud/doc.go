// Package cloud wraps the driver of a provider. The package adds timeouts, rate limits, metrics and protection
// against panics to all calls. Before each call that changes something, it also checks that this process is the
// leader (the fence).
package cloud
