// Package auditlog counts the writes that a kube-apiserver's audit log tells
// of: what a controller costs the API server.
//
//	log, err := auditlog.Open(cp.AuditLog())
//	...
//	err = log.Mark()
//	... // what must be measured
//	counts, err := log.Count(auditlog.Filter{Users: []string{"machinist-manager"}})
//
// A write is a successful create, update, patch, delete or deletecollection
// that is not a dry run. Leases are left out, and so are the reviews
// (SubjectAccessReview and the like), which are written nowhere. Events are
// counted apart, for they are of another kind and load than the objects. A
// patch that changes nothing is a write: the API server has the work.
//
// The log must be of level Metadata or above, as JSON lines in one file. In
// blocking mode the API server writes the entry before it finishes the
// answer, so that a count has everything that was answered before it.
//
// Whether a delete was a dry run is only in the log when it was asked for in
// the query: one that is asked for in the body counts as a write.
package auditlog
