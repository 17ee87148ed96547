// Package migrate computes the plan of a Migration, its progress, and the commands that continue it. All functions are
// pure: they use only the given objects.
package migrate
