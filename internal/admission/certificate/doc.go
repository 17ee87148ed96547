// Package certificate maintains the serving certificate of admission webhooks. A Secret stores the certificate together
// with its own certificate authority. API servers trust the authority through the caBundle of a webhook configuration.
//
// The leader creates and renews the certificate. Every replica presents it.
//
// A change of the authority does not interrupt requests. A new authority is first added to the bundle. A new
// authority signs certificates only after every API server has had time to read the bundle. The previous authority
// stays in the bundle for slow API servers.
package certificate
