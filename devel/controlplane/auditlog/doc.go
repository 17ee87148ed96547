// Package auditlog counts the writes in the audit log of a kube-apiserver. Use it to measure how many writes a
// controller sends.
//
//	log, err := auditlog.Open(cp.AuditLog())
//	...
//	err = log.Mark()
//	... // the part that must be measured
//	counts, err := log.Count(auditlog.Filter{Users: []string{"machinist-manager"}})
//
// A write is a successful create, update, patch, delete or deletecollection that is not a dry run. Leases, and reviews
// such as SubjectAccessReview, are not counted. Events are counted separately, because they are a different kind of
// load. A patch without changes counts as a write, because it costs the API server the same work.
//
// The log must have level Metadata or above, and consist of JSON lines in one file. In blocking mode, the API server
// logs a request before it completes the response. A count therefore includes all answered requests.
//
// A delete with the dry-run option in its body, and not in its query, counts as a write.
package auditlog
