// Package admission contains the admission webhooks. The webhooks refuse objects with errors that the schema, CEL and
// the admission policies cannot detect, and warn about settings that are valid but unwise.
//
// The decisions are pure functions from objects to field errors and warnings. The manager has a webhook for the core
// kinds, and each provider has a webhook for its own providerSpec. The webhooks do not check deletions, finalizers or
// status. An object with an existing error can still be changed, because only new errors are refused. If a webhook is
// not available, each controller still handles every object that the CRDs admit, and reports errors with a condition
// and an event.
package admission
