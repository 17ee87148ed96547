// Package certificate keeps the serving certificate of admission webhooks: in a Secret, signed by a certificate
// authority of its own beside it, and known to the API server by the caBundle of a ValidatingWebhookConfiguration.
//
// The leader makes and renews it; every replica presents what the Secret holds. No request is lost when a certificate
// changes, nor when its authority does: the next authority is put into the bundle first, and signs only when every API
// server has had the time to hear of it. The authority before stays in the bundle for those that heard late.
package certificate
