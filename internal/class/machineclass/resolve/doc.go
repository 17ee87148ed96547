// Package resolve finds everything that is needed to create the instance of a Machine: the class or inline
// specification, the credentials and the bootstrap template. It also maps a Secret to the classes and Machines that
// refer to it, so that they are reconciled again when the Secret appears or changes.
//
// Classes are read from the cache. Secrets are read from the API server at every use and never cached. The contents
// may have been rotated a moment ago, and a cache could leak credentials. Only concurrent callers share an answer.
package resolve
