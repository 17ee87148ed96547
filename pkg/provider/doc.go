// Package provider defines the contract between Machinist and a cloud. The author of a provider implements the Driver
// interface. The package also defines the requests that a driver receives, the Instance that it returns, and the error
// codes that decide what Machinist does next.
//
// A driver translates calls and makes no decisions:
//
//   - It keeps no state between calls, except a cache of clients per set of credentials.
//   - It may be called from many goroutines at once.
//   - It never blocks to wait for an operation of the cloud. The state of the Instance shows that an operation is in
//     progress. Machinist checks the state again later.
//   - It never retries a request, except for the retries of its SDK within the call's context. Machinist is responsible
//     for backoff and rate limits, and it honours RetryAfter.
//
// Every driver must follow three rules, which make crashes, lost answers and retries harmless:
//
//   - Create is idempotent by CreateRequest.Token. If an instance already carries CreateRequest.Machine.UID as its tag,
//     Create returns that instance and does not create another one.
//   - Create sets CreateRequest.Tags in the same call that creates the instance, so that List and Get find the instance
//     even if the answer of that call was lost.
//   - Delete reports Gone only when nothing of the instance is left that costs money or blocks a name. This includes
//     disks, network interfaces and addresses.
//
// The package depends only on the standard library, k8s.io/api and k8s.io/apimachinery. A driver module therefore does
// not get the dependencies of Machinist's controllers. Package conformance tests whether a driver follows the contract.
// Package app is the process around a driver. The main function of a provider calls app.Main.
package provider
