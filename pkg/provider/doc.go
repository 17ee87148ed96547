// Package provider is the contract between Machinist and an infrastructure: the Driver interface that a provider author
// implements, the requests a driver receives, the Instance it answers with, and the error codes that decide what
// happens next.
//
// A driver translates; it decides nothing. It is stateless between calls (a cache of clients per credential aside), may
// be called from many goroutines at once, never blocks to wait for the cloud (an operation under way is a state of the
// Instance, which Machinist checks again), and never retries on its own account beyond what its SDK does within the
// call's context: backoff, rate limits and retry-after are Machinist's.
//
// Three rules make crashes, lost answers and retries harmless, and every driver has to keep them:
//
//   - Create is idempotent by CreateRequest.Token, and an instance that already carries CreateRequest.Machine.UID as
//     its tag is returned instead of making another.
//   - What Create makes is tagged with CreateRequest.Tags in the same call that makes it, so that List and Get find it
//     even when the answer was lost.
//   - Delete reports Gone only when nothing of the instance is left that costs money or blocks a name: disks, network
//     interfaces and addresses included.
//
// The package depends on the standard library and Kubernetes' api and apimachinery only, so that a driver does not
// inherit Machinist's controllers. Package conformance, below this one, proves a driver right. A provider's main
// calls package app, beside it.
package provider
