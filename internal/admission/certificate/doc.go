// Package certificate maintains the serving certificate of admission webhooks. The certificate is stored in a Secret,
// together with its own certificate authority. API servers trust that authority through the caBundle of a
// ValidatingWebhookConfiguration.
//
// The leader creates and renews the certificate. Every replica presents the certificate in the Secret. No request fails
// when the certificate or its authority changes: the next authority is first added to the bundle, and signs only after
// every API server has had time to read the bundle. The previous authority stays in the bundle for API servers that
// read it late.
package certificate
