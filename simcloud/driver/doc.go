// Package driver implements provider.Driver for the simulated cloud. The name of the provider is "sim".
//
// A providerSpec has this form. zone, tags and endpoint are optional:
//
//	apiVersion: sim.machinist.dev/v1beta1
//	kind: SimMachine
//	region: sim-1
//	zone: sim-1a
//	instanceType: small
//	image: sim-os-1
//	tags: {team: blue}
//
// The credentials Secret contains the account's token under the key "token". The token is only sent to endpoints that
// the provider process was started with: endpoint in providerSpec selects one of these.
//
// Errors do not contain the cloud's own error messages. They name the failed operation and the kind of error. They wrap
// the cloud's error, which is meant for logs.
package driver
