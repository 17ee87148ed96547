// Package driver implements provider.Driver for the simulated cloud. The name of the provider is "sim".
//
// The following is an example of a providerSpec. The fields zone, tags and endpoint are optional:
//
//	apiVersion: sim.machinist.dev/v1beta1
//	kind: SimMachine
//	region: sim-1
//	zone: sim-1a
//	instanceType: small
//	image: sim-os-1
//	tags: {team: blue}
//
// The credentials Secret contains the account's token under the key "token". The driver sends the token only to the
// endpoints in its options. The endpoint in a providerSpec selects one of these endpoints.
//
// Errors do not contain the cloud's own error messages. Errors name the failed operation and the kind of error. The
// wrapped error of the cloud is only for logs.
package driver
