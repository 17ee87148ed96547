// Package manifests holds what tests write into clusters: the smallest valid object of each kind, and a table of
// objects that nobody should be able to write (Bad). Each of those says what the rejection must name, and by which
// component it comes, and so which of them a cluster admits that has the CustomResourceDefinitions and nothing else
// of Machinist's.
package manifests
