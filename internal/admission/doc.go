// Package admission contains the admission webhooks. The webhooks refuse errors that the schema, CEL and the
// admission policies cannot detect, and warn about settings that are valid but unwise.
//
// The validation functions are pure: they return field errors and warnings for an object. The manager serves a
// webhook for Machines, MachineSets, MachineDeployments and the other core kinds. Each provider serves a webhook for
// its own providerSpec. The webhooks do not check deletions, finalizers or status. The webhooks refuse only new
// errors, so an object with an existing error can still be changed.
//
// Machinist works without the webhooks. The controllers then report errors with a condition and an event.
package admission
