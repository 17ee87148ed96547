// Package auditlog counts the writes in the audit log of a kube-apiserver. Use it to measure how many writes a
// controller sends.
//
//	log, err := auditlog.Open(cp.AuditLog())
//	...
//	err = log.Mark()
//	... // the part that must be measured
//	counts, err := log.Count(auditlog.Filter{Users: []string{"machinist-manager"}})
//
// A write is a successful create, update, patch, delete or deletecollection that is not a dry run. Leases are not
// counted. Reviews (SubjectAccessReview and the like) are not counted either, because they are not stored. Events are
// counted separately, because they are a different kind of load. A patch that changes nothing counts as a write,
// because the API server does the same work for it as for any other patch.
//
// The log must have level Metadata or above, and consist of JSON lines in one file. In blocking mode, the API server
// writes the log entry of a request before it completes the response, so a count includes all requests that have been
// answered.
//
// A delete is recognized as a dry run only if the query of the request contains the option. If the body contains the
// option, the delete counts as a write.
package auditlog
