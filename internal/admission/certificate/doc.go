// Package certificate maintains the serving certificate of admission webhooks. The certificate is stored in a Secret,
// together with its own certificate authority. API servers trust that authority through the caBundle of a
// ValidatingWebhookConfiguration.
//
// The leader creates and renews the certificate. Every replica presents the certificate in the Secret. Requests do
// not fail while the certificate or its authority changes. A new authority is first added to the bundle. It signs
// certificates only after every API server has had time to read the new bundle. The previous authority stays in the
// bundle for API servers that are late to read the change.
package certificate
