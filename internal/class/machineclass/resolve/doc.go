// Package resolve finds what a Machine is made from: its class or inline form, the credentials and the bootstrap
// template. It also tells which classes and Machines a Secret matters to, so that they are reconciled again when it
// appears or changes.
//
// Classes are read from the cache. Secrets are read live at every use and never kept: what is in them may have been
// rotated a moment ago, and a cache of credentials is one more place to lose them from. Only those who ask at the
// same time share an answer.
package resolve
