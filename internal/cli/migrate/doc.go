// Package migrate computes what a Migration would do, how far it is, and which command continues it. The package is
// pure: its input is objects that the caller has read.
package migrate
