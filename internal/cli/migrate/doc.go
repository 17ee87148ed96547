// Package migrate computes the plan of a Migration, its progress, and the commands that continue it. All functions are
// pure: they compute their results only from objects that the caller has read.
package migrate
