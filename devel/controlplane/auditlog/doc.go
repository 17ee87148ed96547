// Package auditlog counts the writes in the audit log of a kube-apiserver. It measures how many writes a controller
// causes.
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
// because it costs the API server the same work.
//
// The log must have level Metadata or above, and consist of JSON lines in one file. In blocking mode, the API server
// writes the entry before it finishes the answer, so a count includes all requests that were answered before it.
//
// A delete is only recognized as a dry run if the query of the request asks for that. If the body does, the delete
// counts as a write.
package auditlog
