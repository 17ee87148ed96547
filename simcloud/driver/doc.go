// Package driver makes machines of the simulated cloud's instances: it is the provider named "sim".
//
// A providerSpec looks like this; zone, tags and endpoint may be left out:
//
//	apiVersion: sim.machinist.dev/v1beta1
//	kind: SimMachine
//	region: sim-1
//	zone: sim-1a
//	instanceType: small
//	image: sim-os-1
//	tags: {team: blue}
//
// The credentials Secret holds the account's token under the key "token". Where it is sent is not the class's to say:
// an endpoint in providerSpec only chooses among those that the provider process was started with.
//
// The cloud's own error messages are not passed on. An error says in this package's words what was attempted and what
// kind of answer came back; the cloud's error is its cause, for logs.
package driver
